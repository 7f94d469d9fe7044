// What ProgramString shows of a Program, and what FirstDifference finds between two.
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gemmill/runtime/program.h"
#include "gmock/gmock.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Difference(const Program& before, const Program& now) {
  const std::optional<std::string> difference = FirstDifference(before, now);
  EXPECT_EQ(FirstDifference(before, before), std::nullopt);
  EXPECT_EQ(FirstDifference(now, now), std::nullopt);
  return difference.value_or("");
}

// x scaled by a constant, then `last`.
Program Scaled(const Tensor& constant, const Op& last, int line = 7) {
  Builder b;
  const int scaled = b.Binary(BinaryFn::kMul, b.Input({2}), b.Bound(constant), {"model.cc", line});
  return b.Finish(b.Add(last, {scaled}, {"model.cc", line + 1}));
}

TEST(FirstDifferenceTest, Attributes) {
  const Tensor one = MakeTensor({1}, {});
  const Program relu = Scaled(one, op::Unary{UnaryFn::kRelu});
  EXPECT_THAT(Difference(relu, Scaled(one, op::Unary{UnaryFn::kTanh})),
              AllOf(HasSubstr("step 1: is tanh instead of relu"), HasSubstr("model.cc:8: tanh")));
  EXPECT_THAT(Difference(Scaled(one, op::Slice{0, 0, 2}), Scaled(one, op::Slice{0, 0, 1})),
              AllOf(HasSubstr("model.cc:8"), HasSubstr("Slice {axis 0, 0:1} instead of Slice {axis 0, 0:2}")));
  const auto filled = [](double value) {
    Builder b;
    return b.Finish(b.Add(op::Fill{{2}, DType::kF32, value}, {}));
  };
  EXPECT_THAT(Difference(filled(0.5), filled(0.25)), HasSubstr("Fill {0.25} instead of Fill {0.5}"));
  EXPECT_THAT(Difference(filled(0.1), filled(std::nextafter(0.1, 1))), HasSubstr("0.10000000000000002"));
  EXPECT_EQ(Difference(relu, Scaled(one, op::Unary{UnaryFn::kRelu}, 99)), "") << "other lines, the same steps";
}

TEST(FirstDifferenceTest, ConstantsAreComparedBitByBit) {
  const op::Unary relu{UnaryFn::kRelu};
  const auto difference = [&](const Tensor& before, const Tensor& now) {
    return Difference(Scaled(before, relu), Scaled(now, relu));
  };
  const Tensor one = MakeTensor({1}, {});
  EXPECT_EQ(difference(one, one), "");
  EXPECT_EQ(difference(one, MakeTensor({1}, {})), "");
  EXPECT_EQ(difference(MakeTensor({NAN}, {}), MakeTensor({NAN}, {})), "");
  EXPECT_THAT(difference(one, MakeTensor({2}, {})), AllOf(HasSubstr("step 0: input 1 is another tensor"),
                                                          HasSubstr("of 2 instead of 1"), HasSubstr("model.cc:7")));
  EXPECT_THAT(difference(MakeTensor({1, 2}, {2}), MakeTensor({1, 3}, {2})), HasSubstr("a constant of other values"));
  EXPECT_NE(difference(MakeTensor({0.0}, {}), MakeTensor({-0.0}, {})), "");
  EXPECT_THAT(difference(one, MakeTensor({1}, {1})), HasSubstr("input 1 is bound f32[1] instead of bound f32[]"));
  // Numbers that f64 does not tell apart.
  const auto of_i64 = [](int64_t value) {
    Builder b;
    return b.Finish({b.Unary(UnaryFn::kNeg, b.Bound(ValueOf(Tensor::From(std::vector<int64_t>{value}, {1}))))});
  };
  EXPECT_NE(Difference(of_i64(int64_t{1} << 60), of_i64((int64_t{1} << 60) + 1)), "");
}

TEST(FirstDifferenceTest, MoreAndFewerSteps) {
  Builder b;
  const int x = b.Input({2});
  const int y = b.Unary(UnaryFn::kRelu, x, {"model.cc", 1});
  const Program shorter = b.Finish({y});
  b.Unary(UnaryFn::kTanh, y, {"model.cc", 2});
  const Program longer = b.Finish({y});
  EXPECT_THAT(Difference(shorter, longer),
              AllOf(HasSubstr("2 steps instead of 1"), HasSubstr("new is model.cc:2: tanh")));
  EXPECT_THAT(Difference(longer, shorter),
              AllOf(HasSubstr("1 steps instead of 2"), HasSubstr("missing is model.cc:2: tanh")));
}

TEST(FirstDifferenceTest, InputsAndOutputs) {
  Builder b;
  const int x = b.Input({2});
  const int y = b.Unary(UnaryFn::kRelu, x);
  const int z = b.Unary(UnaryFn::kTanh, x);
  EXPECT_THAT(Difference(b.Finish({y}), b.Finish({z})), HasSubstr("output 0 is value 2 instead of value 1"));
  EXPECT_THAT(Difference(b.Finish({y}), b.Finish({y, z})), HasSubstr("2 outputs instead of 1"));
  const auto constant = [](double value) {
    Builder c;
    return c.Finish({c.Bound(MakeTensor({value}, {}))});
  };
  EXPECT_THAT(Difference(constant(1), constant(2)), HasSubstr("output 0 is another tensor"));
  const auto unused = [](const Shape& shape) {
    Builder c;
    c.Input(shape);
    return c.Finish({});
  };
  EXPECT_THAT(Difference(unused({1}), unused({2})), HasSubstr("input 0 is input f32[2] instead of input f32[1]"));
}

TEST(ProgramStringTest, ShowsNumbersStorageAndAttributes) {
  Builder b;
  const int x = b.Input({4, 3});
  const int weight = b.Bound(MakeTensor(std::vector<double>(6, 1), {2, 3}));
  const int y = b.Add(op::MatMul{false, true}, {x, weight}, {"model.cc", 3})[0];
  EXPECT_EQ(ProgramString(b.Finish({y})),
            "inputs: %0 input f32[4, 3]\n"
            "%2 f32[4, 2] = MatMul {trans_b} (%0 input f32[4, 3], %1 bound f32[2, 3])  model.cc:3\n"
            "outputs: %2 f32[4, 2]\n");
}

class OtherNamedOp : public NamedOp {
 public:
  using NamedOp::NamedOp;
};

TEST(FirstDifferenceTest, CustomOpsGoByClassAndName) {
  const auto custom = [](std::shared_ptr<const CustomOp> op) {
    return Scaled(MakeTensor({1}, {}), op::Custom{std::move(op)});
  };
  const Program clip = custom(std::make_shared<NamedOp>("Clip to 5"));
  EXPECT_EQ(Difference(clip, custom(std::make_shared<NamedOp>("Clip to 5"))), "");
  EXPECT_THAT(Difference(clip, custom(std::make_shared<NamedOp>("Clip to 6"))), HasSubstr("Clip to 6"));
  EXPECT_NE(Difference(clip, custom(std::make_shared<OtherNamedOp>("Clip to 5"))), "");
  EXPECT_FALSE(op::Custom{} == op::Custom{std::make_shared<NamedOp>("")});
  EXPECT_TRUE(op::Custom{} == op::Custom{});
}

}  // namespace
}  // namespace gemmill
