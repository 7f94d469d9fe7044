#include <variant>

#include "gemmill/runtime/cuda/missing.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

template <typename... Ops>
constexpr int64_t CountListed(const std::variant<Ops...>*) {
  return (int64_t{cuda::WithoutKernel::kHas<Ops>} + ...);
}

// Lower the number when an op gets its CUDA kernel; never raise it for one that exists.
TEST(CudaMissing, OnlyShrinks) { EXPECT_EQ(cuda::WithoutKernel::kSize, 42); }

TEST(CudaMissing, ListsEachOpOnce) {
  EXPECT_EQ(CountListed(static_cast<const Op*>(nullptr)), cuda::WithoutKernel::kSize);
}

}  // namespace
}  // namespace gemmill
