// The block in training: what it adds up over a global batch, however that is split, replayed or skipped.
#include <cmath>
#include <limits>
#include <thread>

#include "gemmill/gemmill.h"
#include "tests/layers/moe.h"

namespace gemmill {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

// Linear, a block, Linear.
class MoeClassifier : public Module {
 public:
  static MoeClassifier Make(const MoeOptions& options) {
    return MoeClassifier(Linear::Create({.inputs = 5, .outputs = options.hidden}, {.seed = 1}).value(),
                         MakeMoe(options),
                         Linear::Create({.inputs = options.hidden, .outputs = 3}, {.seed = 2}).value());
  }
  Var operator()(Located x) const {
    const Var inner = fc1_(x);
    return fc2_(inner + moe_(inner));
  }
  const Moe& moe() const { return moe_; }

 private:
  MoeClassifier(Linear fc1, Moe moe, Linear fc2) : fc1_(std::move(fc1)), moe_(std::move(moe)), fc2_(std::move(fc2)) {
    AddModule("fc1", fc1_);
    AddModule("moe", moe_);
    AddModule("fc2", fc2_);
  }
  Linear fc1_;
  Moe moe_;
  Linear fc2_;
};

MoeOptions Small() {
  return {.hidden = 8,
          .ffn = 6,
          .experts = 4,
          .routing = Routing::kSigmoid,
          .balance_loss = 0.5,
          .z_loss = 0.1,
          .bias_update_rate = 0.01};
}

LossFunction LossOf(const MoeClassifier& model) {
  return [&model](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); };
}

// Labels that are ignored, so that the loss's count is not the block's.
Batch BatchOf(int64_t samples, uint32_t seed) {
  Batch batch = ClassificationBatch(samples, seed);
  std::vector<int64_t> labels = ValueOf(batch.fields[1].values.ToVector<int64_t>());
  for (size_t i = 0; i < labels.size(); i += 3) labels[i] = -100;
  batch.fields[1].values = ValueOf(Tensor::From(labels, {samples}));
  return batch;
}

struct Outcome {
  std::vector<std::vector<double>> parameters;
  std::vector<MoeStatistics> statistics;
};

Outcome Train(const TrainerOptions& options, int steps = 3) {
  const MoeClassifier model = MoeClassifier::Make(Small());
  Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 0.1}), LossOf(model), options).value();
  Outcome run;
  for (int step = 0; step < steps; ++step) {
    MustStep(trainer, BatchOf(24, static_cast<uint32_t>(step)));
    run.statistics.push_back(model.moe().statistics().value());
  }
  run.parameters = Snapshot(model);
  return run;
}

void ExpectSameTraining(const Outcome& a, const Outcome& b, double tolerance) {
  ExpectNear(a.parameters, b.parameters, tolerance);
  ASSERT_EQ(a.statistics.size(), b.statistics.size());
  for (size_t i = 0; i < a.statistics.size(); ++i) {
    EXPECT_EQ(a.statistics[i].tokens, b.statistics[i].tokens);
    EXPECT_EQ(a.statistics[i].tokens_per_expert, b.statistics[i].tokens_per_expert);
    EXPECT_NEAR(a.statistics[i].balance_loss, b.statistics[i].balance_loss, 1e-5);
    EXPECT_NEAR(a.statistics[i].z_loss, b.statistics[i].z_loss, 1e-5);
    EXPECT_NEAR(a.statistics[i].router_entropy, b.statistics[i].router_entropy, 1e-5);
  }
}

TEST(MoeTraining, ReplayedIsEager) {
  for (const int64_t micro_batch : {24, 7}) {
    const Outcome eager = Train({.global_batch = 24, .micro_batch = micro_batch, .trace = false}, 12);
    const Outcome replayed = Train({.global_batch = 24, .micro_batch = micro_batch}, 12);
    EXPECT_EQ(eager.parameters, replayed.parameters);
    ExpectSameTraining(eager, replayed, 0);
  }
}

TEST(MoeTraining, SplitsOfTheGlobalBatchChangeNothing) {
  const Outcome whole = Train({.global_batch = 24, .micro_batch = 24});
  for (const int64_t micro_batch : {12, 7, 1}) {
    ExpectSameTraining(whole, Train({.global_batch = 24, .micro_batch = micro_batch}), 2e-6);
  }
  ExpectSameTraining(whole, Train({.global_batch = 24, .micro_batch = MicroBatch::Auto()}), 2e-6);
}

// Steps of which the first rank has less and less, in the end nothing, and the others always the same.
Outcome TrainOnRank(int64_t world, int64_t rank, const TrainerOptions& options) {
  const MoeClassifier model = MoeClassifier::Make(Small());
  Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 0.1}), LossOf(model), options).value();
  const int64_t share = 24 / world;
  Outcome run;
  for (int step = 0; step < 3; ++step) {
    const int64_t first = share - step * share / 2;
    const bool alone = options.communicator == nullptr;
    const int64_t begin = alone || rank == 0 ? 0 : first + (rank - 1) * share;
    const int64_t end = alone ? first + (world - 1) * share : first + rank * share;
    Batch batch = BatchOf(24, static_cast<uint32_t>(step));
    for (Field& field : batch.fields) field.values = ValueOf(field.values.Rows(begin, end));
    batch.samples = end - begin;
    batch.rank_offset = begin;
    MustStep(trainer, batch);
    run.statistics.push_back(model.moe().statistics().value());
  }
  run.parameters = Snapshot(model);
  return run;
}

