#include "gemmill/runtime/schedule/batch_scheduler.h"

#include <random>

#include "gemmill/runtime/schedule/memory_budget.h"
#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MicroBatchLadder, PowersOfTwoAndPartsOfTheGlobalBatch) {
  EXPECT_THAT(MicroBatchLadder(1), ElementsAre(1));
  EXPECT_THAT(MicroBatchLadder(10), ElementsAre(1, 2, 3, 4, 5, 8, 10));
  EXPECT_THAT(MicroBatchLadder(16), ElementsAre(1, 2, 3, 4, 6, 8, 16));
  EXPECT_EQ(MicroBatchLadder(INT64_MAX).back(), INT64_MAX);
}

// 100 bytes and 10 a sample; the seconds of each size from a function.
MicroBatchChooser Chooser(int64_t global_batch, const std::function<double(int64_t)>& seconds) {
  return MicroBatchChooser(global_batch, [seconds](int64_t size) -> absl::StatusOr<StepPrediction> {
    return StepPrediction{100 + 10 * size, seconds(size)};
  });
}

double LargerIsFaster(int64_t size) { return 1 + 1.0 / static_cast<double>(size); }

TEST(MicroBatchChooser, TheFastestThatFitsAndOfThoseAsFastTheLargest) {
  MicroBatchChooser chooser = Chooser(64, [](int64_t size) { return size == 8 ? 1.0 : size == 16 ? 1.019 : 1.021; });
  EXPECT_EQ(chooser.Choose(10000)->micro_batch, 16);
  EXPECT_EQ(chooser.Choose(10000)->max_micro_batch, 64);
  EXPECT_EQ(chooser.Choose(100 + 80)->micro_batch, 8);
  EXPECT_EQ(chooser.Choose(100 + 79)->max_micro_batch, 4);
  EXPECT_EQ(chooser.Choose(109)->micro_batch, 0);
  EXPECT_EQ(chooser.Choose(10000, 4)->micro_batch, 4);
}

// Sizes beyond one that does not fit are not asked for, whatever they would need.
TEST(MicroBatchChooser, EverySmallerSizeFitsToo) {
  MicroBatchChooser chooser(64, [](int64_t size) -> absl::StatusOr<StepPrediction> {
    return StepPrediction{size == 8 ? 1000 : size, 1.0};
  });
  EXPECT_LT(chooser.Choose(500)->max_micro_batch, 8);
}

std::optional<BatchDecision> Next(BatchScheduler& scheduler, int64_t budget) {
  const auto decision = scheduler.Next(budget);
  EXPECT_TRUE(decision.ok()) << decision.status();
  return decision.ok() ? *decision : std::nullopt;
}

// Of sizes of 16 and more the quick way is right.
TEST(MicroBatchChooser, WhatAQuickPredictionGetsWrongIsFoundBeforeItIsChosen) {
  std::vector<int64_t> asked;
  const auto exact = [&](int64_t size) -> absl::StatusOr<StepPrediction> {
    asked.push_back(size);
    return StepPrediction{size < 16 ? 100 * size : 10 * size, 1.0};
  };
  const auto quick = [](int64_t size) -> absl::StatusOr<StepPrediction> { return StepPrediction{10 * size, 1.0}; };
  MicroBatchChooser chooser(64, quick, exact);
  EXPECT_EQ(chooser.Choose(1000).value().micro_batch, 64);
  EXPECT_EQ(asked, std::vector<int64_t>({64}));
  EXPECT_EQ(chooser.Choose(150).value().micro_batch, 1);
  EXPECT_EQ(chooser.Choose(150).value().predicted_bytes, 100);
  EXPECT_EQ(chooser.At(8).value().bytes, 800);
  EXPECT_EQ(chooser.Exactly(16).value().bytes, 160);
}

TEST(BatchScheduler, ShrinksAtOnceAndGrowsBackAfterAWhile) {
  BatchScheduler scheduler(Chooser(64, LargerIsFaster), {});
  EXPECT_EQ(Next(scheduler, 1000)->micro_batch, 64);
  EXPECT_FALSE(Next(scheduler, 740).has_value());  // into the reserve, but within the budget
  EXPECT_EQ(Next(scheduler, 739)->micro_batch, 32);
  EXPECT_EQ(scheduler.current().budget_bytes, 739);
  for (int i = 1; i < BatchScheduler::kGrowAfter; ++i) EXPECT_FALSE(Next(scheduler, 1000).has_value()) << i;
  EXPECT_FALSE(Next(scheduler, 500).has_value());  // begins anew
  for (int i = 1; i < BatchScheduler::kGrowAfter; ++i) EXPECT_FALSE(Next(scheduler, 1000).has_value()) << i;
  EXPECT_EQ(Next(scheduler, 1000)->micro_batch, 64);
}

