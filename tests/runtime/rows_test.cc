#include <vector>

#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

constexpr DType kEveryDType[] = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8};
constexpr DType kFloating[] = {DType::kF32, DType::kBf16, DType::kF64};

std::vector<double> RandomIndices(int64_t count, int64_t rows, uint32_t seed) {
  std::vector<double> indices = RandomDoubles(count, 0, static_cast<double>(rows), seed);
  for (double& index : indices) index = static_cast<double>(static_cast<int64_t>(index));
  return indices;
}

struct Case {
  Shape index;
  Shape row;
  int64_t rows;
};

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {{}, {}, 1},      {{}, {3}, 5},        {{1}, {1}, 1},    {{4}, {}, 9},          {{7}, {3}, 5},
      {{2, 3}, {5}, 4}, {{2, 3}, {2, 2}, 4}, {{2000}, {1}, 3}, {{2000}, {17}, 50},    {{300}, {128}, 7},
      {{0}, {3}, 5},    {{0}, {3}, 0},       {{3}, {0}, 5},    {{40, 50}, {64}, 1000}};
  return cases;
}

Shape Joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

absl::Status ErrorOf(const Op& op, const std::vector<Tensor>& inputs) { return TryOp(op, inputs).status(); }

TEST(GatherRows, EveryDType) {
  for (DType dtype : kEveryDType) {
    for (DType index_dtype : {DType::kI32, DType::kI64}) {
      for (const Case& c : Cases()) {
        const Shape table_shape = Joined({c.rows}, c.row);
        const Tensor table = MakeTensor(RandomDoubles(NumElements(table_shape), 0, 100, 1), table_shape, dtype);
        const std::vector<double> index = RandomIndices(NumElements(c.index), c.rows, 2);
        const std::vector<double> from = Doubles(table);
        const size_t row = static_cast<size_t>(NumElements(c.row));
        std::vector<double> expected;
        for (double i : index) {
          const auto begin = from.begin() + static_cast<int64_t>(i) * static_cast<int64_t>(row);
          expected.insert(expected.end(), begin, begin + static_cast<int64_t>(row));
        }
        for (int threads : {1, 2}) {
          const Tensor y =
              RunRepeatedly(op::GatherRows{}, {table, MakeTensor(index, c.index, index_dtype)}, threads)[0];
          EXPECT_EQ(y.shape(), Joined(c.index, c.row));
          ExpectClose(y, expected, 0, 0);
        }
      }
    }
  }
}

TEST(ScatterAddRows, EveryDType) {
  for (DType dtype : kFloating) {
    for (DType index_dtype : {DType::kI32, DType::kI64}) {
      for (const Case& c : Cases()) {
        const Shape shape = Joined(c.index, c.row);
        const Tensor values = MakeTensor(RandomDoubles(NumElements(shape), -1, 2, 1), shape, dtype);
        const std::vector<double> index = RandomIndices(NumElements(c.index), c.rows, 2);
        const std::vector<double> from = Doubles(values);
        const size_t row = static_cast<size_t>(NumElements(c.row));
        std::vector<double> expected(static_cast<size_t>(c.rows) * row, 0);
        for (size_t i = 0; i < from.size(); ++i) {
          expected[static_cast<size_t>(index[i / row]) * row + i % row] += from[i];
        }
        const op::ScatterAddRows op{c.rows, static_cast<int64_t>(c.index.size())};
        std::vector<Tensor> of_threads;
        for (int threads : {1, 2}) {
          of_threads.push_back(RunRepeatedly(op, {values, MakeTensor(index, c.index, index_dtype)}, threads)[0]);
        }
        EXPECT_TRUE(SameBits(of_threads[0], of_threads[1]));
        ExpectClose(of_threads[0], expected, RelativeTolerance(dtype), dtype == DType::kF64 ? 1e-10 : 2e-3);
      }
    }
  }
}

