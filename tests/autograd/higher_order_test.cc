// Gradients of gradients, and first gradients of whole models, against formulas and finite differences in f64.
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using Function = std::function<Var(const Var& x)>;

Var GradOf(const Var& loss, const Var& x) { return Grad(loss, {x}, {.differentiable = true})[0]; }

// The `order`-th derivative of an elementwise function.
std::vector<double> Derivative(const Function& fn, const std::vector<double>& points, int order) {
  const Var x = Parameter(points, {static_cast<int64_t>(points.size())}, DType::kF64);
  Var y = fn(x);
  for (int i = 0; i < order; ++i) y = GradOf(Sum(y), x);
  return Read(y);
}

// d loss(x) . direction by central differences.
double Slope(const Function& loss, const std::vector<double>& at, const std::vector<double>& direction,
             const Shape& shape) {
  constexpr double kStep = 1e-5;
  const auto value = [&](double t) {
    std::vector<double> moved = at;
    for (size_t i = 0; i < at.size(); ++i) moved[i] += t * direction[i];
    return ReadOne(loss(Parameter(moved, shape, DType::kF64)));
  };
  return (value(kStep) - value(-kStep)) / (2 * kStep);
}

// Grad of `loss`, and Grad of (Grad . direction), each along another direction.
void CheckTwoOrders(const Function& loss, const Shape& shape, uint32_t seed) {
  const int64_t count = NumElements(shape);
  const std::vector<double> at = RandomDoubles(count, -1, 1, seed);
  const std::vector<double> first = RandomDoubles(count, -1, 1, seed + 1);
  const std::vector<double> second = RandomDoubles(count, -1, 1, seed + 2);
  const auto along = [&](const Var& x) { return Sum(GradOf(loss(x), x) * Constant(first, shape, DType::kF64)); };
  const Var x = Parameter(at, shape, DType::kF64);
  EXPECT_NEAR(ReadOne(along(x)), Slope(loss, at, first, shape), 1e-7);
  const Var curvature = Sum(GradOf(along(x), x) * Constant(second, shape, DType::kF64));
  EXPECT_NEAR(ReadOne(curvature), Slope(along, at, second, shape), 1e-6);
}

TEST(HigherOrderTest, ThirdDerivativeOfAFourthPower) {
  const std::vector<double> points{-1.5, 0.5, 2};
  for (const Function& fn :
       {Function([](const Var& x) { return x * x * x * x; }), Function([](const Var& x) { return Pow(x, 4.0); })}) {
    EXPECT_THAT(Derivative(fn, points, 3), testing::Pointwise(testing::DoubleNear(1e-9), {-36.0, 12.0, 48.0}));
    EXPECT_THAT(Derivative(fn, points, 4), testing::Pointwise(testing::DoubleNear(1e-9), {24.0, 24.0, 24.0}));
  }
}

TEST(HigherOrderTest, ThirdDerivativeOfGelu) {
  const std::vector<double> points{-3, -1, -0.25, 0, 0.5, 2};
  std::vector<double> expected;
  for (double x : points) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    expected.push_back(density * (x * x * x - 4 * x));
  }
  EXPECT_THAT(Derivative([](const Var& x) { return Gelu(x); }, points, 3),
              testing::Pointwise(testing::DoubleNear(1e-9), expected));
}

TEST(HigherOrderTest, ThirdDerivativeOfEveryOtherFunction) {
  constexpr double kStep = 1e-5;
  const std::vector<double> points{0.4, 0.9, 1.7};
  for (int i = 0; i < kUnaryFnCount; ++i) {
    const UnaryFn fn = static_cast<UnaryFn>(i);
    const auto function = [&](const Var& x) { return Unary(fn, x) + x * x * x; };
    const std::vector<double> third = Derivative(function, points, 3);
    for (size_t p = 0; p < points.size(); ++p) {
      const double above = Derivative(function, {points[p] + kStep}, 2)[0];
      const double below = Derivative(function, {points[p] - kStep}, 2)[0];
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(third[p], expected, 1e-6 * (1 + std::fabs(expected))) << FnName(fn) << " at " << points[p];
    }
  }
}

