// What training is planned to hold is what it holds, to the byte; the choice of the micro-batch; budgets that move.
#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "gemmill/runtime/schedule/memory_budget.h"
#include "tests/layers/random_classifier.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<Optimizer> OptimizerOf(uint32_t seed) {
  if (seed % 3 == 0) return std::make_shared<Sgd>(SgdOptions{.momentum = seed % 2 == 0 ? 0.9f : 0.0f});
  return std::make_shared<AdamW>();
}

// The allocator's own count, not the trainer's.
TEST(MemoryPlan, PredictedPeakIsTheMeasuredOneOf200RandomModels) {
  ASSERT_TRUE(CalibrationOfThisMachine().ok());  // measures with tensors of its own
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    const RandomClassifier model(seed);
    const int64_t global_batch = pick(1, 70);
    const bool automatic = seed % 2 == 0;
    const std::vector<Batch> batches = {model.MakeData(global_batch, seed), model.MakeData(global_batch, seed + 1),
                                        model.MakeData(pick(1, global_batch), seed + 2)};
    const Dataset test = Dataset::Create(model.MakeData(pick(1, 90), seed + 3).fields).value();
    std::vector<PlanEvent> events;
    Trainer trainer = Trainer::Make(model, OptimizerOf(seed), model.loss(),
                                    {.global_batch = global_batch,
                                     .micro_batch = automatic ? MicroBatch::Auto() : MicroBatch(pick(1, global_batch)),
                                     .precision = seed % 5 == 0 ? Precision::kBf16 : Precision::kF32,
                                     .on_plan = [&](const PlanEvent& event) { events.push_back(event); }})
                          .value();
    // A data set's batches are beside the plan: what loaders read ahead counts in none of these.
    const int64_t outside = BytesInUse(Device::Cpu()) - ParameterBytes(model);
    ResetPeakBytes(Device::Cpu());
    for (const Batch& batch : batches) MustStep(trainer, batch);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].predicted_bytes, events[0].measured_bytes);
    EXPECT_EQ(events[0].micro_batch, trainer.micro_batch());
    EXPECT_LE(events[0].predicted_bytes, events[0].budget_bytes);
    EXPECT_EQ(events[0].predicted_bytes, PeakBytes(Device::Cpu()) - outside);
    // Neither evaluation nor another epoch takes more.
    const int64_t held = BytesInUse(Device::Cpu());
    ASSERT_TRUE(trainer.Evaluate(test).ok());
    for (const Batch& batch : batches) MustStep(trainer, batch);
    EXPECT_EQ(BytesInUse(Device::Cpu()), held);
  }
}

TEST(MemoryPlan, TheLargestThatFitsIsTheEdgeOfTheLadder) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const RandomClassifier model(seed);
    const int64_t global_batch = std::uniform_int_distribution<int64_t>(1, seed % 20 == 0 ? 300 : 40)(random);
    const auto report = [&](int64_t micro_batch, int64_t budget) {
      return MakeMemoryReport(model, model.loss(), AdamW(), model.fields(),
                              {.device = seed % 2 == 0 ? "cpu" : "h100",
                               .global_batch = global_batch,
                               .micro_batch = micro_batch,
                               .budget_bytes = budget})
          .value();
    };
    const std::vector<int64_t> ladder = MicroBatchLadder(global_batch);
    std::vector<int64_t> bytes;
    for (const int64_t size : ladder) bytes.push_back(report(size, 0).predicted_bytes);
    const int64_t budget =
        std::uniform_int_distribution<int64_t>(bytes.front() / 2, bytes.back() + bytes.back() / 8)(random);
    int64_t most = 0;
    for (size_t i = 0; i < ladder.size() && bytes[i] <= budget - MemoryReserve(budget); ++i) most = ladder[i];
    const MemoryReport chosen = report(0, budget);
    EXPECT_EQ(chosen.max_micro_batch, most);
    EXPECT_EQ(chosen.fits, most > 0);
    EXPECT_LE(chosen.micro_batch, std::max<int64_t>(most, 1));
    int64_t live = 0;
    for (const MemoryItem& item : chosen.live_at_peak) live += item.bytes;
    EXPECT_EQ(live, chosen.predicted_bytes);
  }
}

