#include "gemmill/runtime/cuda/unary.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cuda {
namespace {

// What a stored T is computed in.
template <typename T>
struct ComputedIn {
  using type = T;
};
template <>
struct ComputedIn<bf16> {
  using type = float;
};

template <UnaryFn kFn, typename T>
__global__ void UnaryKernel(const T* x, T* y, int64_t n) {
  using C = typename ComputedIn<T>::type;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    y[i] = static_cast<T>(scalar::Apply<kFn>(static_cast<C>(x[i])));
  }
}

template <UnaryFn kFn, typename T>
cudaError_t Launch(const void* x, void* y, int64_t n, cudaStream_t stream) {
  constexpr int64_t kThreads = 256;
  constexpr int64_t kMostBlocks = 1 << 16;  // the loop's stride covers the rest
  if (n == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks));
  UnaryKernel<kFn, T><<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), n);
  return cudaGetLastError();
}

using Launcher = cudaError_t (*)(const void* x, void* y, int64_t n, cudaStream_t stream);

template <typename T, size_t... kFns>
Launcher LauncherOf(UnaryFn fn, std::index_sequence<kFns...>) {
  constexpr Launcher kLaunchers[] = {Launch<static_cast<UnaryFn>(kFns), T>...};
  return kLaunchers[static_cast<size_t>(fn)];
}

}  // namespace

cudaError_t LaunchUnary(UnaryFn fn, DType dtype, const void* x, void* y, int64_t n, cudaStream_t stream) {
  constexpr std::make_index_sequence<kUnaryFnCount> kAll{};
  switch (dtype) {
    case DType::kF32:
      return LauncherOf<float>(fn, kAll)(x, y, n, stream);
    case DType::kBf16:
      return LauncherOf<bf16>(fn, kAll)(x, y, n, stream);
    case DType::kF64:
      return LauncherOf<double>(fn, kAll)(x, y, n, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gemmill::cuda
