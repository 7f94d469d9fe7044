#include "gemmill/data/normalize.h"

#include <limits>

#include "tests/data/testing.h"

namespace gemmill {
namespace {

using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

Dataset Floats(const std::vector<float>& values, const Shape& shape) {
  return Must(Dataset::Create({{"x", Must(Tensor::From(values, shape))}}));
}

std::vector<float> Gathered(const Dataset& dataset, const Normalization& normalization,
                            const std::vector<int64_t>& index) {
  return Values<float>(Must(Must(dataset.WithNormalization("x", normalization)).Gather(index))[0].values);
}

TEST(StandardizeTest, EachFeatureHasMeanZeroAndDeviationOne) {
  const Dataset train = Floats({1, 10, 3, 30, 5, 50}, {3, 2});
  const Normalization found = Must(Standardize(train, "x"));
  EXPECT_THAT(found.shift, ElementsAre(DoubleEq(3), DoubleEq(30)));
  const float end = 1.22474487f;  // sqrt(3/2)
  EXPECT_THAT(Gathered(train, found, {0, 1, 2}), ElementsAre(FloatNear(-end, 1e-6f), FloatNear(-end, 1e-6f), 0, 0,
                                                             FloatNear(end, 1e-6f), FloatNear(end, 1e-6f)));
}

TEST(StandardizeTest, TheTestSetIsMeasuredByTheTrainingSet) {
  const Normalization found = Must(Standardize(Floats({-1, 1, -1, 1}, {4, 1}), "x"));
  EXPECT_THAT(Gathered(Floats({3, -7}, {2, 1}), found, {0, 1}), ElementsAre(3, -7));
}

TEST(StandardizeTest, GlobalStatisticsAreOfAllElements) {
  const Dataset train = Must(Dataset::Create({{"x", Must(Tensor::From(std::vector<uint8_t>{0, 2, 4, 10}, {2, 2}))}}));
  const Normalization found = Must(Standardize(train, "x", Statistics::kGlobal));
  EXPECT_THAT(found.shift, ElementsAre(DoubleEq(4)));
  EXPECT_THAT(found.scale, ElementsAre(DoubleEq(1 / 3.7416573867739413)));  // sqrt(14)
}

TEST(StandardizeTest, AConstantFeatureBecomesZero) {
  // 0.1 and 16777217/3 are not exact in binary: a mean by plain summing would miss them by a rounding error.
  for (float value : {0.0f, 0.1f, 5592405.67f, -3e38f}) {
    const Dataset train = Floats(std::vector<float>(1001, value), {1001, 1});
    EXPECT_THAT(Gathered(train, Must(Standardize(train, "x")), {0, 500, 1000}), Each(0.0f)) << value;
  }
}

TEST(StandardizeTest, ALargeMeanDoesNotHideASmallDeviation) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(i % 2 == 0 ? 40000.0f : 40000.25f);
  const Dataset train = Floats(values, {1000, 1});
  EXPECT_THAT(Gathered(train, Must(Standardize(train, "x")), {0, 1}),
              ElementsAre(FloatNear(-1, 1e-6f), FloatNear(1, 1e-6f)));
}

TEST(StandardizeTest, RefusesWhatHasNoStatistics) {
  EXPECT_THAT(Error(Standardize(Floats({1}, {1}), "y")), HasSubstr("no field 'y'"));
  EXPECT_THAT(Error(Standardize(Floats({}, {3, 0}), "x")), HasSubstr("f32[3, 0]: there is nothing to standardize"));
  const Tensor infinite = Must(Tensor::From(std::vector<float>{1, std::numeric_limits<float>::infinity()}, {2}));
  const Dataset unchecked = Must(Dataset::Create({{"x", infinite}}, {.check_finite = false}));
  EXPECT_THAT(Error(Standardize(unchecked, "x")), HasSubstr("field 'x', column 0"));
}

}  // namespace
}  // namespace gemmill
