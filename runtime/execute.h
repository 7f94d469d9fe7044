// Execute: the only dispatcher from an op to the code that runs it on a device.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

// The kernel of `op` for these specs (outputs as Infer gives them), on the device of the specs.
absl::StatusOr<Kernel> Prepare(const Op& op, Specs inputs, Specs outputs);

// Runs a kernel in the stream's order, as Execute does.
absl::Status RunKernel(const Kernel& kernel, const KernelArguments& arguments, Stream& stream);

// Runs `op` now, in the stream's order. `outputs` are tensors of the inferred specs, which are overwritten.
absl::Status Execute(const Op& op, absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream& stream);

// As above, with outputs allocated.
absl::StatusOr<std::vector<Tensor>> Execute(const Op& op, absl::Span<const Tensor> inputs, Stream& stream);

// Whether output `o` may have the address of input `i`, when both have the same spec.
bool MayRunInPlace(const Op& op, size_t i, size_t o);

}  // namespace gemmill
