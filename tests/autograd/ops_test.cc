// What the public ops say beyond the runtime's: numbers beside Vars, negative axes, ties, empty and infinite rows.
#include "gemmill/autograd/ops.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(OpsTest, NumbersTakeTheOtherOperandsDType) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    const Var x = Constant({6, 9}, {2}, dtype);
    for (const Var& y : {x * 2.0, 2.0 * x, x + 3.0, x - 1.0, 100.0 - x, x / 3.0, Maximum(x, 7.0)}) {
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_TRUE(y.ok()) << y.status();
    }
    EXPECT_THAT(Read(x / 3.0), ElementsAre(2, 3)) << DTypeName(dtype);
    EXPECT_THAT(Read(100.0 - x), ElementsAre(94, 91)) << DTypeName(dtype);
    EXPECT_THAT(Read(Less(7.0, x)), ElementsAre(0, 1)) << DTypeName(dtype);
    EXPECT_THAT(Read(Where(Equal(x, 6.0), x, 0.0)), ElementsAre(6, 0)) << DTypeName(dtype);
  }
}

TEST(OpsTest, DTypesAreNotMixed) {
  const Var x = Constant({1}, {1});
  const Var y = Constant({1}, {1}, DType::kBf16);
  EXPECT_THAT(Message(x + y), AllOf(HasSubstr("f32[1]"), HasSubstr("bf16[1]"), HasSubstr("Cast")));
}

TEST(OpsTest, ComparisonsHaveNoGradient) {
  const Var x = Parameter({-1, 2}, {2});
  EXPECT_FALSE(Greater(x, 0.0).requires_grad());
  EXPECT_FALSE(Cast(Greater(x, 0.0), DType::kF32).requires_grad());
  EXPECT_FALSE(ArgMax(x).requires_grad());
  const Var loss = Sum(Where(Greater(x, 0.0), x * x, 0.0));
  ExpectVar(Grad(loss, {x})[0], {0, 4});
  EXPECT_THAT(Message(Grad(Sum(Cast(Less(x, 0.0), DType::kF32)), {x})[0]), HasSubstr("depends on no parameter"));
}

TEST(OpsTest, MaximumHalvesTies) {
  const Var a = Parameter({1, 2, 3}, {3});
  const Var b = Parameter({2, 2, 2}, {3});
  const std::vector<Var> maximum = Grad(Sum(Maximum(a, b)), {a, b});
  ExpectVar(maximum[0], {0, 0.5, 1});
  ExpectVar(maximum[1], {1, 0.5, 0});
  ExpectVar(Grad(Sum(Minimum(a, b)), {a})[0], {1, 0.5, 0});
}

TEST(OpsTest, MaxSharesTies) {
  const Var x = Parameter({1, 3, 3, 2, 2, 2}, {2, 3});
  ExpectVar(Grad(Sum(Max(x, {{1}})), {x})[0], {0, 0.5, 0.5, 1.0 / 3, 1.0 / 3, 1.0 / 3});
  ExpectVar(Grad(Min(x), {x})[0], {1, 0, 0, 0, 0, 0});
}

TEST(OpsTest, AbsAndReluAreFlatAtZero) {
  const Var x = Parameter({-2, 0, 2}, {3});
  ExpectVar(Grad(Sum(Abs(x)), {x})[0], {-1, 0, 1});
  ExpectVar(Grad(Sum(Relu(x)), {x})[0], {0, 0, 1});
}

TEST(OpsTest, PowAtZero) {
  const Var a = Parameter({0, 0, 2}, {3});
  const Var b = Parameter({0, 2, 3}, {3});
  const std::vector<Var> gradients = Grad(Sum(Pow(a, b)), {a, b});
  ExpectVar(gradients[0], {0, 0, 12});
  ExpectVar(gradients[1], {0, 0, 8 * std::log(2.0)});
}

TEST(OpsTest, VarianceOfOneElementIsZero) {
  const Var x = Parameter({5, -3}, {2, 1});
  const Var variance = Variance(x, {{1}});
  ExpectVar(variance, {0, 0});
  ExpectVar(Grad(Sum(variance), {x})[0], {0, 0});
  // The mean of squares about the mean, without the cancellation of mean(x^2) - mean(x)^2.
  ExpectVar(Variance(Constant({40000, 40001, 40002, 40003}, {4})), {1.25});
}