TEST(MoeTraining, RanksChangeNothing) {
  for (const int64_t world : {2, 3}) {
    const Outcome whole = TrainOnRank(world, 0, {.global_batch = 24});
    const auto communicators = LocalCommunicators(world).value();
    std::vector<Outcome> runs(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<size_t>(rank);
        runs[at] = TrainOnRank(world, rank, {.global_batch = 24, .communicator = communicators[at]});
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Outcome& run : runs) ExpectSameTraining(whole, run, 2e-6);
  }
}

// A step whose choices of four experts are 10, 2, 4 and 4.
struct Balancing {
  explicit Balancing(TrainerOptions options, bool spoilt = false)
      : model(RevealingMoe({.experts = 4, .top_k = 1, .routing = Routing::kSoftmax, .bias_update_rate = 0.25})),
        trainer(Trainer::Create(
                    model, Sgd({.learning_rate = 1e-3}),
                    [this, spoilt](const Inputs& in) {
                      return Mean(model(in["x"])) * (spoilt ? std::numeric_limits<double>::infinity() : 1.0);
                    },
                    options)
                    .value()) {
    std::vector<int64_t> chosen(10, 0);
    for (const int64_t expert : {1, 1, 2, 2, 2, 2, 3, 3, 3, 3}) chosen.push_back(expert);
    batch = MakeBatch({{"x", Logits(Choosing(chosen, 4))}});
  }
  Moe model;
  Trainer trainer;
  Batch batch;
};

TEST(MoeTraining, BiasesMoveOnceAStepAgainstTheirLoad) {
  for (const int64_t micro_batch : {20, 6}) {
    for (const bool trace : {true, false}) {
      Balancing run({.global_batch = 20, .micro_batch = micro_batch, .trace = trace});
      MustStep(run.trainer, run.batch);
      EXPECT_THAT(Read(run.model.parameter("router.bias")), ElementsAre(-0.25, 0.25, 0.25, 0.25));
      MustStep(run.trainer, run.batch);
      EXPECT_THAT(Read(run.model.parameter("router.bias")), ElementsAre(-0.5, 0.5, 0.5, 0.5));
    }
  }
}

TEST(MoeTraining, ASkippedStepIsCountedAndMovesNoBias) {
  Balancing run({.global_batch = 20}, /*spoilt=*/true);
  EXPECT_TRUE(MustStep(run.trainer, run.batch).skipped);
  EXPECT_THAT(run.model.statistics()->tokens_per_expert, ElementsAre(10, 2, 4, 4));
  EXPECT_THAT(Read(run.model.parameter("router.bias")), ElementsAre(0, 0, 0, 0));
}

TEST(MoeTraining, ATokenThatIsNotANumberSkipsTheStep) {
  for (const bool trace : {true, false}) {
    const MoeClassifier model = MoeClassifier::Make(Small());
    const std::vector<std::vector<double>> before = Snapshot(model);
    Trainer trainer =
        Trainer::Create(model, AdamW(), LossOf(model), {.global_batch = 24, .micro_batch = 7, .trace = trace}).value();
    Batch batch = BatchOf(24, 1);
    std::vector<float> x = ValueOf(batch.fields[0].values.ToVector<float>());
    x[7] = std::numeric_limits<float>::quiet_NaN();
    batch.fields[0].values = ValueOf(Tensor::From(x, {24, 5}));
    EXPECT_TRUE(MustStep(trainer, batch).skipped);
    EXPECT_EQ(Snapshot(model), before);
    EXPECT_FALSE(MustStep(trainer, BatchOf(24, 1)).skipped);
    EXPECT_EQ(model.moe().statistics()->tokens, 24);
  }
}

TEST(MoeTraining, InBf16TheRouterBiasStaysF32AndIsNotTrained) {
  const MoeClassifier model = MoeClassifier::Make(Small());
  for (const NamedParameter& parameter : model.trainable()) EXPECT_NE(parameter.name, "moe.router.bias");
  Trainer trainer = Trainer::Create(model, AdamW({.weight_decay = 0.1}), LossOf(model),
                                    {.global_batch = 24, .micro_batch = 8, .precision = Precision::kBf16})
                        .value();
  for (int step = 1; step <= 3; ++step) MustStep(trainer, BatchOf(24, 1));
  const Var bias = model.parameter("moe.router.bias");
  EXPECT_EQ(bias.dtype(), DType::kF32);
  for (const double value : Read(bias)) EXPECT_NEAR(value / 0.01, std::round(value / 0.01), 1e-4);
  const absl::StatusOr<Moe> narrow = Moe::Create(Small(), {.dtype = DType::kBf16});
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->parameter("router.bias").dtype(), DType::kF32);
}