TEST(BatchScheduler, GrowsToWhatTheLeastOfTheBudgetsHolds) {
  BatchScheduler scheduler(Chooser(64, LargerIsFaster), {});
  EXPECT_EQ(Next(scheduler, 200)->micro_batch, 8);
  for (int i = 1; i < BatchScheduler::kGrowAfter; ++i) EXPECT_FALSE(Next(scheduler, i == 3 ? 480 : 5000).has_value());
  EXPECT_EQ(Next(scheduler, 5000)->micro_batch, 32);
}

TEST(BatchScheduler, TheSameBudgetsGiveTheSameSizes) {
  BatchScheduler a(Chooser(64, LargerIsFaster), {});
  BatchScheduler b(Chooser(64, LargerIsFaster), {});
  std::mt19937 random(3);
  for (int step = 0; step < 2000; ++step) {
    const int64_t budget = 120 + static_cast<int64_t>(random() % 800);
    const auto decision = Next(a, budget);
    Next(b, budget);
    EXPECT_EQ(a.current().micro_batch, b.current().micro_batch);
    EXPECT_TRUE(a.current().micro_batch == 1 || a.current().predicted_bytes <= budget);
    EXPECT_TRUE(!decision.has_value() || decision->predicted_bytes == 100 + 10 * decision->micro_batch);
  }
}

TEST(BatchScheduler, ABudgetThatFallsBelowOneSampleLaterDoesNotEndTheRun) {
  BatchScheduler scheduler(Chooser(64, LargerIsFaster), {});
  Next(scheduler, 1000);
  const auto smallest = Next(scheduler, 50);
  ASSERT_TRUE(smallest.has_value());
  EXPECT_EQ(smallest->micro_batch, 1);
  EXPECT_FALSE(Next(scheduler, 50).has_value());
  EXPECT_THAT(Message(BatchScheduler(Chooser(64, LargerIsFaster), {}).Next(50).status()), HasSubstr("110 bytes"));
}

TEST(BatchScheduler, AfterAFailedAllocationItWaitsLonger) {
  BatchScheduler scheduler(Chooser(64, LargerIsFaster), {});
  Next(scheduler, 1000);
  EXPECT_EQ((*scheduler.AfterFailedAllocation())->micro_batch, 32);
  for (int i = 1; i < BatchScheduler::kGrowAfterFailure; ++i) EXPECT_FALSE(Next(scheduler, 1000).has_value()) << i;
  EXPECT_EQ(Next(scheduler, 1000)->micro_batch, 64);
  BatchScheduler one(Chooser(1, LargerIsFaster), {});
  Next(one, 1000);
  EXPECT_FALSE(one.AfterFailedAllocation()->has_value());
}

TEST(BatchScheduler, AFixedSizeStays) {
  BatchScheduler scheduler(Chooser(64, LargerIsFaster), {.fixed = 10});
  EXPECT_EQ(Next(scheduler, 1000)->micro_batch, 10);
  EXPECT_EQ(scheduler.current().max_micro_batch, 64);
  EXPECT_FALSE(Next(scheduler, 10).has_value());
  EXPECT_FALSE(scheduler.AfterFailedAllocation()->has_value());
  EXPECT_THAT(Message(BatchScheduler(Chooser(64, LargerIsFaster), {.fixed = 10}).Next(199).status()),
              testing::AllOf(HasSubstr("10"), HasSubstr("200 bytes"), HasSubstr("199"), HasSubstr("8 fits")));
}

TEST(BatchScheduler, ResumesWithTheSizeOfBeforeIfItFits) {
  BatchScheduler fits(Chooser(64, LargerIsFaster), {.resumed = 4});
  EXPECT_EQ(Next(fits, 1000)->micro_batch, 4);
  BatchScheduler does_not(Chooser(64, LargerIsFaster), {.resumed = 64});
  EXPECT_EQ(Next(does_not, 500)->micro_batch, 32);
}

TEST(BatchScheduler, TuningTakesTheSizeThatIsTimedFastest) {
  BatchScheduler scheduler(Chooser(64, [](int64_t) { return 1.0; }), {.tune = true});
  std::string reason;
  for (int step = 0; step < 100; ++step) {
    if (const auto decision = Next(scheduler, 1000)) reason = decision->reason;
    scheduler.Took(scheduler.current().micro_batch == 22 ? 1.0 : 1.5);
  }
  EXPECT_EQ(scheduler.current().micro_batch, 22);
  EXPECT_THAT(reason, HasSubstr("timed fastest"));
}

}  // namespace
}  // namespace gemmill
