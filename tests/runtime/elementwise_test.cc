#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "gemmill/runtime/scalar_math.h"
#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double RelativeError(DType dtype) { return dtype == DType::kBf16 ? 0x1p-8 : dtype == DType::kF32 ? 5e-7 : 1e-14; }

// The element of an array of shape `shape` that is broadcast to element `i` of `out`.
size_t BroadcastIndex(const Shape& shape, const Shape& out, int64_t i) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t d = out.size(); d-- > 0; i /= out[d]) {
    const size_t missing = out.size() - shape.size();
    if (d < missing) break;
    index += shape[d - missing] == 1 ? 0 : i % out[d] * stride;
    stride *= shape[d - missing];
  }
  return static_cast<size_t>(index);
}

double BinaryReference(BinaryFn fn, double a, double b) {
  switch (fn) {
    case BinaryFn::kAdd:
      return a + b;
    case BinaryFn::kSub:
      return a - b;
    case BinaryFn::kMul:
      return a * b;
    case BinaryFn::kDiv:
      return a / b;
    case BinaryFn::kPow:
      return std::pow(a, b);
    case BinaryFn::kMax:
      return std::max(a, b);
    case BinaryFn::kMin:
      return std::min(a, b);
    case BinaryFn::kEqual:
      return a == b;
    case BinaryFn::kNotEqual:
      return a != b;
    case BinaryFn::kLess:
      return a < b;
    case BinaryFn::kLessEqual:
      return a <= b;
    case BinaryFn::kGreater:
      return a > b;
    case BinaryFn::kGreaterEqual:
      return a >= b;
  }
  return kNan;
}

const std::vector<std::pair<Shape, Shape>>& BroadcastPairs() {
  static const auto& pairs = *new std::vector<std::pair<Shape, Shape>>{
      {{}, {}},
      {{1}, {1}},
      {{37}, {37}},
      {{37}, {}},
      {{1}, {37}},
      {{5, 33}, {33}},
      {{5, 33}, {5, 1}},
      {{5, 1}, {1, 33}},
      {{33}, {5, 33}},
      {{2, 3, 4}, {3, 1}},
      {{2, 1, 4}, {3, 1}},
      {{2, 1, 3, 1, 5}, {4, 1, 2, 5}},
      {{1, 1}, {4, 17}},
      {{0}, {1}},
      {{3, 0, 2}, {1, 2}},
      {{130, 300}, {300}},
      {{300, 130}, {300, 1}},
  };
  return pairs;
}

TEST(Elementwise, BinaryBroadcastsInEveryDType) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    for (int f = 0; f < kBinaryFnCount; ++f) {
      const BinaryFn fn = static_cast<BinaryFn>(f);
      for (const auto& [a_shape, b_shape] : BroadcastPairs()) {
        // Small positive values: exact in every dtype, with ties for the comparisons.
        std::vector<double> a = RandomDoubles(NumElements(a_shape), 4, 16, 1);
        std::vector<double> b = RandomDoubles(NumElements(b_shape), 1, 4, 2);
        for (double& x : a) x = std::floor(x);
        for (double& x : b) x = std::floor(x);
        if (fn == BinaryFn::kPow && dtype == DType::kU8) {
          for (double& x : a) x = std::floor(x / 3);
        }
        const Tensor result = RunOp(op::Binary{fn}, {MakeTensor(a, a_shape, dtype), MakeTensor(b, b_shape, dtype)})[0];
        ASSERT_TRUE(result.valid());
        EXPECT_EQ(result.dtype(), IsComparison(fn) ? DType::kU8 : dtype);
        const std::vector<double> got = Doubles(result);
        for (size_t i = 0; i < got.size(); ++i) {
          const int64_t at = static_cast<int64_t>(i);
          double expected = BinaryReference(fn, a[BroadcastIndex(a_shape, result.shape(), at)],
                                            b[BroadcastIndex(b_shape, result.shape(), at)]);
          if (!IsFloating(dtype)) expected = std::trunc(expected);
          ASSERT_LE(std::fabs(got[i] - expected), RelativeError(dtype) * std::fabs(expected))
              << FnName(fn) << " " << DTypeName(dtype) << ShapeString(a_shape) << ShapeString(b_shape) << " " << i;
        }
      }
    }
  }
}

