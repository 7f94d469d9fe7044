#include <cmath>
#include <vector>

#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64};

struct Expected {
  std::vector<double> y;
  std::vector<double> rstd;
};

Expected Reference(const std::vector<double>& x, int64_t n, bool centered, double epsilon) {
  Expected expected;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(n)) {
    const size_t end = row + static_cast<size_t>(n);
    double mean = 0;
    double variance = 0;
    for (size_t i = row; centered && i < end; ++i) mean += x[i] / static_cast<double>(n);
    for (size_t i = row; i < end; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
    expected.rstd.push_back(1 / std::sqrt(variance + epsilon));
    for (size_t i = row; i < end; ++i) expected.y.push_back((x[i] - mean) * expected.rstd.back());
  }
  return expected;
}

std::vector<double> GradReference(const std::vector<double>& y, const std::vector<double>& rstd,
                                  const std::vector<double>& dy, int64_t n, bool centered) {
  std::vector<double> dx;
  for (size_t row = 0; row < rstd.size(); ++row) {
    const size_t begin = row * static_cast<size_t>(n);
    double mean_dy = 0;
    double mean_y_dy = 0;
    for (size_t i = begin; i < begin + static_cast<size_t>(n); ++i) {
      if (centered) mean_dy += dy[i] / static_cast<double>(n);
      mean_y_dy += y[i] * dy[i] / static_cast<double>(n);
    }
    for (size_t i = begin; i < begin + static_cast<size_t>(n); ++i) {
      dx.push_back(rstd[row] * (dy[i] - mean_dy - y[i] * mean_y_dy));
    }
  }
  return dx;
}

TEST(Normalize, ManyShapes) {
  const Shape shapes[] = {{1},      {2, 1},   {5, 2},    {3, 10},    {2, 15},    {2, 16},   {2, 17}, {4, 3, 31},
                          {2, 256}, {2, 257}, {3, 1000}, {1, 20000}, {3000, 10}, {40, 513}, {0, 5}};
  for (DType dtype : kDTypes) {
    for (const Shape& shape : shapes) {
      const int64_t n = shape.back();
      const Tensor x = MakeTensor(RandomDoubles(NumElements(shape), -2, 4, 3), shape, dtype);
      const Tensor dy = MakeTensor(RandomDoubles(NumElements(shape), -1, 1, 4), shape, dtype);
      for (bool centered : {true, false}) {
        SCOPED_TRACE(absl::StrCat(x.spec().ToString(), centered ? " centered" : ""));
        const op::Normalize op{centered};
        const double tolerance = RelativeTolerance(dtype);
        const Expected expected = Reference(Doubles(x), n, centered, static_cast<double>(op.epsilon));
        std::vector<std::vector<Tensor>> of_threads;
        for (int threads : {1, 2}) of_threads.push_back(RunRepeatedly(op, {x}, threads));
        for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(SameBits(of_threads[0][i], of_threads[1][i]));
        const Tensor& y = of_threads[0][0];
        const Tensor& rstd = of_threads[0][1];
        ExpectClose(y, expected.y, tolerance, dtype == DType::kF64 ? 1e-12 : 1e-5);
        ExpectClose(rstd, expected.rstd, dtype == DType::kF64 ? 1e-12 : 2e-6, 0);
        const Tensor dx = RunRepeatedly(op::NormalizeGrad{centered}, {y, rstd, dy}, 2)[0];
        const double largest = n == 1 ? 400 : 10;  // rstd is 1 / sqrt(epsilon) where there is one element
        ExpectClose(dx, GradReference(Doubles(y), Doubles(rstd), Doubles(dy), n, centered), tolerance,
                    (dtype == DType::kF64 ? 1e-13 : 1e-6) * largest);
      }
    }
  }
}

