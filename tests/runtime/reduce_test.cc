#include <cmath>
#include <limits>
#include <vector>

#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  Shape shape;
  Axes axes;
};

// For each element of x, which element of the result it belongs to.
std::vector<size_t> Targets(const Case& c) {
  std::vector<size_t> targets;
  for (int64_t i = 0; i < NumElements(c.shape); ++i) {
    int64_t rest = i;
    int64_t stride = 1;
    int64_t target = 0;
    for (size_t d = c.shape.size(); d-- > 0; rest /= c.shape[d]) {
      if (std::find(c.axes.begin(), c.axes.end(), static_cast<int64_t>(d)) != c.axes.end()) continue;
      target += rest % c.shape[d] * stride;
      stride *= c.shape[d];
    }
    targets.push_back(static_cast<size_t>(target));
  }
  return targets;
}

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {{}, {}},
      {{1}, {0}},
      {{7}, {0}},
      {{7}, {}},
      {{1000}, {0}},
      {{5, 10}, {1}},
      {{5, 10}, {0}},
      {{10, 5}, {1, 0}},
      {{33, 129}, {1}},
      {{129, 33}, {0}},
      {{300, 2}, {0}},
      {{2, 300}, {1}},
      {{6, 700}, {0}},
      {{3, 1, 4}, {1}},
      {{2, 3, 4, 5}, {0, 2}},
      {{2, 3, 4, 5}, {1, 3}},
      {{2, 3, 4, 5}, {1, 2}},
      {{2, 3, 4, 5}, {3, 0}},
      {{9, 40, 3}, {1}},
      {{100000}, {0}},
      {{50000, 3}, {0}},
      {{3, 50000}, {1}},
      {{400, 600}, {0}},
      {{2, 40000, 2}, {1}},
      {{2, 3, 20000, 3}, {0, 2}},
  };
  return cases;
}

double Reference(ReduceFn fn, double total, double x) {
  if (fn == ReduceFn::kMax) return std::max(total, x);
  if (fn == ReduceFn::kMin) return std::min(total, x);
  return total + x;
}

TEST(Reduce, EveryAxisInEveryDType) {
  for (int f = 0; f < kReduceFnCount; ++f) {
    const ReduceFn fn = static_cast<ReduceFn>(f);
    for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64}) {
      if (fn == ReduceFn::kMean && !IsFloating(dtype)) continue;
      for (const Case& c : Cases()) {
        const Tensor x = MakeTensor(RandomDoubles(NumElements(c.shape), -50, 60, 1), c.shape, dtype);
        const std::vector<double> values = Doubles(x);
        const std::vector<size_t> targets = Targets(c);
        for (bool keepdims : {false, true}) {
          const Tensor result = RunOp(op::Reduce{fn, c.axes, keepdims}, {x})[0];
          ASSERT_TRUE(result.valid());
          EXPECT_EQ(result.dtype(), dtype);
          EXPECT_EQ(result.shape().size(), c.shape.size() - (keepdims ? 0 : c.axes.size()));
          const size_t size = static_cast<size_t>(result.num_elements());
          const double start = fn == ReduceFn::kMax ? -kInfinity : fn == ReduceFn::kMin ? kInfinity : 0;
          std::vector<double> expected(size, start);
          std::vector<double> magnitude(size, 0);
          for (size_t i = 0; i < values.size(); ++i) {
            expected[targets[i]] = Reference(fn, expected[targets[i]], values[i]);
            magnitude[targets[i]] += std::fabs(values[i]);
          }
          const double count = static_cast<double>(values.size() / size);
          const std::vector<double> got = Doubles(result);
          for (size_t i = 0; i < size; ++i) {
            double allowed = 0;
            if (fn == ReduceFn::kMean) expected[i] /= count;
            if (fn == ReduceFn::kSum || fn == ReduceFn::kMean) {
              const double scale = fn == ReduceFn::kMean ? count : 1;
              allowed = (dtype == DType::kF64 ? 1e-14 : IsFloating(dtype) ? 3e-7 : 0) * magnitude[i] / scale;
              if (dtype == DType::kBf16) allowed += 0x1p-8 * std::fabs(expected[i]);
            }
            ASSERT_LE(std::fabs(got[i] - expected[i]), allowed)
                << FnName(fn) << " " << x.spec().ToString() << " over " << ShapeString(Shape(c.axes)) << " at " << i;
          }
        }
      }
    }
  }
}

