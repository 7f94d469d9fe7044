// SizedProgram: what a Program recorded for one number of samples is for any other, from two recordings of it. For
// plans and predictions of many sizes, where recording each would take longer than all the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gemmill/runtime/program.h"

namespace gemmill {

class SizedProgram {
 public:
  // From recordings for two different numbers of samples. Nothing where they differ in more than dimensions, or in
  // dimensions that do not grow by a whole number with each sample: a model that does another thing for other sizes.
  static std::optional<SizedProgram> Between(Program one, int64_t samples_of_one, const Program& other,
                                             int64_t samples_of_other);

  // Valid until the next call. Its ops keep the sizes of the first recording (a Reshape's shape): MakePlan would refuse
  // it, PlanOf and WorkspaceBytes do not look at them.
  const Program& For(int64_t samples);

 private:
  struct Growing {
    size_t value;
    size_t dimension;
    int64_t at_none;  // for no samples
    int64_t per_sample;
  };

  Program program_;
  std::vector<Growing> growing_;
};

}  // namespace gemmill
