#include "gemmill/runtime/cuda/prepare.h"

#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/cuda/missing.h"

namespace gemmill::cuda {

absl::StatusOr<Kernel> PrepareOp(const Op& op, Specs in, Specs out) {
  return std::visit(
      [&]<typename T>(const T& one) -> absl::StatusOr<Kernel> {
        if constexpr (WithoutKernel::kHas<T>) {
          return absl::UnimplementedError(absl::StrCat(OpName(op), " has no CUDA kernel yet: run it on the CPU"));
        } else {
          return Prepare(one, in, out);
        }
      },
      op);
}

}  // namespace gemmill::cuda
