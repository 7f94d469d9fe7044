// A replayed training step takes no memory: Gemmill's own code none at all, libraries no more than at first.
#include <memory>
#include <string>
#include <vector>

#include "gemmill/autograd/probe.h"
#include "gemmill/runtime/memory.h"
#include "tests/layers/random_model.h"
#include "tests/memory/count_allocations.h"

namespace gemmill {
namespace {

TEST(AllocationTest, IsCounted) {
  if (!CanCountAllocations()) GTEST_SKIP() << "sanitizers have a malloc of their own";
  const CountAllocations counter;
  EXPECT_EQ(counter.counts().own, 0);
  auto number = std::make_unique<int>(7);
  testing::Message() << *number;  // used, so that it is made
  EXPECT_GE(counter.counts().own, 1);
  EXPECT_NE(FirstOwnAllocation(), "");
}

// Trains past the last check of recordings for some time (trainer.h), then counts.
void ExpectNoAllocations(Trainer& trainer, const Batch& batch) {
  if (!CanCountAllocations()) GTEST_SKIP() << "sanitizers have a malloc of their own";
  const auto run = [&](int steps) {
    bool ok = true;
    for (int step = 0; step < steps; ++step) ok = trainer.Step(batch).ok() && ok;
    return ok;
  };
  ASSERT_TRUE(run(10));
  ASSERT_TRUE(run(1));
  ResetPeakBytes(Device::Cpu());
  AllocationCounts halves[2];
  for (AllocationCounts& half : halves) {
    const CountAllocations counter;
    const bool ok = run(4);
    half = counter.counts();
    ASSERT_TRUE(ok);
    ASSERT_EQ(half.own, 0) << FirstOwnAllocation();
  }
  EXPECT_LE(halves[1].libraries, halves[0].libraries);
  EXPECT_EQ(PeakBytes(Device::Cpu()), BytesInUse(Device::Cpu())) << "a buffer was taken and given back";
}

TEST(AllocationTest, RandomModels) {
  for (uint32_t seed = 1000; seed < 1040; ++seed) {
    const RandomModel model(seed);
    SCOPED_TRACE(model.Describe());
    Trainer trainer = Trainer::Make(
                          model, model.NewOptimizer(), [&](const Inputs& in) { return model(in); }, model.options())
                          .value();
    // Of as many samples that each recording is used once a step.
    const int64_t most = std::min(model.options().global_batch, trainer.options().micro_batch * 2);
    const Batch whole = model.NewBatch(0);
    Batch batch;
    batch.samples = batch.global_samples = most;
    for (const Field& field : whole.fields) batch.fields.push_back({field.name, field.values.Rows(0, most).value()});
    ExpectNoAllocations(trainer, batch);
    if (testing::Test::HasFailure()) return;
  }
}

// Large enough for threads and packed weights.
TEST(AllocationTest, Mlps) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    const Mlp model = Mlp::Create({{784, 512, 512, 10}, activation, true, 0.1f}, {.seed = 1}).value();
    Trainer trainer = Trainer::Create(model, AdamW(), ClassificationLoss(model),
                                      {.global_batch = 96, .micro_batch = 64, .clip_norm = 1})
                          .value();
    std::vector<double> labels(96, 3);
    ExpectNoAllocations(trainer, MakeBatch({{"x", MakeTensor(RandomDoubles(96 * 784, 0, 1, 1), {96, 784})},
                                            {"label", MakeTensor(labels, {96}, DType::kI64)}}));
  }
}

// Of experts whose rows change with every step of training, in parts of the global batch.
TEST(AllocationTest, Experts) {
  const Mlp model = Mlp::Create({.sizes = {40, 64, 10},
                                 .moe = MoeOptions{.experts = 6, .balance_loss = 0.01, .bias_update_rate = 0.01}},
                                {.seed = 1})
                        .value();
  Trainer trainer =
      Trainer::Create(model, AdamW(), ClassificationLoss(model), {.global_batch = 96, .micro_batch = 48}).value();
  std::vector<double> labels(96, 3);
  ExpectNoAllocations(trainer, MakeBatch({{"x", MakeTensor(RandomDoubles(96 * 40, 0, 1, 1), {96, 40})},
                                          {"label", MakeTensor(labels, {96}, DType::kI64)}}));
}

// The step takes none for a user's own op; the op may.
TEST(AllocationTest, CustomOps) {
  const Mlp model = Classifier();
  float seen = 0;
  const auto loss = [&](const Inputs& in) {
    const Var y = Probe(model(in["x"]), [&](const Tensor& value) { seen += *static_cast<const float*>(value.data()); });
    return CrossEntropy(y, in["label"]);
  };
  Trainer trainer = Trainer::Create(model, Sgd(), loss, {.global_batch = 8}).value();
  ExpectNoAllocations(trainer, ClassificationBatch(8, 1));
  EXPECT_NE(seen, 0);
}

}  // namespace
}  // namespace gemmill
