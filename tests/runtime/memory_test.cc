// Sizes that no machine has: every way to ask for them ends in a ResourceExhausted that names what there is.
#include "gemmill/runtime/memory.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmill/runtime/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kHuge = int64_t{1} << 50;

void ExpectExhausted(const absl::Status& status, int64_t bytes) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(absl::StrCat("no memory for ", bytes, " bytes on cpu")),
                    HasSubstr(absl::StrCat("which has ", TotalBytes(Device::Cpu()), " in all"))));
}

TEST(MemoryTest, TensorsBeyondTheMachine) {
  EXPECT_GT(TotalBytes(Device::Cpu()), 0);
  ExpectExhausted(AllocateBytes(kHuge, Device::Cpu()).status(), kHuge);
  ExpectExhausted(Tensor::Empty({{kHuge}}).status(), 4 * kHuge);
  ExpectExhausted(Tensor::Zeros({{kHuge, 2}}).status(), 8 * kHuge);
}

TEST(MemoryTest, WhatIsInUseCounts) {
  const Tensor held = Tensor::Empty({{1 << 20}, DType::kU8}).value();
  const int64_t most = TotalBytes(Device::Cpu()) - BytesInUse(Device::Cpu());
  EXPECT_TRUE(CheckFits(most, Device::Cpu()).ok());
  EXPECT_LE(most, TotalBytes(Device::Cpu()) - (1 << 20));
  ExpectExhausted(AllocateBytes(most + 1, Device::Cpu()).status(), most + 1);
}

TEST(MemoryTest, ReadingATensorThatTheHostHasNoRoomFor) {
  char byte = 0;
  const Tensor view = Tensor::View(&byte, {{kHuge}, DType::kU8});
  ExpectExhausted(view.ToVector<uint8_t>().status(), kHuge);
  ExpectExhausted(view.ToDoubles().status(), kHuge);
}

TEST(MemoryTest, ZerosAreZero) {
  // Of memory that was something else before.
  { const Tensor ones = Tensor::From(std::vector<int64_t>(20000, -1), {20000}).value(); }
  EXPECT_THAT(Tensor::Zeros({{20000}, DType::kI64})->ToVector<int64_t>().value(), testing::Each(0));
  EXPECT_EQ(Tensor::Zeros({{3, 0}})->ToVector<float>()->size(), 0u);
}

}  // namespace
}  // namespace gemmill
