#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

// (a, b of one f32 shape) -> (a + b, a - b); an error where b holds a negative value.
class SumAndDifference : public CustomOp {
 public:
  std::string Name() const override { return "sum and difference"; }

  absl::StatusOr<std::vector<Spec>> Infer(absl::Span<const Spec> inputs) const override {
    if (inputs.size() != 2 || inputs[0] != inputs[1]) return InvalidArgument("takes two inputs of one spec");
    return std::vector<Spec>{inputs[0], inputs[0]};
  }

  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    const float* a = static_cast<const float*>(inputs[0].data());
    const float* b = static_cast<const float*>(inputs[1].data());
    for (int64_t i = 0; i < inputs[0].num_elements(); ++i) {
      if (b[i] < 0) return InvalidArgument("b[", i, "] is negative");
      static_cast<float*>(outputs[0].data())[i] = a[i] + b[i];
      static_cast<float*>(outputs[1].data())[i] = a[i] - b[i];
    }
    return absl::OkStatus();
  }
};

TEST(Custom, RunsOnTensors) {
  const op::Custom op{std::make_shared<SumAndDifference>()};
  const std::vector<Tensor> outputs = RunOp(op, {MakeTensor({1, 2}, {2, 1}), MakeTensor({3, 5}, {2, 1})});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape(), (Shape{2, 1}));
  EXPECT_THAT(Doubles(outputs[0]), testing::ElementsAre(4, 7));
  EXPECT_THAT(Doubles(outputs[1]), testing::ElementsAre(-2, -3));
}

TEST(Custom, ErrorsNameTheOp) {
  const op::Custom op{std::make_shared<SumAndDifference>()};
  const absl::Status of_run = TryOp(op, {MakeTensor({1, 2}, {2}), MakeTensor({3, -5}, {2})}).status();
  EXPECT_THAT(std::string(of_run.message()), testing::HasSubstr("sum and difference: b[1] is negative"));
  const absl::Status of_infer = TryOp(op, {MakeTensor({1, 2}, {2})}).status();
  EXPECT_EQ(of_infer.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gemmill
