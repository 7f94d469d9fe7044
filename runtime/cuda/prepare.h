// The GPU's kernels, one Prepare per op, as in runtime/cpu. Specs are as Infer relates them. Kernels are launched on
// the calling thread's stream of the device; an error of theirs surfaces at a later verb.
#pragma once

#include "absl/status/statusor.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"

namespace gemmill::cuda {

// elementwise.cc
absl::StatusOr<Kernel> Prepare(const op::Unary& op, Specs in, Specs out);

// The kernel of any op; Unimplemented for those that missing.h lists. An op with neither does not compile.
absl::StatusOr<Kernel> PrepareOp(const Op& op, Specs in, Specs out);

}  // namespace gemmill::cuda