TEST(Elementwise, ComparisonsAndExtremesOfNan) {
  const Tensor a = MakeTensor({kNan, 1, kNan, kInfinity, -kInfinity}, {5});
  const Tensor b = MakeTensor({1, kNan, kNan, kInfinity, kInfinity}, {5});
  const auto run = [&](BinaryFn fn) { return Doubles(RunOp(op::Binary{fn}, {a, b})[0]); };
  EXPECT_EQ(run(BinaryFn::kEqual), (std::vector<double>{0, 0, 0, 1, 0}));
  EXPECT_EQ(run(BinaryFn::kNotEqual), (std::vector<double>{1, 1, 1, 0, 1}));
  EXPECT_EQ(run(BinaryFn::kLess), (std::vector<double>{0, 0, 0, 0, 1}));
  EXPECT_EQ(run(BinaryFn::kGreaterEqual), (std::vector<double>{0, 0, 0, 1, 0}));
  for (BinaryFn fn : {BinaryFn::kMax, BinaryFn::kMin}) {
    const std::vector<double> got = run(fn);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(got[i])) << FnName(fn) << i;
  }
}

TEST(Elementwise, IntegersWrapAndTruncate) {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const int64_t highest = std::numeric_limits<int64_t>::max();
  const Tensor a = ValueOf(Tensor::From(std::vector<int64_t>{lowest, highest, -7, 7, -7}, {5}));
  const Tensor b = ValueOf(Tensor::From(std::vector<int64_t>{-1, 1, 2, -2, -2}, {5}));
  const auto run = [&](BinaryFn fn) { return ValueOf(RunOp(op::Binary{fn}, {a, b})[0].ToVector<int64_t>()); };
  EXPECT_EQ(run(BinaryFn::kDiv), (std::vector<int64_t>{lowest, highest, -3, -3, 3}));
  EXPECT_EQ(run(BinaryFn::kAdd)[1], lowest);
  EXPECT_EQ(run(BinaryFn::kMul)[0], lowest);
  EXPECT_EQ(ValueOf(RunOp(op::Unary{UnaryFn::kNeg}, {a})[0].ToVector<int64_t>())[0], lowest);
  const Tensor narrow = MakeTensor({-2147483648.0, 5, -5}, {3}, DType::kI32);
  EXPECT_EQ(Doubles(RunOp(op::Unary{UnaryFn::kAbs}, {narrow})[0]), (std::vector<double>{-2147483648.0, 5, 5}));
  EXPECT_EQ(Doubles(RunOp(op::Unary{UnaryFn::kRelu}, {narrow})[0]), (std::vector<double>{0, 5, 0}));
  const Tensor bytes = MakeTensor({200, 100}, {2}, DType::kU8);
  EXPECT_EQ(Doubles(RunOp(op::Binary{BinaryFn::kAdd}, {bytes, bytes})[0]), (std::vector<double>{144, 200}));
}