TEST(Reduce, LongSumsKeepTheirAccuracy) {
  // In f32 alone, a running sum of 2^24 ones and more would stand still.
  const int64_t count = (1 << 24) + 4096;
  const Tensor ones = RunOp(op::Fill{.shape = {count}, .value = 1.0}, {})[0];
  EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kSum, {0}}, {ones})[0])[0], static_cast<double>(count));
  const Tensor columns = ValueOf(ones.Reshaped({count / 2, 2}));
  EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kSum, {0}}, {columns})[0])[1], static_cast<double>(count / 2));
  const Tensor tenths = RunOp(op::Fill{.shape = {4000000}, .value = 0.1}, {})[0];
  EXPECT_NEAR(Doubles(RunOp(op::Reduce{ReduceFn::kMean, {0}}, {tenths})[0])[0], double{0.1f}, 2e-8);
}

TEST(Reduce, NothingToReduce) {
  const Tensor empty = MakeTensor({}, {3, 0});
  EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kSum, {1}}, {empty})[0]), std::vector<double>(3, 0));
  for (double mean : Doubles(RunOp(op::Reduce{ReduceFn::kMean, {1}}, {empty})[0])) EXPECT_TRUE(std::isnan(mean));
  EXPECT_EQ(RunOp(op::Reduce{ReduceFn::kMax, {0}}, {empty})[0].num_elements(), 0);
  EXPECT_FALSE(TryOp(op::Reduce{ReduceFn::kMax, {1}}, {empty}).ok());
  EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kSum, {0}}, {MakeTensor({}, {0}, DType::kI64)})[0])[0], 0);
}

TEST(Reduce, NanPropagates) {
  for (size_t place : {0u, 5u, 63u, 64u, 200u, 299u}) {
    std::vector<double> values = RandomDoubles(300, -1, 1, 2);
    values[place] = kNan;
    for (int f = 0; f < kReduceFnCount; ++f) {
      const ReduceFn fn = static_cast<ReduceFn>(f);
      EXPECT_TRUE(std::isnan(Doubles(RunOp(op::Reduce{fn, {0}}, {MakeTensor(values, {300})})[0])[0])) << FnName(fn);
      const std::vector<double> columns = Doubles(RunOp(op::Reduce{fn, {0}}, {MakeTensor(values, {100, 3})})[0]);
      for (size_t j = 0; j < 3; ++j) EXPECT_EQ(std::isnan(columns[j]), j == place % 3) << FnName(fn);
    }
  }
  const Tensor infinite = MakeTensor({-kInfinity, -kInfinity}, {2});
  EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kMax, {0}}, {infinite})[0])[0], -kInfinity);
}

TEST(Reduce, BitsDoNotDependOnThreads) {
  const Tensor x = MakeTensor(RandomDoubles(600000, -1, 1, 3), {600, 1000});
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{0, 1}}) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2, 3, 2}) {
      const WithThreads scope(threads);
      results.push_back(ValueOf(RunOp(op::Reduce{ReduceFn::kSum, axes}, {x})[0].ToVector<float>()));
    }
    for (const std::vector<float>& result : results) EXPECT_EQ(result, results[0]);
  }
}

TEST(Reduce, IntegerSumsWrap) {
  const Tensor x = MakeTensor({2147483647.0, 1}, {2}, DType::kI32);
  EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kSum, {0}}, {x})[0])[0], -2147483648.0);
  const Tensor wide = ValueOf(Tensor::From(std::vector<int64_t>{(int64_t{1} << 53) + 1, 1, INT64_MIN}, {3}));
  EXPECT_EQ(ValueOf(RunOp(op::Reduce{ReduceFn::kMax, {0}}, {wide})[0].ToVector<int64_t>())[0], (int64_t{1} << 53) + 1);
}