TEST(MoeTraining, EvaluationCountsNothing) {
  Balancing run({.global_batch = 20});
  MustStep(run.trainer, run.batch);
  const Dataset dataset = Dataset::Create({{"x", Logits(Choosing({3, 3, 3}, 4))}}).value();
  ASSERT_TRUE(run.trainer.Evaluate(dataset).ok());
  EXPECT_THAT(run.model.statistics()->tokens_per_expert, ElementsAre(10, 2, 4, 4));
  EXPECT_THAT(Read(run.model.parameter("router.bias")), ElementsAre(-0.25, 0.25, 0.25, 0.25));
}

TEST(MoeTraining, CheckpointsHoldTheBiasToTheBit) {
  const std::string path = testing::TempDir() + "/moe.safetensors";
  Balancing run({.global_batch = 20});
  MustStep(run.trainer, run.batch);
  ASSERT_TRUE(SaveCheckpoint(path, run.model, run.trainer, {}).ok());
  Balancing resumed({.global_batch = 20});
  const Safetensors file = Safetensors::Open(path).value();
  ASSERT_TRUE(RestoreCheckpoint(file, resumed.model, resumed.trainer).ok());
  EXPECT_EQ(Snapshot(resumed.model), Snapshot(run.model));
  MustStep(run.trainer, run.batch);
  MustStep(resumed.trainer, resumed.batch);
  EXPECT_EQ(Snapshot(resumed.model), Snapshot(run.model));
}

TEST(MoeTraining, StatisticsChangeNothing) {
  // The same loss with nobody listening.
  const MoeOptions options{.hidden = 8, .ffn = 6, .experts = 4};
  const MoeClassifier listened = MoeClassifier::Make(options);
  Trainer trainer =
      Trainer::Create(listened, Sgd({.learning_rate = 0.1}), LossOf(listened), {.global_batch = 24}).value();
  const Batch batch = BatchOf(24, 1);
  MustStep(trainer, batch);

  const MoeClassifier alone = MoeClassifier::Make(options);
  const Var loss = CrossEntropy(alone(Var(batch.fields[0].values)), Var(batch.fields[1].values));
  const std::vector<Var> gradients = Grad(loss, alone.parameters());
  Sgd sgd({.learning_rate = 0.1});
  ASSERT_TRUE(sgd.Apply(alone.trainable(), gradients).ok());
  ExpectNear(Snapshot(listened), Snapshot(alone), 1e-7);
}

TEST(MoeTraining, PlannedMemoryIsTheMeasured) {
  const MoeClassifier model = MoeClassifier::Make(Small());
  std::vector<PlanEvent> events;
  Trainer trainer =
      Trainer::Create(
          model, AdamW(), LossOf(model),
          {.global_batch = 24, .micro_batch = 6, .on_plan = [&](const PlanEvent& event) { events.push_back(event); }})
          .value();
  MustStep(trainer, BatchOf(24, 1));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].predicted_bytes, events[0].measured_bytes);
}

// The least that the plan of one sample allows holds for any routing: here all tokens of a sample to one expert.
TEST(MoeTraining, KeepsToABudgetHoweverSkewed) {
  const Moe moe = MakeMoe({.hidden = 64, .ffn = 64, .experts = 8, .balance_loss = 0.01});
  const LossFunction loss = [&](const Inputs& in) { return MeanSquaredError(moe(in["x"]), in["x"]); };
  const auto bytes = [&](const Tensor& x, int64_t budget) {
    std::vector<PlanEvent> events;
    Trainer trainer = Trainer::Create(moe, Sgd({.learning_rate = 0}), loss,
                                      {.global_batch = 4,
                                       .memory_budget = MemoryBudget::Parse(std::to_string(budget)).value(),
                                       .on_plan = [&](const PlanEvent& event) { events.push_back(event); }})
                          .value();
    MustStep(trainer, MakeBatch({{"x", x}}));
    EXPECT_LE(events.at(0).measured_bytes, budget);
    EXPECT_EQ(events.at(0).predicted_bytes, events.at(0).measured_bytes);
    return events.at(0).measured_bytes;
  };
  const std::vector<double> noise = RandomDoubles(int64_t{4} * 500 * 64, -1, 1, 1);
  std::vector<double> same;
  for (int64_t token = 0; token < 2000; ++token) same.insert(same.end(), noise.begin(), noise.begin() + 64);
  const int64_t budget = bytes(MakeTensor(noise, {4, 500, 64}), 8 << 20);
  EXPECT_EQ(bytes(MakeTensor(same, {4, 500, 64}), 8 << 20), budget);
}

TEST(MoeTraining, FitsABatch) {
  const MoeClassifier model = MoeClassifier::Make({.hidden = 16, .ffn = 16, .experts = 4, .balance_loss = 0.01});
  Trainer trainer = Trainer::Create(model, AdamW({.learning_rate = 1e-2}), LossOf(model), {.global_batch = 60}).value();
  const Batch batch = ClassificationBatch(60, 1);
  double loss = 0;
  for (int step = 0; step < 300; ++step) loss = MustStep(trainer, batch).loss;
  EXPECT_LT(loss, 0.1);
}

}  // namespace
}  // namespace gemmill
