#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "gemmill/runtime/philox.h"
#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

TEST(Philox, KnownAnswers) {
  // The vectors published with Random123.
  philox::Words words;
  philox::Generate(0, 0, 0, 0, 0, words.data());
  EXPECT_EQ(words, (philox::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  philox::Generate(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u, words.data());
  EXPECT_EQ(words, (philox::Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  philox::Generate(0x299f31d0a4093822, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, words.data());
  EXPECT_EQ(words, (philox::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SequencesHaveTheirMoments) {
  const philox::Sequence sequence(/*seed=*/7, /*stream=*/3);
  const int64_t count = 200000;
  double uniform_sum = 0, uniform_squares = 0, sum = 0, squares = 0, fourth = 0, neighbours = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double u = sequence.Uniform(i);
    const double z = sequence.Normal(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    uniform_sum += u;
    uniform_squares += u * u;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    neighbours += z * sequence.Normal(i + 1);
  }
  // Five standard errors.
  const double error = 5 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(uniform_sum / count, 0.5, 0.289 * error);
  EXPECT_NEAR(uniform_squares / count, 1.0 / 3, 0.298 * error);
  EXPECT_NEAR(sum / count, 0, error);
  EXPECT_NEAR(squares / count, 1, 1.42 * error);
  EXPECT_NEAR(fourth / count, 3, 9.8 * error);
  EXPECT_NEAR(neighbours / count, 0, error);
}

TEST(Philox, UniformStaysBelowOne) {
  EXPECT_EQ(philox::Uniform(0), 0.0f);
  EXPECT_EQ(philox::Uniform(0xFFFFFFFF), 1.0f - 0x1p-24f);
}

Tensor Ones(const Shape& shape, DType dtype = DType::kF32) {
  return MakeTensor(std::vector<double>(static_cast<size_t>(NumElements(shape)), 1.0), shape, dtype);
}

Tensor Integers(const std::vector<int64_t>& values, const Shape& shape) { return ValueOf(Tensor::From(values, shape)); }

std::vector<double> Mask(float rate, int64_t stream, int64_t seed, int64_t step, const std::vector<int64_t>& index,
                         int64_t columns) {
  const int64_t rows = static_cast<int64_t>(index.size());
  return Doubles(RunOp(op::Dropout{rate, stream},
                       {Ones({rows, columns}), Integers({seed, step}, {2}), Integers(index, {rows})})[0]);
}

TEST(Dropout, EqualsTheFormulaInEveryDType) {
  const float rate = 0.3f;
  const int64_t seed = 0x123456789ABCDEF;
  const int64_t step = 5;
  const int64_t stream = 2;
  for (int64_t columns : {1, 3, 4, 5, 130, 1027}) {
    for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
      const std::vector<int64_t> index = {0, 7, (int64_t{1} << 33) + 7, 3, 1, 2};
      const Tensor x = MakeTensor(RandomDoubles(6 * columns, 1, 2, 1), {2, 3, columns}, dtype);
      const Tensor y = RunOp(op::Dropout{rate, stream}, {x, Integers({seed, step}, {2}), Integers(index, {6})})[0];
      ASSERT_TRUE(y.valid());
      const std::vector<double> values = Doubles(x);
      const std::vector<double> got = Doubles(y);
      for (size_t i = 0; i < got.size(); ++i) {
        const int64_t column = static_cast<int64_t>(i) % columns;
        philox::Words words;
        philox::GenerateDropout(static_cast<uint64_t>(seed), index[i / static_cast<size_t>(columns)], column / 4, step,
                                stream, words.data());
        const bool kept = words[static_cast<size_t>(column % 4)] >= philox::DropoutThreshold(rate);
        const double expected = kept ? values[i] / (1.0 - static_cast<double>(rate)) : 0;
        ASSERT_NEAR(got[i], expected, dtype == DType::kBf16 ? 0x1p-8 * expected : 2e-7 * expected);
      }
    }
  }
}

TEST(Dropout, DoesNotDependOnHowTheBatchIsSplit) {
  const std::vector<double> whole = Mask(0.5f, 0, 1, 1, {10, 11, 12, 13}, 70);
  const std::vector<double> first = Mask(0.5f, 0, 1, 1, {10, 11}, 70);
  const std::vector<double> second = Mask(0.5f, 0, 1, 1, {12, 13}, 70);
  std::vector<double> joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(whole, joined);
  const WithThreads scope(2);
  std::vector<int64_t> index(500);
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int64_t>(i);
  const std::vector<double> parallel = Mask(0.5f, 0, 1, 1, index, 70);
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), parallel.begin() + 10 * 70));
}

TEST(Dropout, MasksDifferByEverythingThatTheyAreMadeOf) {
  const int64_t high = int64_t{1} << 32;
  const std::set<std::vector<double>> masks = {
      Mask(0.5f, 0, 1, 1, {0}, 128),    Mask(0.5f, 1, 1, 1, {0}, 128), Mask(0.5f, 0, 2, 1, {0}, 128),
      Mask(0.5f, 0, 1, 2, {0}, 128),    Mask(0.5f, 0, 1, 1, {1}, 128), Mask(0.5f, 0, 1, 1, {high}, 128),
      Mask(0.5f, 0, high, 1, {0}, 128), Mask(0.5f, 0, 1, 0, {0}, 128),
  };
  EXPECT_EQ(masks.size(), 8u);
}

TEST(Dropout, KeepsTheExpectedShare) {
  for (float rate : {0.1f, 0.5f, 0.9f}) {
    const std::vector<double> mask = Mask(rate, 0, 3, 1, {0, 1, 2, 3, 4, 5, 6, 7}, 10000);
    double kept = 0;
    for (double value : mask) kept += value != 0 ? 1 : 0;
    const double share = 1 - static_cast<double>(rate);
    EXPECT_NEAR(kept / 80000, share, 5 * std::sqrt(share * (1 - share) / 80000));
  }
}

TEST(Dropout, RateZeroIsTheIdentityAndDroppedNanIsZero) {
  const Tensor x = MakeTensor(RandomDoubles(35, -1, 1, 2), {5, 7});
  const Tensor index = Integers({0, 1, 2, 3, 4}, {5});
  EXPECT_EQ(Doubles(RunOp(op::Dropout{0.0f, 0}, {x, Integers({1, 1}, {2}), index})[0]), Doubles(x));
  const Tensor nan = MakeTensor(std::vector<double>(35, std::nan("")), {5, 7});
  int64_t dropped = 0;
  for (double value : Doubles(RunOp(op::Dropout{0.5f, 0}, {nan, Integers({1, 1}, {2}), index})[0])) {
    if (value == 0) ++dropped;
  }
  EXPECT_GT(dropped, 5);
  EXPECT_LT(dropped, 30);
  EXPECT_EQ(
      RunOp(op::Dropout{0.5f, 0}, {MakeTensor({}, {0, 7}), Integers({1, 1}, {2}), Integers({}, {0})})[0].num_elements(),
      0);
}

}  // namespace
}  // namespace gemmill
