// Learning-rate schedules: what the optimizer's rate is multiplied by at each step, a pure function of the step.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace gemmill {

class Schedule {
 public:
  static Schedule Constant() { return Schedule(); }
  // (step + 1) / warmup_steps below warmup_steps, then half a cosine from 1 at warmup_steps down to `final_factor` at
  // total_steps, where it stays: Loshchilov and Hutter, "SGDR" (2017), equation 5.
  static Schedule WarmupCosine(int64_t warmup_steps, int64_t total_steps, double final_factor = 0);
  // Multiplied by `factor` after every `every` steps.
  static Schedule Step(int64_t every, double factor);

  // The same, beginning at step `first`; before it, as at its beginning.
  Schedule StartingAt(int64_t first) const;

  // For the 0-based `step`.
  double Factor(int64_t step) const;
  absl::Status Check() const;

 private:
  enum class Kind { kConstant, kWarmupCosine, kStep };

  Kind kind_ = Kind::kConstant;
  int64_t warmup_steps_ = 0;
  int64_t total_steps_ = 0;
  int64_t every_ = 1;
  double factor_ = 1;
  int64_t first_ = 0;
};

}  // namespace gemmill