TEST(Elementwise, IntegerDivisionByZeroNamesTheIndex) {
  for (DType dtype : {DType::kI32, DType::kI64, DType::kU8}) {
    const Tensor a = MakeTensor({1, 2, 3, 4, 5, 6}, {2, 3}, dtype);
    const Tensor b = MakeTensor({1, 1, 1, 1, 0, 1}, {2, 3}, dtype);
    const absl::Status status = TryOp(op::Binary{BinaryFn::kDiv}, {a, b}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_NE(status.message().find("[1, 1]"), absl::string_view::npos) << status;
  }
  const absl::Status power =
      TryOp(op::Binary{BinaryFn::kPow}, {MakeTensor({2}, {1}, DType::kI32), MakeTensor({-1}, {1}, DType::kI32)})
          .status();
  EXPECT_EQ(power.code(), absl::StatusCode::kOutOfRange) << power;
  // Dividing nothing by 0 is fine, as are floating numbers.
  const Tensor none =
      RunOp(op::Binary{BinaryFn::kDiv}, {MakeTensor({}, {0}, DType::kI32), MakeTensor({0}, {1}, DType::kI32)})[0];
  EXPECT_EQ(none.num_elements(), 0);
  EXPECT_EQ(Doubles(RunOp(op::Binary{BinaryFn::kDiv}, {MakeTensor({1}, {1}), MakeTensor({0}, {1})})[0])[0], kInfinity);
}

TEST(Elementwise, UnaryAndItsGradientInEveryDType) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
    for (int f = 0; f < kUnaryFnCount; ++f) {
      const UnaryFn fn = static_cast<UnaryFn>(f);
      const Tensor x = MakeTensor(RandomDoubles(1001, 0.25, 3, 3), {7, 143}, dtype);
      const Tensor dy = MakeTensor(RandomDoubles(1001, -2, 2, 4), {7, 143}, dtype);
      const std::vector<double> xs = Doubles(x);
      const std::vector<double> dys = Doubles(dy);
      const Tensor y = RunOp(op::Unary{fn}, {x})[0];
      ASSERT_TRUE(y.valid());
      const Tensor dx = RunOp(op::UnaryGrad{fn}, {scalar::DerivativeTakesOutput(fn) ? y : x, dy})[0];
      const std::vector<double> ys = Doubles(y);
      const std::vector<double> dxs = Doubles(dx);
      // Values of the f64 form at the stored inputs: scalar_math_test compares that with the standard library.
      const std::vector<double> exact = Doubles(RunOp(op::Unary{fn}, {MakeTensor(xs, {7, 143}, DType::kF64)})[0]);
      const Tensor v64 = MakeTensor(scalar::DerivativeTakesOutput(fn) ? ys : xs, {7, 143}, DType::kF64);
      const std::vector<double> slope =
          Doubles(RunOp(op::UnaryGrad{fn}, {v64, MakeTensor(dys, {7, 143}, DType::kF64)})[0]);
      for (size_t i = 0; i < xs.size(); ++i) {
        const double error = RelativeError(dtype);
        ASSERT_LE(std::fabs(ys[i] - exact[i]), error * std::fabs(exact[i])) << FnName(fn) << DTypeName(dtype) << xs[i];
        ASSERT_LE(std::fabs(dxs[i] - slope[i]), error * std::fabs(slope[i]) + 1e-6 * std::fabs(dys[i]))
            << FnName(fn) << DTypeName(dtype) << xs[i];
      }
    }
  }
}

TEST(Elementwise, BitsDoNotDependOnThreads) {
  const int64_t count = 100003;
  const Tensor x = MakeTensor(RandomDoubles(count, -20, 20, 5), {count});
  const Tensor row = MakeTensor(RandomDoubles(1000, -20, 20, 6), {1000});
  const Tensor matrix = MakeTensor(RandomDoubles(300000, -20, 20, 7), {300, 1000});
  for (const auto& [op, inputs] :
       std::vector<std::pair<Op, std::vector<Tensor>>>{{op::Unary{UnaryFn::kGeluErf}, {x}},
                                                       {op::UnaryGrad{UnaryFn::kGeluErf}, {x, x}},
                                                       {op::Binary{BinaryFn::kAdd}, {matrix, row}},
                                                       {op::Binary{BinaryFn::kMul}, {row, matrix}}}) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2, 3}) {
      const WithThreads scope(threads);
      results.push_back(ValueOf(RunOp(op, inputs)[0].ToVector<float>()));
    }
    EXPECT_EQ(results[0], results[1]) << OpName(op);
    EXPECT_EQ(results[0], results[2]) << OpName(op);
  }
}

