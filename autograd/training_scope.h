// TrainingScope: training mode, and what random ops draw from while it holds.
#pragma once

#include <cstdint>

#include "gemmill/autograd/var.h"

namespace gemmill {

// What random ops of a training step draw from. The mask of a Dropout depends on these and on the position of a sample
// in the global batch, never on how the batch was split.
struct RandomInputs {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;  // the position in the global batch of this micro-batch's first sample
  int64_t samples = 0;       // of this micro-batch; 0 takes dimension 0 of what is dropped
};

// The same as Vars: inside a Trace they are inputs, so that a recorded step draws anew in every run.
struct RandomVars {
  Var key = {};           // i64 [2]: seed, step
  Var first_sample = {};  // i64 []
  int64_t samples = 0;
};
RandomVars MakeRandomVars(const RandomInputs& random, Device device = {});

// Training mode: Dropout drops. Outside of any TrainingScope ops are in evaluation mode, and Dropout is the identity.
class TrainingScope {
 public:
  explicit TrainingScope(const RandomInputs& random, Device device = {});
  explicit TrainingScope(RandomVars random);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;
  TrainingScope& operator=(const TrainingScope&) = delete;

 private:
  friend const RandomVars* TrainingRandom();
  RandomVars random_;
  const TrainingScope* before_;
};
// The innermost TrainingScope's; null in evaluation mode.
const RandomVars* TrainingRandom();

}  // namespace gemmill
