#include "gemmill/data/order.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using ::testing::ElementsAre;

TEST(EpochOrderTest, IsAPermutation) {
  for (int64_t samples : {0, 1, 2, 3, 100, 4097}) {
    std::vector<int64_t> order = EpochOrder(samples, true, 7, 3);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, EpochOrder(samples, false, 7, 3));
    for (int64_t i = 0; i < samples; ++i) EXPECT_EQ(order[i], i);
  }
}

// The order is part of what a checkpoint relies on: it may never change.
TEST(EpochOrderTest, IsTheSameInEveryBuild) {
  EXPECT_THAT(EpochOrder(10, true, 1, 0), ElementsAre(1, 9, 0, 7, 4, 2, 5, 3, 8, 6));
  EXPECT_THAT(EpochOrder(10, true, 1, 1), ElementsAre(2, 9, 4, 6, 0, 3, 1, 7, 5, 8));
  EXPECT_THAT(EpochOrder(10, true, 2, 0), ElementsAre(9, 8, 3, 7, 1, 6, 2, 4, 5, 0));
}

TEST(EpochOrderTest, SeedsAndEpochsAllDiffer) {
  std::set<std::vector<int64_t>> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, ~uint64_t{0}}) {
    for (int64_t epoch = 0; epoch < 50; ++epoch) seen.insert(EpochOrder(40, true, seed, epoch));
  }
  EXPECT_EQ(seen.size(), 250);
}

TEST(EpochOrderTest, EveryPlaceIsEquallyLikely) {
  constexpr int kEpochs = 12000, kSamples = 6;
  int counts[kSamples][kSamples] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = EpochOrder(kSamples, true, 5, epoch);
    for (int place = 0; place < kSamples; ++place) ++counts[place][order[place]];
  }
  const double expected = kEpochs / kSamples, deviation = std::sqrt(expected * (1 - 1.0 / kSamples));
  for (const auto& row : counts) {
    for (int count : row) EXPECT_NEAR(count, expected, 4.5 * deviation);
  }
}

TEST(RankShareTest, SharesFollowOneAnotherAndDifferByAtMostOne) {
  for (int64_t samples : {0, 1, 3, 7, 8, 9, 1000}) {
    for (int64_t world : {1, 2, 3, 8}) {
      int64_t end = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        const Share share = RankShare(samples, rank, world);
        EXPECT_EQ(share.begin, end);
        end = share.end;
        EXPECT_GE(share.end - share.begin, samples / world);
        EXPECT_LE(share.end - share.begin, (samples + world - 1) / world);
      }
      EXPECT_EQ(end, samples);
    }
  }
}

}  // namespace
}  // namespace gemmill