TEST(Elementwise, MayWriteOverItsInput) {
  const Tensor a = MakeTensor(RandomDoubles(3 * 334, -3, 3, 8), {3, 334});
  const Tensor b = MakeTensor(RandomDoubles(3 * 334, -3, 3, 9), {3, 334});
  const Tensor half = MakeTensor(RandomDoubles(3 * 167, -3, 3, 10), {3, 167});
  for (const auto& [op, inputs] :
       std::vector<std::pair<Op, std::vector<Tensor>>>{{op::Unary{UnaryFn::kSilu}, {a}},
                                                       {op::Binary{BinaryFn::kSub}, {a, b}},
                                                       {op::GatedUnaryGrad{UnaryFn::kSilu}, {a, half}}}) {
    const std::vector<double> expected = Doubles(RunOp(op, inputs)[0]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!MayRunInPlace(op, i, 0)) continue;
      std::vector<Tensor> copies = inputs;
      copies[i] = MakeTensor(Doubles(inputs[i]), inputs[i].shape());
      std::vector<Tensor> outputs = {copies[i]};
      ASSERT_TRUE(Execute(op, copies, absl::MakeSpan(outputs), Stream::Default(Device::Cpu())).ok());
      EXPECT_EQ(Doubles(outputs[0]), expected) << OpName(op) << i;
    }
  }
}

TEST(Elementwise, WhereBroadcastsInEveryDType) {
  struct Case {
    Shape condition, a, b;
  };
  for (const Case& shapes : std::vector<Case>{{{40}, {40}, {40}},
                                              {{}, {40}, {}},
                                              {{40}, {}, {}},
                                              {{3, 1}, {40}, {}},
                                              {{3, 1}, {3, 40}, {3, 1}},
                                              {{1, 40}, {3, 1}, {1}},
                                              {{2, 1, 1}, {3, 1}, {5}},
                                              {{1}, {}, {7}},
                                              {{0}, {1}, {}},
                                              {{}, {}, {}}}) {
    for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
      std::vector<double> condition = RandomDoubles(NumElements(shapes.condition), 0, 3, 10);
      std::vector<double> a = RandomDoubles(NumElements(shapes.a), 0, 100, 11);
      std::vector<double> b = RandomDoubles(NumElements(shapes.b), 0, 100, 12);
      for (std::vector<double>* values : {&condition, &a, &b}) {
        for (double& value : *values) value = std::floor(value);
      }
      const Tensor result = RunOp(op::Where{}, {MakeTensor(condition, shapes.condition, DType::kU8),
                                                MakeTensor(a, shapes.a, dtype), MakeTensor(b, shapes.b, dtype)})[0];
      ASSERT_TRUE(result.valid());
      const std::vector<double> got = Doubles(result);
      for (size_t i = 0; i < got.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i);
        const bool chosen = condition[BroadcastIndex(shapes.condition, result.shape(), at)] != 0;
        EXPECT_EQ(got[i], chosen ? a[BroadcastIndex(shapes.a, result.shape(), at)]
                                 : b[BroadcastIndex(shapes.b, result.shape(), at)]);
      }
    }
  }
}

TEST(Elementwise, CastSaturatesAndTruncates) {
  const std::vector<double> values = {0, 1.9, -1.9, kNan, kInfinity, -kInfinity, 3e9, -3e9, 1e19, -1e19, 255.5, -0.5};
  const int64_t count = static_cast<int64_t>(values.size());
  for (DType from : {DType::kF32, DType::kF64}) {
    const Tensor x = MakeTensor(values, {count}, from);
    EXPECT_EQ(
        ValueOf(RunOp(op::Cast{DType::kI32}, {x})[0].ToVector<int32_t>()),
        (std::vector<int32_t>{0, 1, -1, 0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 255, 0}));
    EXPECT_EQ(ValueOf(RunOp(op::Cast{DType::kI64}, {x})[0].ToVector<int64_t>()),
              (std::vector<int64_t>{0, 1, -1, 0, INT64_MAX, INT64_MIN, 3000000000, -3000000000, INT64_MAX, INT64_MIN,
                                    255, 0}));
    EXPECT_EQ(ValueOf(RunOp(op::Cast{DType::kU8}, {x})[0].ToVector<uint8_t>()),
              (std::vector<uint8_t>{0, 1, 0, 0, 255, 0, 255, 0, 255, 0, 255, 0}));
  }
}