TEST(ScatterAddRows, ManyAdditionsToOneRowAreNotLost) {
  const size_t count = 5000;
  const Tensor values = MakeTensor(std::vector<double>(count, 1), {5000, 1}, DType::kBf16);
  const Tensor index = MakeTensor(std::vector<double>(count, 1), {5000}, DType::kI64);
  EXPECT_THAT(Doubles(RunOp(op::ScatterAddRows{3}, {values, index})[0]), testing::ElementsAre(0, 4992, 0));
}

// 2^24 is where an f32 stops counting by one.
TEST(ScatterAddRows, LongSumsKeepTheirTerms) {
  std::vector<double> values{0x1p24, 3};
  std::vector<double> index{1, 0};
  for (int i = 0; i < 1000; ++i) {
    values.insert(values.end(), {1, 1});
    index.insert(index.end(), {1, 2});
  }
  const Tensor rows = MakeTensor(index, {2002}, DType::kI32);
  const Tensor y = RunOp(op::ScatterAddRows{4}, {MakeTensor(values, {2002, 1}), rows})[0];
  EXPECT_THAT(Doubles(y), testing::ElementsAre(3, 0x1p24 + 1000, 1000, 0));
}

TEST(OneHot, EveryDType) {
  for (DType dtype : kEveryDType) {
    for (DType index_dtype : {DType::kI32, DType::kI64}) {
      const Tensor y = RunOp(op::OneHot{3, dtype}, {MakeTensor({2, 0, 1, 2}, {2, 2}, index_dtype)})[0];
      EXPECT_EQ(y.spec(), (Spec{{2, 2, 3}, dtype}));
      ExpectClose(y, {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}, 0, 0);
    }
    EXPECT_EQ(RunOp(op::OneHot{0, dtype}, {MakeTensor({}, {0}, DType::kI64)})[0].shape(), (Shape{0, 0}));
  }
  ExpectClose(RunOp(op::OneHot{2}, {MakeTensor({1}, {}, DType::kI64)})[0], {0, 1}, 0, 0);
  const std::vector<double> index = RandomIndices(5000, 300, 3);
  const Tensor y = RunRepeatedly(op::OneHot{300}, {MakeTensor(index, {5000}, DType::kI64)}, 2)[0];
  std::vector<double> expected(5000 * 300, 0);
  for (size_t i = 0; i < index.size(); ++i) expected[i * 300 + static_cast<size_t>(index[i])] = 1;
  ExpectClose(y, expected, 0, 0);
}

TEST(Rows, IndexOutOfRangeNamesPositionAndValue) {
  const Tensor table = MakeTensor({1, 2, 3, 4}, {2, 2});
  for (DType index_dtype : {DType::kI32, DType::kI64}) {
    for (int bad : {-1, 2, 70000}) {
      const Tensor index = MakeTensor({0, static_cast<double>(bad)}, {2}, index_dtype);
      for (const absl::Status& status : {ErrorOf(op::GatherRows{}, {table, index}), ErrorOf(op::OneHot{2}, {index}),
                                         ErrorOf(op::ScatterAddRows{2}, {table, index})}) {
        EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
        EXPECT_THAT(std::string(status.message()),
                    testing::HasSubstr(absl::StrCat("entry 1 of the indices is ", bad, ", expected 0 to 1")));
      }
    }
  }
}

TEST(Rows, NothingIsWrittenWhenAnIndexIsOutOfRange) {
  const Tensor values = MakeTensor({1, 2, 3, 4}, {2, 2});
  const Tensor index = MakeTensor({0, 9}, {2}, DType::kI64);
  std::vector<Tensor> outputs{MakeTensor({5, 6, 7, 8}, {2, 2})};
  Stream& stream = Stream::Default(Device::Cpu());
  EXPECT_FALSE(Execute(op::GatherRows{}, {values, index}, absl::MakeSpan(outputs), stream).ok());
  EXPECT_FALSE(Execute(op::ScatterAddRows{2}, {values, index}, absl::MakeSpan(outputs), stream).ok());
  EXPECT_FALSE(Execute(op::OneHot{2}, {index}, absl::MakeSpan(outputs), stream).ok());
  EXPECT_THAT(Doubles(outputs[0]), testing::ElementsAre(5, 6, 7, 8));
}

}  // namespace
}  // namespace gemmill
