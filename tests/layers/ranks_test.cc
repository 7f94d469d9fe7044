// Ranks as threads: any number of them trains as one process does.
#include <thread>

#include "tests/layers/random_classifier.h"

namespace gemmill {
namespace {

using testing::HasSubstr;

struct RankResult {
  absl::Status status;
  std::vector<StepReport> reports;
  std::vector<std::vector<double>> parameters;
};

// The rows [begin, end) of a batch, as this rank's part of it.
Batch Part(const Batch& all, int64_t begin, int64_t end) {
  Batch part = all;
  for (Field& field : part.fields) field.values = field.values.Rows(begin, end).value();
  part.samples = end - begin;
  part.rank_offset = begin;
  return part;
}

using Shares = std::vector<int64_t>;  // where each rank's part of a batch ends

std::vector<RankResult> TrainRanks(int64_t world, const std::vector<std::pair<Batch, Shares>>& steps,
                                   const std::function<TrainerOptions(int64_t rank)>& options_of) {
  const auto communicators = LocalCommunicators(world).value();
  std::vector<RankResult> results(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      RankResult& result = results[static_cast<size_t>(rank)];
      const Mlp model = Classifier(0.25f);
      TrainerOptions options = options_of(rank);
      options.global_batch = 24;
      options.communicator = communicators[static_cast<size_t>(rank)];
      Trainer trainer =
          Trainer::Create(model, AdamW({.learning_rate = 1e-2}), ClassificationLoss(model), options).value();
      for (const auto& [batch, shares] : steps) {
        const int64_t begin = rank == 0 ? 0 : shares[static_cast<size_t>(rank - 1)];
        const absl::StatusOr<StepReport> report = trainer.Step(Part(batch, begin, shares[static_cast<size_t>(rank)]));
        if (!report.ok()) {
          result.status = report.status();
          break;
        }
        result.reports.push_back(*report);
      }
      result.parameters = Snapshot(model);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

Shares Even(int64_t samples, int64_t world) {
  Shares shares;
  for (int64_t rank = 1; rank <= world; ++rank) shares.push_back(samples * rank / world);
  return shares;
}

std::vector<std::pair<Batch, Shares>> EvenSteps(int64_t world) {
  std::vector<std::pair<Batch, Shares>> steps;
  for (uint32_t i = 0; i < 10; ++i) {
    const int64_t samples = i % 4 == 3 ? 2 : 24;  // fewer than three ranks
    steps.emplace_back(ClassificationBatch(samples, i), Even(samples, world));
  }
  return steps;
}

void ExpectSameResults(const std::vector<RankResult>& ranks, const RankResult& one) {
  for (const RankResult& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status;
    ASSERT_EQ(rank.reports.size(), one.reports.size());
    for (size_t i = 0; i < one.reports.size(); ++i) {
      EXPECT_NEAR(rank.reports[i].loss, one.reports[i].loss, 2e-5) << i;
      EXPECT_NEAR(rank.reports[i].gradient_norm, one.reports[i].gradient_norm, 2e-5);
      EXPECT_EQ(rank.reports[i].samples, one.reports[i].samples);
    }
    ExpectNear(rank.parameters, one.parameters, 5e-4);
    EXPECT_EQ(rank.parameters, ranks[0].parameters);  // to the bit
  }
}

TEST(Ranks, TrainAsOneProcessDoes) {
  const RankResult one = TrainRanks(1, EvenSteps(1), [](int64_t) { return TrainerOptions{}; })[0];
  for (int64_t world : {1, 2, 3}) {
    SCOPED_TRACE(world);
    ExpectSameResults(TrainRanks(world, EvenSteps(world), [](int64_t) { return TrainerOptions{.micro_batch = 5}; }),
                      one);
    ExpectSameResults(TrainRanks(world, EvenSteps(world), [](int64_t) { return TrainerOptions{.trace = false}; }), one);
  }
}

TEST(Ranks, EachRunsTheMicroBatchThatItsMemoryHolds) {
  const RankResult one = TrainRanks(1, EvenSteps(1), [](int64_t) { return TrainerOptions{}; })[0];
  std::vector<PlanEvent> plans(3);
  const auto options = [&](int64_t rank) {
    TrainerOptions with{.micro_batch = MicroBatch::Auto()};
    with.memory_budget = MemoryBudget::Parse(rank == 1 ? "4200" : "1MB").value();
    with.on_plan = [&plans, rank](const PlanEvent& event) { plans[static_cast<size_t>(rank)] = event; };
    return with;
  };
  ExpectSameResults(TrainRanks(3, EvenSteps(3), options), one);
  EXPECT_LT(plans[1].micro_batch, plans[0].micro_batch);
  for (const PlanEvent& plan : plans) EXPECT_EQ(plan.predicted_bytes, plan.measured_bytes);
}

TEST(Ranks, PartsMayBeUnevenOrEmpty) {
  std::vector<std::pair<Batch, Shares>> whole, uneven;
  for (uint32_t i = 0; i < 6; ++i) {
    const Batch batch = ClassificationBatch(9, i);
    whole.emplace_back(batch, Shares{9});
    uneven.emplace_back(batch, i % 2 == 0 ? Shares{1, 1, 9} : Shares{0, 8, 9});
  }
  const RankResult one = TrainRanks(1, whole, [](int64_t) { return TrainerOptions{}; })[0];
  ExpectSameResults(TrainRanks(3, uneven, [](int64_t) { return TrainerOptions{}; }), one);
}

TEST(Ranks, OneRanksNanSkipsTheStepOnAll) {
  Batch poisoned = ClassificationBatch(24, 1);
  std::vector<double> values = Doubles(poisoned.fields[0].values);
  values.back() = std::nan("");
  poisoned.fields[0].values = MakeTensor(values, {24, 5});
  const auto results = TrainRanks(2, {{poisoned, Even(24, 2)}}, [](int64_t) { return TrainerOptions{}; });
  for (const RankResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(result.reports[0].skipped);
    EXPECT_EQ(result.reports[0].step, 0);
    EXPECT_EQ(result.parameters, Snapshot(Classifier(0.25f)));
  }
}

TEST(Ranks, AnErrorOnOneIsAnErrorOnAll) {
  // A label out of range, which only rank 1 sees.
  Batch wrong = ClassificationBatch(24, 1);
  std::vector<double> labels = Doubles(wrong.fields[1].values);
  labels.back() = 77;
  wrong.fields[1].values = MakeTensor(labels, {24}, DType::kI64);
  auto results = TrainRanks(3, {{wrong, Even(24, 3)}}, [](int64_t) { return TrainerOptions{}; });
  EXPECT_THAT(Message(results[2].status), HasSubstr("77"));
  EXPECT_THAT(Message(results[0].status), testing::AllOf(HasSubstr("rank 2 of 3 failed"), HasSubstr("77")));
  // A budget that nothing fits, on rank 0.
  const auto poor = [](int64_t rank) {
    TrainerOptions options{.micro_batch = MicroBatch::Auto()};
    options.memory_budget = MemoryBudget::Parse(rank == 0 ? "100" : "1MB").value();
    return options;
  };
  results = TrainRanks(2, EvenSteps(2), poor);
  EXPECT_THAT(Message(results[1].status), testing::AllOf(HasSubstr("rank 0 of 2 failed"), HasSubstr("memory")));
  EXPECT_THAT(Message(results[0].status), HasSubstr("not even"));
}

}  // namespace
}  // namespace gemmill