TEST(Elementwise, CastRoundsToNearest) {
  for (DType from : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    for (DType to : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
      const Tensor x = MakeTensor(RandomDoubles(77, 0, 200, 13), {77}, from);
      const std::vector<double> got = Doubles(RunOp(op::Cast{to}, {x})[0]);
      const std::vector<double> expected = IsFloating(to) ? Doubles(x) : Doubles(MakeTensor(Doubles(x), {77}, to));
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LE(std::fabs(got[i] - expected[i]), (to == DType::kBf16 ? 0x1p-8 : 0x1p-24) * expected[i]);
      }
    }
  }
  EXPECT_EQ(Doubles(RunOp(op::Cast{DType::kI64}, {MakeTensor({}, {0, 3})})[0]).size(), 0u);
}

// Beside a value half-way between two of bf16, by less than an f32 can tell.
TEST(Elementwise, CastToBf16RoundsOnce) {
  const double half = 1 + 0x1p-8;
  const double less = 0x1p-40;
  const double largest = 0x1.FEp127;
  const std::vector<double> values{
      half,    half + less,       half - less,       -half - less, -half + less, 3 * half + less,
      largest, largest + 0x1p118, largest + 0x1p119, 1e300,        kInfinity,    0,
      1e-300};
  const std::vector<double> expected{1,       1 + 0x1p-7, 1,         -1 - 0x1p-7, -1, 3 + 0x1p-6, largest,
                                     largest, kInfinity,  kInfinity, kInfinity,   0,  0};
  const int64_t count = static_cast<int64_t>(values.size());
  const Tensor x = MakeTensor(values, {count}, DType::kF64);
  EXPECT_EQ(Doubles(RunOp(op::Cast{DType::kBf16}, {x})[0]), expected);
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor filled = RunOp(op::Fill{.shape = {1}, .dtype = DType::kBf16, .value = values[i]}, {})[0];
    EXPECT_EQ(Doubles(filled)[0], expected[i]);
  }
  EXPECT_TRUE(std::isnan(Doubles(RunOp(op::Cast{DType::kBf16}, {MakeTensor({kNan}, {1}, DType::kF64)})[0])[0]));

  const int32_t middle = (1 << 30) + (1 << 22);
  const Tensor i32 = ValueOf(Tensor::From(std::vector<int32_t>{middle, middle + 1, middle - 1, -middle - 1}, {4}));
  EXPECT_EQ(Doubles(RunOp(op::Cast{DType::kBf16}, {i32})[0]),
            (std::vector<double>{0x1p30, 0x1p30 + 0x1p23, 0x1p30, -0x1p30 - 0x1p23}));
  const int64_t wide = (int64_t{1} << 62) + (int64_t{1} << 54);
  const Tensor i64 =
      ValueOf(Tensor::From(std::vector<int64_t>{wide, wide + 1, wide - 1, -wide - 1, INT64_MAX, INT64_MIN, -3}, {7}));
  EXPECT_EQ(Doubles(RunOp(op::Cast{DType::kBf16}, {i64})[0]),
            (std::vector<double>{0x1p62, 0x1p62 + 0x1p55, 0x1p62, -0x1p62 - 0x1p55, 0x1p63, -0x1p63, -3}));
}

TEST(Elementwise, FillAndIota) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    const Tensor filled = RunOp(op::Fill{.shape = {3, 5}, .dtype = dtype, .value = 2.0}, {})[0];
    EXPECT_EQ(Doubles(filled), std::vector<double>(15, 2.0));
    EXPECT_EQ(filled.dtype(), dtype);
  }
  EXPECT_EQ(Doubles(RunOp(op::Iota{.size = 4}, {})[0]), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(RunOp(op::Iota{.size = 0}, {})[0].num_elements(), 0);
}

}  // namespace
}  // namespace gemmill