TEST(OpsTest, ReductionsOfNothing) {
  const Var x = Parameter({}, {2, 0});
  ExpectVar(Sum(x, {{1}}), {0, 0});
  ExpectVar(Mean(x, {{1}}), {kNan, kNan});
  ExpectVar(Mean(x), {kNan});
  EXPECT_THAT(Message(Max(x, {{1}})), HasSubstr("f32[2, 0]"));
  const Var gradient = Grad(Sum(x), {x})[0];
  EXPECT_EQ(gradient.shape(), (Shape{2, 0}));
  EXPECT_TRUE(Grad(Sum(Mean(x, {{1}})), {x})[0].ok());
}

TEST(OpsTest, DivisionByZero) {
  ExpectVar(Constant({1, -1, 0}, {3}) / 0.0, {kInfinity, -kInfinity, kNan});
  EXPECT_THAT(Message(Constant({1}, {1}, DType::kI64) / 0.0), HasSubstr(Place(__FILE__, __LINE__)));
}

TEST(OpsTest, LogSumExpTails) {
  const Var x = Parameter({1000, 1000, -1000, -1000, 0, -30, -kInfinity, 2}, {4, 2});
  const Var y = LogSumExp(x);
  ExpectVar(y, {1000 + std::log(2.0), -1000 + std::log(2.0), std::log1p(std::exp(-30.0)), 2}, 1e-7, 1e-12);
  const double tail = std::exp(-30.0);
  ExpectVar(Grad(Sum(y), {x})[0], {0.5, 0.5, 0.5, 0.5, 1, tail, 0, 1}, 1e-5, 1e-20);
  const Var wide = Constant({0, -30}, {2}, DType::kF64);
  ExpectVar(LogSumExp(wide), {std::log1p(tail)}, 1e-3, 1e-15);
}

TEST(OpsTest, LogSumExpOfARowOfMinusInfinity) {
  const Var x = Parameter({-kInfinity, -kInfinity, 1, 2}, {2, 2});
  const Var y = LogSumExp(x);
  ExpectVar(y, {-kInfinity, 2 + std::log1p(std::exp(-1.0))});
  const double p = 1 / (1 + std::exp(1.0));
  ExpectVar(Grad(Sum(y), {x})[0], {0, 0, p, 1 - p}, 1e-5);
}

TEST(OpsTest, LogSumExpOfInfinitiesAndNan) {
  const Var x = Constant({kInfinity, 0, -kInfinity, kInfinity, -kInfinity, 2, kNan, kInfinity}, {4, 2});
  ExpectVar(LogSumExp(x), {kInfinity, kInfinity, 2, kNan});
}

// The gradient is the softmax, also where the values are too large for a difference of 1 from their logsumexp.
TEST(OpsTest, LogSumExpOfLargeValues) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Var x = Parameter({1e8, 1e8, 1e4, 1e4 + 1}, {2, 2}, dtype);
    const Var y = LogSumExp(x);
    const Var slope = Grad(Sum(y), {x}, {.differentiable = true})[0];
    ExpectVar(slope, {0.5, 0.5, 0.26894142, 0.73105858}, 3e-7);
    const Var weights = Constant({1, 0, 1, 0}, {2, 2}, dtype);
    ExpectVar(Grad(Sum(slope * weights), {x})[0], {0.25, -0.25, 0.19661193, -0.19661193}, 3e-7);
  }
}

TEST(OpsTest, LogSumExpAlongAnotherAxis) {
  const Var x = Constant({0, 1, 0, 3}, {2, 2});
  ExpectVar(LogSumExp(x, 0), {std::log(2.0), std::log(std::exp(1) + std::exp(3))});
  ExpectVar(LogSumExp(x, -2), {std::log(2.0), std::log(std::exp(1) + std::exp(3))});
}

