// Elementwise ops: Unary.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/cuda/prepare.h"
#include "gemmill/runtime/cuda/status.h"
#include "gemmill/runtime/cuda/unary.h"

namespace gemmill::cuda {

absl::StatusOr<Kernel> Prepare(const op::Unary& op, Specs in, Specs) {
  const Spec& x = in[0];
  if (!IsFloating(x.dtype)) {
    return absl::UnimplementedError(
        absl::StrCat(FnName(op.fn), " of ", DTypeName(x.dtype), " has no CUDA kernel yet: run it on the CPU"));
  }
  return Kernel{[fn = op.fn, dtype = x.dtype, n = x.num_elements(), device = x.device.index](
                    const KernelArguments& arguments, Stream&) -> absl::Status {
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess) {
      error = LaunchUnary(fn, dtype, arguments.inputs[0], arguments.outputs[0], n, cudaStreamPerThread);
    }
    return ToStatus(error, FnName(fn));
  }};
}

}  // namespace gemmill::cuda