TEST(MemoryPlan, AModelThatNeedsMoreForSmallSizesIsPlannedExactly) {
  const Mlp model = Classifier();
  const LossFunction loss = [&](const Inputs& in) {
    const Var x = in["x"];
    const Var logits = model(x);
    if (x.shape()[0] > 20) return CrossEntropy(logits, in["label"]);
    const Var wide = Tanh(BroadcastTo(Reshape(logits, {-1, 3, 1}), {x.shape()[0], 3, 2000}));
    return CrossEntropy(logits + Mean(wide, {.axes = {2}}), in["label"]);
  };
  for (const int64_t budget : {int64_t{1} << 30, int64_t{300} << 10, int64_t{150} << 10}) {
    SCOPED_TRACE(budget);
    const auto report = [&](int64_t micro_batch) {
      return MakeMemoryReport(model, loss, AdamW(), {{"x", {{1, 5}}}, {"label", {{1}, DType::kI64}}},
                              {.global_batch = 64, .micro_batch = micro_batch, .budget_bytes = budget})
          .value();
    };
    const MemoryReport chosen = report(0);
    int64_t most = 0;
    for (const int64_t size : MicroBatchLadder(64)) {
      if (report(size).predicted_bytes > budget - MemoryReserve(budget)) break;
      most = size;
    }
    EXPECT_EQ(chosen.max_micro_batch, most);
    EXPECT_EQ(chosen.predicted_bytes, report(chosen.micro_batch).predicted_bytes);
    std::vector<PlanEvent> events;
    Trainer trainer = Trainer::Create(model, AdamW(), loss,
                                      {.global_batch = 64,
                                       .micro_batch = MicroBatch::Auto(),
                                       .memory_budget = MemoryBudget::Parse(absl::StrCat(budget, "B")).value(),
                                       .on_plan = [&](const PlanEvent& event) { events.push_back(event); }})
                          .value();
    MustStep(trainer, ClassificationBatch(64, 1));
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].predicted_bytes, events[0].measured_bytes);
  }
}

// Three epochs of steps of one model, in whatever micro-batches.
struct Training {
  std::vector<double> losses;
  std::vector<std::vector<double>> parameters;
  std::vector<PlanEvent> events;
};
absl::StatusOr<Training> Train(const TrainerOptions& given, int steps, int64_t samples = 64) {
  const Mlp model = Classifier(0.25f);
  Training training;
  TrainerOptions options = given;
  options.global_batch = samples;
  options.on_plan = [&](const PlanEvent& event) { training.events.push_back(event); };
  GM_ASSIGN_OR_RETURN(Trainer trainer,
                      Trainer::Create(model, AdamW({.learning_rate = 3e-3}), ClassificationLoss(model), options));
  for (int step = 0; step < steps; ++step) {
    const int64_t left = step % 5 == 4 ? samples - 13 : samples;
    GM_ASSIGN_OR_RETURN(const StepReport report,
                        trainer.Step(ClassificationBatch(left, static_cast<uint32_t>(step % 10))));
    training.losses.push_back(report.loss);
  }
  training.parameters = Snapshot(model);
  return training;
}

void ExpectSameTraining(const Training& a, const Training& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    ASSERT_NEAR(a.losses[i], b.losses[i], 1e-4 * std::abs(b.losses[i]) + 1e-6) << "step " << i;
  }
  ExpectNear(a.parameters, b.parameters, 1e-3);
}

TEST(MemoryPlan, ThousandStepsUnderABudgetThatMovesAreTheSameTraining) {
  std::atomic<int64_t> budget{int64_t{1} << 30};
  std::atomic<bool> done{false};
  std::thread mover([&] {
    std::mt19937 random(7);
    while (!done) {
      budget = std::uniform_int_distribution<int64_t>(1000, 60000)(random);
      for (int i = 0; i < 50 && !done; ++i) std::this_thread::yield();
    }
  });
  TrainerOptions options{.micro_batch = MicroBatch::Auto()};
  options.memory_budget = MemoryBudget::From([&]() -> absl::StatusOr<int64_t> { return budget.load(); });
  const absl::StatusOr<Training> moved = Train(options, 1000);
  done = true;
  mover.join();
  ASSERT_TRUE(moved.ok()) << moved.status();
  for (const PlanEvent& event : moved->events) EXPECT_EQ(event.predicted_bytes, event.measured_bytes);
  ExpectSameTraining(*moved, Train({.micro_batch = 64}, 1000).value());
}

TEST(MemoryPlan, ABudgetShrinksAtOnceAndGrowsBackLater) {
  int64_t budget = int64_t{1} << 30;
  TrainerOptions options{.micro_batch = MicroBatch::Auto()};
  int step = 0;
  const Training still = Train({.micro_batch = 64}, 40).value();
  const int64_t all = still.events[0].predicted_bytes;
  options.memory_budget = MemoryBudget::From([&]() -> absl::StatusOr<int64_t> {
    budget = step >= 5 && step < 12 ? all - 1 : 2 * all;
    ++step;
    return budget;
  });
  const Training moved = Train(options, 40).value();
  ExpectSameTraining(moved, still);
  ASSERT_EQ(moved.events.size(), 3u);
  EXPECT_EQ(moved.events[1].step, 6);
  EXPECT_LT(moved.events[1].micro_batch, moved.events[0].micro_batch);
  EXPECT_EQ(moved.events[2].step, 12 + BatchScheduler::kGrowAfter);
  EXPECT_EQ(moved.events[2].micro_batch, moved.events[0].micro_batch);
  EXPECT_THAT(moved.events[1].reason, HasSubstr("shrunk"));
  EXPECT_THAT(moved.events[2].reason, HasSubstr("grown"));
  for (const PlanEvent& event : moved.events) {
    EXPECT_EQ(event.predicted_bytes, event.measured_bytes);
    EXPECT_LE(event.measured_bytes, event.budget_bytes);
  }
}

