// The CUDA backend on this machine: its kernels on each usable GPU, or the reason why there is none.
#include "gemmill/runtime/cuda/unary.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <string>
#include <vector>

#include "gemmill/runtime/cuda/device.h"
#include "gemmill/runtime/cuda/prepare.h"
#include "gemmill/runtime/scalar_math.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::StartsWith;

// fn of x on the current GPU.
template <typename T>
std::vector<T> OnGpu(UnaryFn fn, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  const size_t bytes = x.size() * sizeof(T);
  void* buffer = nullptr;
  EXPECT_EQ(cudaMalloc(&buffer, bytes), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(buffer, x.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cuda::LaunchUnary(fn, DTypeOf<T>::value, buffer, buffer, static_cast<int64_t>(x.size()), nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpy(y.data(), buffer, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaFree(buffer), cudaSuccess);
  return y;
}

TEST(CudaUnary, UsableDevicesGiveTheHostsValuesAndNoneGivesAReason) {
  if (!cuda::UsableDevices().ok()) {
    EXPECT_THAT(std::string(cuda::UsableDevices().status().message()), StartsWith("no usable GPU: "));
    return;
  }
  const std::vector<float> x = {-6, -1, -0.5f, 0.125f, 1, 6};
  std::vector<bf16> narrow;
  for (float value : x) narrow.push_back(bf16(value));
  for (int device : *cuda::UsableDevices()) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(OnGpu<float>(UnaryFn::kExp, {}).size(), 0u);
    const std::vector<float> y = OnGpu(UnaryFn::kGeluErf, x);
    const std::vector<bf16> narrow_y = OnGpu(UnaryFn::kGeluErf, narrow);
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = scalar::Apply<UnaryFn::kGeluErf>(x[i]);
      EXPECT_NEAR(y[i], expected, 1e-6f * std::fabs(expected)) << x[i];
      EXPECT_EQ(narrow_y[i].bits, bf16(y[i]).bits) << x[i];
    }
  }
}

TEST(CudaUnary, RefusesIntegers) {
  EXPECT_EQ(cuda::LaunchUnary(UnaryFn::kNeg, DType::kI32, nullptr, nullptr, 1, nullptr), cudaErrorInvalidValue);
}

TEST(CudaPrepare, SaysWhichOpHasNoKernel) {
  const absl::StatusOr<Kernel> kernel = cuda::PrepareOp(op::MatMul{}, {}, {});
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(kernel.status().message()), StartsWith("MatMul has no CUDA kernel yet"));
}

}  // namespace
}  // namespace gemmill
