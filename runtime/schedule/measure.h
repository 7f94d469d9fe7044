// How long an op takes on this machine, by itself.
#pragma once

#include "absl/status/statusor.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"

namespace gemmill {

struct Timing {
  double best = 0;  // seconds of one run
  double median = 0;
};

// Of `op` on buffers of its own with these specs (outputs as Infer gives them), after a warm-up: at least 3 samples,
// and more while they take no longer than about `seconds` in all. Floating inputs hold 0.5, others 0.
absl::StatusOr<Timing> MeasureOp(const Op& op, Specs inputs, Specs outputs, double seconds = 0.2);

}  // namespace gemmill