// Wherever the limits exist. (Log, sqrt and rsqrt have none below 0, sin and cos none at infinity.)
TEST(HigherOrderTest, EveryFunctionFarFromZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kUnaryFnCount; ++i) {
    const UnaryFn fn = static_cast<UnaryFn>(i);
    const bool periodic = fn == UnaryFn::kSin || fn == UnaryFn::kCos;
    const bool positive = fn == UnaryFn::kLog || fn == UnaryFn::kSqrt || fn == UnaryFn::kRsqrt;
    const bool lines = fn == UnaryFn::kNeg || fn == UnaryFn::kAbs || fn == UnaryFn::kRelu;
    for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
      for (double at : {1e4, 1e30, kInfinity, -1e4, -1e30, -kInfinity}) {
        if ((periodic && std::isinf(at)) || (positive && at < 0)) continue;
        SCOPED_TRACE(absl::StrCat(FnName(fn), " of ", DTypeName(dtype), " at ", at));
        const Var x = Parameter({at}, {1}, dtype);
        const Var first = GradOf(Sum(Unary(fn, x)), x);
        EXPECT_FALSE(std::isnan(ReadOne(first)));
        if (lines) continue;
        const Var second = GradOf(Sum(first), x);
        if (fn == UnaryFn::kExp && at > 0) {
          EXPECT_EQ(ReadOne(second), kInfinity);
        } else if (!periodic) {
          EXPECT_NEAR(ReadOne(second), 0, 1e-5);
          EXPECT_NEAR(ReadOne(GradOf(Sum(second), x)), 0, 1e-5);
        }
      }
    }
  }
}

// The derivative of a gradient by what came into it is the derivative itself.
TEST(HigherOrderTest, ScaledGradientsFarFromZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (UnaryFn fn : {UnaryFn::kGeluErf, UnaryFn::kGeluTanh, UnaryFn::kSilu, UnaryFn::kSoftplus}) {
    const Var x = Parameter({-kInfinity, -1e30, -1e4, 1e4, 1e30, kInfinity}, {6});
    const Var scale = Parameter({2, 2, 2, 2, 2, 2}, {6});
    ExpectVar(GradOf(Sum(GradOf(Sum(Unary(fn, x) * scale), x)), scale), {0, 0, 0, 1, 1, 1});
  }
}

TEST(HigherOrderTest, CrossEntropy) {
  const Var labels = Constant({2, -100, 0, 3}, {4}, DType::kI64);
  for (float smoothing : {0.0f, 0.2f}) {
    CheckTwoOrders([&](const Var& x) { return CrossEntropySum(x * 3.0, labels, {.label_smoothing = smoothing}).sum; },
                   {4, 4}, 10);
  }
}

TEST(HigherOrderTest, CrossEntropyOfLargeLogitsAndOfRowsThatAreLeftOut) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const Var x = Parameter({1e8, 1e8, -kInfinity, -kInfinity, nan, 0, -kInfinity, -kInfinity}, {4, 2});
  const Var labels = Constant({0, -100, -100, 1}, {4}, DType::kI64);
  const Var slope = GradOf(CrossEntropySum(x, labels).sum, x);
  ExpectVar(slope, {-0.5, 0.5, 0, 0, 0, 0, 0, 0});
  const Var weights = Constant({1, 0, 1, 0, 1, 0, 1, 0}, {4, 2});
  ExpectVar(GradOf(Sum(slope * weights), x), {0.25, -0.25, 0, 0, 0, 0, 0, 0});
}

