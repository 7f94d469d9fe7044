#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64};

std::vector<double> Reference(const std::vector<double>& x, int64_t n, bool log) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(n)) {
    const auto begin = x.begin() + static_cast<int64_t>(row);
    const double max = *std::max_element(begin, begin + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(begin[i] - max);
    for (size_t i = row; i < row + static_cast<size_t>(n); ++i) {
      y[i] = log ? x[i] - max - std::log(sum) : std::exp(x[i] - max) / sum;
    }
  }
  return y;
}

std::vector<double> GradReference(const std::vector<double>& y, const std::vector<double>& dy, int64_t n, bool log) {
  std::vector<double> dx(y.size());
  for (size_t row = 0; row < y.size(); row += static_cast<size_t>(n)) {
    const size_t end = row + static_cast<size_t>(n);
    double sum = 0;
    for (size_t i = row; i < end; ++i) sum += log ? dy[i] : y[i] * dy[i];
    for (size_t i = row; i < end; ++i) dx[i] = log ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
  }
  return dx;
}

TEST(Softmax, ManyShapes) {
  const Shape shapes[] = {{1},        {2, 1},     {5, 2},   {3, 10},  {2, 15},   {2, 16},
                          {2, 17},    {4, 3, 31}, {2, 256}, {2, 257}, {3, 1000}, {1, 20000},
                          {3000, 10}, {40, 513},  {0, 5},   {5, 0},   {0}};
  for (DType dtype : kDTypes) {
    for (const Shape& shape : shapes) {
      const Tensor x = MakeTensor(RandomDoubles(NumElements(shape), -8, 9, 3), shape, dtype);
      const Tensor dy = MakeTensor(RandomDoubles(NumElements(shape), -1, 1, 4), shape, dtype);
      for (bool log : {false, true}) {
        SCOPED_TRACE(absl::StrCat(x.spec().ToString(), log ? " log" : ""));
        const double tolerance = RelativeTolerance(dtype);
        std::vector<Tensor> of_threads;
        for (int threads : {1, 2}) of_threads.push_back(RunRepeatedly(op::Softmax{log}, {x}, threads)[0]);
        EXPECT_TRUE(SameBits(of_threads[0], of_threads[1]));  // rows do not depend on the split
        const Tensor& y = of_threads[0];
        ExpectClose(y, Reference(Doubles(x), shape.back(), log), tolerance, log ? tolerance : 1e-9);
        const Tensor dx = RunRepeatedly(op::SoftmaxGrad{log}, {y, dy}, 2)[0];
        const double sum_of_row = dtype == DType::kF64 ? 1e-12 : 2e-5;
        ExpectClose(dx, GradReference(Doubles(y), Doubles(dy), shape.back(), log), tolerance, sum_of_row);
      }
    }
  }
}

TEST(Softmax, MinusInfinity) {
  for (DType dtype : kDTypes) {
    const std::vector<double> x{-kInfinity, -kInfinity, -kInfinity, -kInfinity, 1, 1, 0, -kInfinity, -kInfinity};
    const Tensor input = MakeTensor(x, {3, 3}, dtype);
    const Tensor dy = MakeTensor({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}, dtype);
    const Tensor y = RunOp(op::Softmax{}, {input})[0];
    EXPECT_THAT(Doubles(y), testing::ElementsAre(0, 0, 0, 0, 0.5, 0.5, 1, 0, 0));
    EXPECT_THAT(Doubles(RunOp(op::SoftmaxGrad{}, {y, dy})[0]), testing::ElementsAre(0, 0, 0, 0, -0.25, 0.25, 0, 0, 0));

    const Tensor log = RunOp(op::Softmax{true}, {input})[0];
    const double half = -std::log(2.0);
    ExpectClose(log, {-kInfinity, -kInfinity, -kInfinity, -kInfinity, half, half, 0, -kInfinity, -kInfinity},
                RelativeTolerance(dtype), 0);
    ExpectClose(RunOp(op::SoftmaxGrad{true}, {log, dy})[0], {0, 0, 0, 4, 5 - 7.5, 6 - 7.5, 7 - 24, 8, 9},
                dtype == DType::kF64 ? 1e-12 : 0.02, 0);
  }
}

TEST(Softmax, NanAndInfinityStayInTheirRow) {
  const double nan = std::nan("");
  for (bool log : {false, true}) {
    for (double bad : {nan, kInfinity}) {
      const Tensor x = MakeTensor({bad, 0, -kInfinity, bad, 1, 1}, {3, 2});
      const double good = log ? -std::log(2.0) : 0.5;
      const std::vector<double> got = Doubles(RunOp(op::Softmax{log}, {x})[0]);
      EXPECT_TRUE(std::isnan(got[0]));
      EXPECT_TRUE(std::isnan(got[3]));
      EXPECT_NEAR(got[4], good, 1e-6);
      EXPECT_NEAR(got[5], good, 1e-6);
    }
    // Nothing but NaN is not nothing but -inf.
    const Tensor x = MakeTensor(std::vector<double>(40, nan), {2, 20});
    for (double value : Doubles(RunOp(op::Softmax{log}, {x})[0])) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Softmax, LargeLogits) {
  const Tensor x = MakeTensor({1e30, -1e30, 88, 89, -1000, -1001}, {3, 2});
  ExpectClose(RunOp(op::Softmax{}, {x})[0], {1, 0, 0.26894142, 0.73105858, 0.73105858, 0.26894142}, 1e-6, 0);
}

// Bytes whose offset does not fit 31 bits, in place: twice the memory would be much to ask of a test.
TEST(Softmax, BeyondTwoToThe31Bytes) {
  const int64_t n = 4096;
  const int64_t rows = (int64_t{1} << 29) / n + 2;
  Tensor x = ValueOf(Tensor::Zeros(Spec{{rows, n}}));
  ASSERT_TRUE(x.valid());
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  float* last = static_cast<float*>(x.data()) + (rows - 1) * n;
  std::fill(last, last + n - 1, kMinusInfinity);
  std::vector<Tensor> outputs{x};
  ASSERT_TRUE(Execute(op::Softmax{true}, {x}, absl::MakeSpan(outputs), Stream::Default(Device::Cpu())).ok());
  EXPECT_EQ(last[n - 1], 0);
  EXPECT_EQ(last[0], kMinusInfinity);
  EXPECT_NEAR(last[-1], -std::log(4096.0), 1e-6);
}

}  // namespace
}  // namespace gemmill
