#include "gemmill/runtime/schedule/roofline.h"

#include <string>
#include <vector>

#include "gemmill/runtime/schedule/measure.h"
#include "gmock/gmock.h"
#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RooflineTest, WhatBounds) {
  const Roofline roofline{.flops_per_second = 100, .bytes_per_second = 10};
  EXPECT_DOUBLE_EQ(roofline.ridge(), 10);
  EXPECT_TRUE(roofline.MemoryBound(/*flops=*/99, /*bytes=*/10));
  EXPECT_FALSE(roofline.MemoryBound(/*flops=*/100, /*bytes=*/10));
  EXPECT_DOUBLE_EQ(roofline.Seconds(/*flops=*/50, /*bytes=*/10), 1);     // that of the bytes
  EXPECT_DOUBLE_EQ(roofline.Seconds(/*flops=*/1000, /*bytes=*/10), 10);  // that of the arithmetic
}

TEST(RooflineTest, GpusByName) {
  const std::vector<std::string> names = RooflineDevices();
  EXPECT_THAT(names, testing::ElementsAre("cpu", "a100", "h100", "h200", "b200"));
  for (size_t i = 1; i < names.size(); ++i) {
    for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
      const Roofline roofline = ValueOf(RooflineOf(names[i], dtype));
      EXPECT_EQ(roofline.device, names[i]);
      EXPECT_EQ(roofline.dtype, dtype);
      EXPECT_GT(roofline.multiprocessors, 100);
      EXPECT_GT(roofline.tile_long, 0);
    }
    // Tensor cores do bf16 many times faster than CUDA cores do f32.
    EXPECT_GT(ValueOf(RooflineOf(names[i], DType::kBf16)).ridge(),
              8 * ValueOf(RooflineOf(names[i], DType::kF32)).ridge());
  }
  // 989.5 TFLOP/s over 3.35 TB/s.
  EXPECT_NEAR(ValueOf(RooflineOf("h100", DType::kBf16)).ridge(), 295.4, 0.1);
}

TEST(RooflineTest, Refuses) {
  EXPECT_THAT(std::string(RooflineOf("h900", DType::kF32).status().message()),
              AllOf(HasSubstr("\"h900\""), HasSubstr("h100"), HasSubstr("cpu")));
  EXPECT_THAT(std::string(RooflineOf("h100", DType::kI64).status().message()), HasSubstr("i64"));
}

TEST(RooflineTest, ThisMachineIsMeasuredOnce) {
  const WithThreads one(1);
  const Roofline first = ValueOf(RooflineOf("cpu", DType::kF32));
  EXPECT_GT(first.flops_per_second, 0);
  EXPECT_GT(first.bytes_per_second, 0);
  EXPECT_EQ(first.multiprocessors, 0);
  const Roofline second = ValueOf(RooflineOf("cpu", DType::kF32));
  EXPECT_EQ(first.flops_per_second, second.flops_per_second);
  EXPECT_EQ(first.bytes_per_second, second.bytes_per_second);
}

TEST(MeasureTest, IndicesAmongTheInputs) {
  const Spec matrix{{8, 8}, DType::kF32};
  const Spec index{{4}, DType::kI64};
  const Spec rows{{4, 8}, DType::kF32};
  const Spec in[] = {matrix, index};
  const Timing timing = ValueOf(MeasureOp(op::GatherRows{}, in, {&rows, 1}, 0.001));
  EXPECT_GT(timing.best, 0);
  EXPECT_LE(timing.best, timing.median);
}

TEST(MeasureTest, MoreThanThereIs) {
  const Spec huge{{int64_t{1} << 50}, DType::kF32};
  EXPECT_EQ(MeasureOp(op::Unary{UnaryFn::kRelu}, {&huge, 1}, {&huge, 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace gemmill
