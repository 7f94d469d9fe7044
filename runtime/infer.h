// Infer: what an op makes of its inputs' specs. All shape and dtype errors of the system are made here; execution and
// gradients trust what passed.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"

namespace gemmill {

// The specs of the outputs, or InvalidArgument with what was given and what is expected.
absl::StatusOr<std::vector<Spec>> Infer(const Op& op, Specs inputs);

// NumPy's broadcast of two shapes, or an error naming both.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);

}  // namespace gemmill