TEST(ArgMax, LowestIndexOfTheLargest) {
  const Tensor x = MakeTensor({1, 3, 3, 0, kNan, 5, kNan, 2, -kInfinity, -kInfinity, -kInfinity, -kInfinity}, {3, 4});
  const Tensor rows = RunOp(op::ArgMax{.axis = 1}, {x})[0];
  EXPECT_EQ(rows.dtype(), DType::kI64);
  EXPECT_EQ(Doubles(rows), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(Doubles(RunOp(op::ArgMax{.axis = 0}, {x})[0]), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(RunOp(op::ArgMax{.axis = 1, .keepdims = true}, {x})[0].shape(), (Shape{3, 1}));
}

TEST(ArgMax, EveryAxisInEveryDType) {
  const Shape shape = {4, 90, 70};
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
    const Tensor x = MakeTensor(RandomDoubles(NumElements(shape), -9, 9, 4), shape, dtype);
    const std::vector<double> values = Doubles(x);
    for (int64_t axis = 0; axis < 3; ++axis) {
      int64_t inner = 1;
      for (size_t d = static_cast<size_t>(axis) + 1; d < 3; ++d) inner *= shape[d];
      const int64_t size = shape[static_cast<size_t>(axis)];
      const std::vector<double> got = Doubles(RunOp(op::ArgMax{.axis = axis}, {x})[0]);
      for (size_t i = 0; i < got.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i);
        const int64_t start = at / inner * inner * size + at % inner;
        int64_t best = 0;
        for (int64_t k = 1; k < size; ++k) {
          const auto value = [&](int64_t place) { return values[static_cast<size_t>(start + place * inner)]; };
          if (value(k) > value(best)) best = k;
        }
        ASSERT_EQ(got[i], static_cast<double>(best)) << DTypeName(dtype) << " axis " << axis << " at " << i;
      }
    }
  }
}

TEST(GlobalNorm, AddsTheSquaresOfAllInputs) {
  EXPECT_EQ(Doubles(RunOp(op::GlobalNorm{}, {MakeTensor({3}, {1}), MakeTensor({0, 4}, {2})})[0])[0], 5);
  // Squares beyond f32's range.
  EXPECT_NEAR(Doubles(RunOp(op::GlobalNorm{}, {MakeTensor({3e30, 4e30}, {2})})[0])[0], 5e30, 1e24);
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
    const Tensor a = MakeTensor(RandomDoubles(100001, -1, 1, 5), {100001}, dtype);
    const Tensor b = MakeTensor(RandomDoubles(35, -9, 9, 6), {5, 7}, dtype);
    double sum = 0;
    for (const Tensor& tensor : {a, b}) {
      for (double x : Doubles(tensor)) sum += x * x;
    }
    const Tensor norm = RunOp(op::GlobalNorm{}, {a, b, MakeTensor({}, {0}, dtype)})[0];
    EXPECT_EQ(norm.dtype(), DType::kF32);
    EXPECT_NEAR(Doubles(norm)[0], std::sqrt(sum), 1e-7 * std::sqrt(sum));
    std::vector<double> results;
    for (int threads : {1, 2}) {
      const WithThreads scope(threads);
      results.push_back(Doubles(RunOp(op::GlobalNorm{}, {a, b})[0])[0]);
    }
    EXPECT_EQ(results[0], results[1]);
  }
  EXPECT_EQ(Doubles(RunOp(op::GlobalNorm{}, {MakeTensor({2}, {1}, DType::kBf16), MakeTensor({6}, {1}, DType::kF64),
                                             MakeTensor({9}, {1})})[0])[0],
            11);
  EXPECT_TRUE(std::isnan(Doubles(RunOp(op::GlobalNorm{}, {MakeTensor({1, kNan}, {2})})[0])[0]));
}

}  // namespace
}  // namespace gemmill