TEST(Normalize, RowsFarFromZeroKeepTheirDifferences) {
  const Tensor large = MakeTensor({40000, 40001, 40002, 40003}, {4});
  ExpectClose(RunOp(op::Normalize{}, {large})[0], {-1.34164, -0.44721, 0.44721, 1.34164}, 0, 5e-6);

  // Mean 100, step 1e-3. The default epsilon is eight times the variance; without it out[0] is -1.3415 to what f32 can
  // hold of the inputs.
  const Tensor close = MakeTensor({99.9985, 99.9995, 100.0005, 100.0015}, {4});
  const Tensor y = RunOp(op::Normalize{.epsilon = 1e-12f}, {close})[0];
  EXPECT_NEAR(Doubles(y)[0], -1.3415, 1e-3);
  ExpectClose(y, Reference(Doubles(close), 4, true, 1e-12).y, 1e-6, 0);
  ExpectClose(RunOp(op::Normalize{}, {close})[0], Reference(Doubles(close), 4, true, 1e-5).y, 1e-5, 0);
  const Tensor exact = MakeTensor({99.9985, 99.9995, 100.0005, 100.0015}, {4}, DType::kF64);
  EXPECT_NEAR(Doubles(RunOp(op::Normalize{.epsilon = 2.5e-10f}, {exact})[0])[0], -1.3415, 5e-5);
}

// The mean of these is between two values of f32, which is half of their deviation.
TEST(Normalize, MeanBetweenTwoValues) {
  const double step = 0x1p-17;  // the last place of an f32 near 100
  const Tensor x = MakeTensor({100, 100 + step}, {2});
  ExpectClose(RunOp(op::Normalize{.epsilon = 0}, {x})[0], {-1, 1}, 1e-6, 0);
}

TEST(Normalize, RowsOfOneAndOfNone) {
  const std::vector<Tensor> one = RunOp(op::Normalize{}, {MakeTensor({3, -1e30}, {2, 1})});
  ExpectClose(one[0], {0, 0}, 0, 0);
  ExpectClose(one[1], {std::sqrt(1e5), std::sqrt(1e5)}, 1e-6, 0);
  for (double value : Doubles(RunOp(op::NormalizeGrad{}, {one[0], one[1], MakeTensor({5, 7}, {2, 1})})[0])) {
    EXPECT_EQ(value, 0);
  }
  const std::vector<Tensor> none = RunOp(op::Normalize{}, {MakeTensor({}, {2, 0})});
  EXPECT_EQ(none[0].num_elements(), 0);
  ExpectClose(none[1], {std::sqrt(1e5), std::sqrt(1e5)}, 1e-6, 0);
  EXPECT_EQ(RunOp(op::NormalizeGrad{}, {none[0], none[1], none[0]})[0].num_elements(), 0);
}

// Whose squares f32 (for the last, f64) does not hold.
TEST(Normalize, RowsOfAnyMagnitude) {
  constexpr double kDenormal = 0x1p-126;  // which threads flush to 0
  const auto check = [](double unit, DType dtype) {
    for (bool centered : {true, false}) {
      SCOPED_TRACE(absl::StrCat(DTypeName(dtype), " ", unit, centered ? " centered" : ""));
      const Tensor x = MakeTensor({1 * unit, 2 * unit, -3 * unit, 4 * unit}, {4}, dtype);
      std::vector<double> in_units = Doubles(x);
      for (double& value : in_units) value /= unit;
      const Expected expected = Reference(in_units, 4, centered, 0);
      const std::vector<Tensor> outputs = RunOp(op::Normalize{.centered = centered, .epsilon = 0}, {x});
      ExpectClose(outputs[0], expected.y, RelativeTolerance(dtype), 1e-6);
      ExpectClose(outputs[1], {expected.rstd[0] / unit}, 2e-6, 0);
      const Tensor dy = MakeTensor({1, 0, -2, 1}, {4}, dtype);
      const Tensor dx = RunOp(op::NormalizeGrad{centered}, {outputs[0], outputs[1], dy})[0];
      ExpectClose(dx, GradReference(Doubles(outputs[0]), Doubles(outputs[1]), Doubles(dy), 4, centered),
                  RelativeTolerance(dtype), 1e-6 * Doubles(outputs[1])[0] + kDenormal);
    }
  };
  for (DType dtype : kDTypes) {
    for (double unit : {1e20, 2e37, 1e-15, 1e-30, 1e-37}) check(unit, dtype);
  }
  for (double unit : {1e200, 1e-200}) check(unit, DType::kF64);
}

TEST(Normalize, ConstantRow) {
  const Tensor x = MakeTensor(std::vector<double>(7, 0.1), {7});
  ExpectClose(RunOp(op::Normalize{}, {x})[0], std::vector<double>(7, 0), 0, 1e-6);
}

}  // namespace
}  // namespace gemmill