// Every allocation of a run, in turn, fails once.
TEST(MemoryPlan, AnyAllocationMayFail) {
  ASSERT_TRUE(CalibrationOfThisMachine().ok());
  const TrainerOptions options{.micro_batch = MicroBatch::Auto()};
  const Training undisturbed = Train(options, 7).value();
  int failures = 0;
  for (int64_t fail = 0;; ++fail) {
    // Counted from the first allocation of the trainer's own: what the test makes of batches is not training.
    std::atomic<int64_t> left{fail};
    bool failed = false;
    SetAllocationFilter([&](int64_t) {
      if (MemoryAccountScope::Current() == nullptr || left-- != 0) return true;
      failed = true;
      return false;
    });
    const absl::StatusOr<Training> training = Train(options, 7);
    SetAllocationFilter(nullptr);
    ASSERT_TRUE(training.ok()) << fail << ": " << training.status();
    ExpectSameTraining(*training, undisturbed);
    if (!failed) break;
    ++failures;
    EXPECT_LT(training->events[0].micro_batch, undisturbed.events[0].micro_batch);
    EXPECT_THAT(training->events[0].reason, HasSubstr("could not be had"));
  }
  EXPECT_GT(failures, 10);
}

TEST(MemoryPlan, AFixedMicroBatchStaysWhenMemoryFails) {
  bool fail = true;
  SetAllocationFilter([&](int64_t) { return MemoryAccountScope::Current() == nullptr || !std::exchange(fail, false); });
  const absl::StatusOr<Training> training = Train({.micro_batch = 16}, 2);
  SetAllocationFilter(nullptr);
  EXPECT_EQ(training.status().code(), absl::StatusCode::kResourceExhausted) << training.status();
}

TEST(MemoryPlan, TimingSizesOnRealStepsChangesNothing) {
  TrainerOptions options{.micro_batch = MicroBatch::Auto()};
  options.tune_micro_batch = true;
  const Training tuned = Train(options, 60).value();
  ExpectSameTraining(tuned, Train({.micro_batch = 64}, 60).value());
  EXPECT_THAT(tuned.events.front().reason, HasSubstr("timing"));
  EXPECT_THAT(tuned.events.back().reason, HasSubstr("timed fastest"));
}

TEST(MemoryPlan, TheMicroBatchOfAResumedRunIsUsedAgain) {
  const Mlp model = Classifier();
  Trainer trainer = Trainer::Create(model, AdamW(), ClassificationLoss(model),
                                    {.global_batch = 64, .micro_batch = MicroBatch::Auto()})
                        .value();
  trainer.ResumeMicroBatch(4);
  MustStep(trainer, ClassificationBatch(64, 1));
  EXPECT_EQ(trainer.micro_batch(), 4);
}

std::string Refusal(TrainerOptions options, const std::string& budget) {
  options.memory_budget = MemoryBudget::Parse(budget).value();
  return Message(Train(options, 1).status());
}

TEST(MemoryPlan, BadBudgetsAndContradictionsAreNamed) {
  EXPECT_THAT(Refusal({.micro_batch = MicroBatch::Auto()}, "1KB"),
              AllOf(HasSubstr("not even a micro-batch of one sample"), HasSubstr("1000"), HasSubstr("fc1.weight"),
                    HasSubstr("budget of")));
  EXPECT_THAT(Refusal({.micro_batch = 64}, "3KB"), AllOf(HasSubstr("micro-batch of 64"), HasSubstr("3000")));
  EXPECT_THAT(Refusal({.micro_batch = MicroBatch::Auto(), .trace = false}, "1MB"), HasSubstr("trace"));
  EXPECT_THAT(Refusal({.micro_batch = MicroBatch::Auto(), .check_numerics = true}, "1MB"), HasSubstr("check_numerics"));
  TrainerOptions tuned{.micro_batch = 8};
  tuned.tune_micro_batch = true;
  EXPECT_THAT(Refusal(tuned, ""), AllOf(HasSubstr("tune_micro_batch"), HasSubstr("8")));
}

// The budget that the error asks for is one that one sample fits.
TEST(MemoryPlan, TheErrorSaysWhatWouldFit) {
  const std::string refusal = Refusal({.micro_batch = MicroBatch::Auto()}, "1KB");
  const size_t at = refusal.find("from a budget of ") + 17;
  const int64_t enough = std::stoll(refusal.substr(at));
  EXPECT_THAT(Refusal({.micro_batch = MicroBatch::Auto()}, std::to_string(enough - 1)), HasSubstr("not even"));
  TrainerOptions options{.micro_batch = MicroBatch::Auto()};
  options.memory_budget = MemoryBudget::Parse(std::to_string(enough)).value();
  EXPECT_EQ(Train(options, 1).value().events[0].micro_batch, 1);
}

TEST(MemoryPlan, EagerTrainingTakesTheWholeBatch) {
  const Mlp model = Classifier();
  Trainer trainer = Trainer::Create(model, AdamW(), ClassificationLoss(model),
                                    {.global_batch = 8, .micro_batch = MicroBatch::Auto(), .trace = false})
                        .value();
  EXPECT_EQ(trainer.micro_batch(), 8);
  MustStep(trainer, ClassificationBatch(8, 1));
}

}  // namespace
}  // namespace gemmill