TEST(HigherOrderTest, CrossEntropysLogSumExp) {
  const Var labels = Constant({0, -100, 1}, {3}, DType::kI64);
  const auto logsumexp = [&](const Var& x) { return Apply(op::CrossEntropy{}, {x, labels}, Caller::Here())[2]; };
  CheckTwoOrders([&](const Var& x) { return Sum(logsumexp(x * 2.0) * logsumexp(x)); }, {3, 4}, 11);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Var x = Parameter({1e8, 1e8, -kInfinity, -kInfinity, 1e4, 1e4 + 1}, {3, 2});
  ExpectVar(GradOf(Sum(logsumexp(x)), x), {0.5, 0.5, 0, 0, 0.26894142, 0.73105858});
}

TEST(HigherOrderTest, SoftmaxOfEitherKindAndLogSumExp) {
  const Var weights = Constant(RandomDoubles(12, -1, 1, 5), {3, 4}, DType::kF64);
  CheckTwoOrders([&](const Var& x) { return Sum(Softmax(x * 2.0) * weights); }, {3, 4}, 20);
  CheckTwoOrders([&](const Var& x) { return Sum(LogSoftmax(x, 0) * weights); }, {3, 4}, 21);
  CheckTwoOrders([&](const Var& x) { return Sum(LogSumExp(x * 2.0) * LogSumExp(x)); }, {3, 4}, 22);
}

TEST(HigherOrderTest, NormsAndVariance) {
  const Var weights = Constant(RandomDoubles(12, -1, 1, 6), {3, 4}, DType::kF64);
  CheckTwoOrders([&](const Var& x) { return Sum(LayerNormalize(x) * weights); }, {3, 4}, 30);
  CheckTwoOrders([&](const Var& x) { return Sum(RmsNormalize(x) * weights); }, {3, 4}, 31);
  CheckTwoOrders([&](const Var& x) { return Sum(Variance(x, {{1}}) * Variance(x, {{1}})); }, {3, 4}, 32);
}

TEST(HigherOrderTest, MovedParts) {
  const Var index = Constant({1, 0, 1}, {3}, DType::kI64);
  CheckTwoOrders(
      [&](const Var& x) {
        const Var rows = GatherRows(Transpose(x), index);
        const Var added = ScatterAddRows(rows * rows, index, 3);
        const Var y = Concat({Slice(added, 0, 1, 3), Reshape(x, {3, 2})}, 0);
        return Sum(y * y * y);
      },
      {2, 3}, 40);
}

// An MLP with a norm, by its first weight.
TEST(HigherOrderTest, AWholeModel) {
  const Var inputs = Constant(RandomDoubles(5 * 3, -1, 1, 7), {5, 3}, DType::kF64);
  const Var second = Parameter(RandomDoubles(6 * 4, -1, 1, 8), {4, 6}, DType::kF64);
  const Var bias = Parameter(RandomDoubles(6, -1, 1, 9), {6}, DType::kF64);
  const Var labels = Constant({0, 3, 1, 2, 2}, {5}, DType::kI64);
  CheckTwoOrders(
      [&](const Var& x) {
        const Var hidden = Gelu(LayerNormalize(MatMul(inputs, x, {.trans_b = true}) + bias));
        return CrossEntropySum(MatMul(hidden, second, {.trans_b = true}), labels).sum;
      },
      {6, 3}, 50);
}

TEST(HigherOrderTest, WithoutTheOptionGradientsAreConstants) {
  const Var x = Parameter({2}, {});
  EXPECT_FALSE(Grad(x * x * x, {x})[0].requires_grad());
  EXPECT_FALSE(Grad(Grad(x * x * x, {x})[0], {x})[0].ok());
  const Var slope = GradOf(x * x * x, x);
  EXPECT_TRUE(slope.requires_grad());
  const NoGradScope no_grad;
  EXPECT_FALSE(Grad(slope, {x})[0].requires_grad());
}

// A penalty on the gradient is part of a loss like any other.
TEST(HigherOrderTest, AGradientInsideALoss) {
  const Var x = Parameter({2}, {});
  const Var slope = GradOf(x * x * x, x);
  ExpectVar(Grad(slope * slope + x, {x})[0], {36.0 * 8 + 1});
}

}  // namespace
}  // namespace gemmill