TEST(OpsTest, ARowOfMinusInfinityLeavesOtherRowsAlone) {
  const Var x = Parameter({-kInfinity, -kInfinity, 1, 2}, {2, 2});
  const Var weights = Constant({1, 2, 3, 5}, {2, 2});
  const double p = 1 / (1 + std::exp(1.0));
  ExpectVar(Softmax(x), {0, 0, p, 1 - p});
  const double slope = 2 * p * (1 - p);
  ExpectVar(Grad(Sum(Softmax(x) * weights), {x})[0], {0, 0, -slope, slope}, 1e-5);
}

TEST(OpsTest, AxesBelowZeroCountFromTheLast) {
  const Var x = Constant({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  EXPECT_EQ(Sum(x, {{-1}}).shape(), (Shape{1, 2}));
  EXPECT_EQ(Sum(x, {{-1}, true}).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(Permute(x, {-1, 0, -2}).shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(Transpose(x).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(Concat({x, x}, -2).shape(), (Shape{1, 4, 3}));
  ExpectVar(Slice(x, -1, -2, 3), {2, 3, 5, 6});
  ExpectVar(Slice(x, -1, 0, 3, 2), {1, 3, 4, 6});
  ExpectVar(ArgMax(x, -2), {1, 1, 1});
  ExpectVar(Softmax(Constant({0, 0, 0, 0}, {2, 2}), 0), {0.5, 0.5, 0.5, 0.5});
}

TEST(OpsTest, ReshapeFillsInOneSize) {
  const Var x = Constant({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(Reshape(x, {3, -1}).shape(), (Shape{3, 2}));
  EXPECT_EQ(Reshape(x, {-1}).shape(), (Shape{6}));
  EXPECT_FALSE(Reshape(x, {-1, -1}).ok());
  EXPECT_FALSE(Reshape(x, {-1, 0}).ok());
  EXPECT_FALSE(Reshape(x, {5}).ok());
}

TEST(OpsTest, CrossEntropySumGivesSumAndCount) {
  const Var logits = Parameter({0, 0, 0, 0}, {2, 2});
  const SumAndCount parts = CrossEntropySum(logits, Constant({1, -100}, {2}, DType::kI64));
  EXPECT_NEAR(ReadOne(parts.sum), std::log(2.0), 1e-6);
  EXPECT_EQ(ReadOne(parts.count), 1);
  ExpectVar(Grad(parts.sum, {logits})[0], {0.5, -0.5, 0, 0});
}

TEST(OpsTest, SameNumbersEverywhere) {
  EXPECT_EQ(Fill({2, 2}, 1.5).shape(), (Shape{2, 2}));
  ExpectVar(Iota(3), {0, 1, 2});
  ExpectVar(OneHot(Constant({1, 0}, {2}, DType::kI32), 2), {0, 1, 1, 0});
  ExpectVar(BroadcastTo(Constant({1, 2}, {2, 1}), {2, 2}), {1, 1, 2, 2});
  ExpectVar(ScatterAddRows(Constant({1, 2, 3}, {3, 1}), Constant({1, 1, 0}, {3}, DType::kI64), 2), {3, 3});
}

TEST(OpsTest, NumbersThatAnIntegerCannotHoldAreErrors) {
  const auto message = [](DType dtype, double number) { return Message(Constant({1}, {1}, dtype) + number); };
  EXPECT_THAT(message(DType::kI64, 0.5), AllOf(HasSubstr("ops_test.cc:"), HasSubstr("0.5 is no i64")));
  EXPECT_THAT(message(DType::kU8, -1), HasSubstr("-1 is no u8"));
  EXPECT_THAT(message(DType::kU8, 256), HasSubstr("256 is no u8"));
  EXPECT_THAT(message(DType::kI32, 3e9), HasSubstr("3e+09 is no i32"));
  EXPECT_THAT(message(DType::kI64, 9223372036854775808.0), HasSubstr("is no i64"));
  EXPECT_THAT(message(DType::kI64, NAN), HasSubstr("nan is no i64"));
  EXPECT_THAT(Message(Fill({2}, INFINITY, DType::kI32)), HasSubstr("inf is no i32"));
  ExpectVar(Constant({1}, {1}, DType::kI64) + -9223372036854775808.0, {-9223372036854775807.0});
  ExpectVar(Constant({1}, {1}, DType::kU8) + 254.0, {255});
}

}  // namespace
}  // namespace gemmill
