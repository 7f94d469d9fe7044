// How a global batch is split into micro-batches changes nothing but rounding.
#include <cmath>
#include <functional>
#include <vector>

#include "tests/layers/training.h"

namespace gemmill {
namespace {

struct Result {
  std::vector<std::vector<double>> weights;
  std::vector<StepReport> reports;
};

// Steps over `batches` of at most 7 samples, in micro-batches of `micro_batch`.
Result Train(const Mlp& model, const LossFunction& loss, const std::vector<Batch>& batches, int64_t micro_batch,
             uint64_t seed = 1) {
  Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 0.5, .momentum = 0.9f}), loss,
                                    {.global_batch = 7, .micro_batch = micro_batch, .seed = seed})
                        .value();
  Result result;
  for (const Batch& batch : batches) result.reports.push_back(MustStep(trainer, batch));
  result.weights = Snapshot(model);
  return result;
}

void ExpectSame(const Result& a, const Result& b) {
  ExpectNear(a.weights, b.weights, 2e-6);
  ASSERT_EQ(a.reports.size(), b.reports.size());
  for (size_t i = 0; i < a.reports.size(); ++i) {
    EXPECT_NEAR(a.reports[i].loss, b.reports[i].loss, 2e-6);
    EXPECT_NEAR(a.reports[i].gradient_norm, b.reports[i].gradient_norm, 2e-6);
    EXPECT_EQ(a.reports[i].samples, b.reports[i].samples);
  }
}

using Run = std::function<Result(int64_t micro_batch)>;

// In parts of 1, 3 (the last one short), 5 and all: 0 and 7.
void ExpectSameForEverySplit(const Run& run) {
  const Result whole = run(7);
  for (int64_t micro_batch : {0, 1, 3, 5}) {
    SCOPED_TRACE(micro_batch);
    ExpectSame(run(micro_batch), whole);
  }
}

// The last one is smaller than most micro-batches.
std::vector<Batch> ThreeBatches() {
  return {ClassificationBatch(7, 1), ClassificationBatch(7, 2), ClassificationBatch(2, 3)};
}

TEST(MicroBatchTest, SameWeights) {
  ExpectSameForEverySplit([](int64_t micro_batch) {
    const Mlp model = Classifier();
    return Train(model, ClassificationLoss(model), ThreeBatches(), micro_batch);
  });
}

TEST(MicroBatchTest, SameDropout) {
  const auto run = [](int64_t micro_batch, uint64_t seed) {
    const Mlp model = Classifier(0.5f);
    return Train(model, ClassificationLoss(model), ThreeBatches(), micro_batch, seed);
  };
  ExpectSameForEverySplit([&](int64_t micro_batch) { return run(micro_batch, 1); });
  EXPECT_GT(std::fabs(run(7, 1).reports[0].loss - run(7, 2).reports[0].loss), 1e-3);
}

// Each sample is 4 tokens: 4 rows of activations, each with a mask of its own.
Batch TokensBatch(int64_t samples) {
  std::vector<double> labels;
  for (int64_t i = 0; i < samples * 4; ++i) {
    // The first samples have one label, the last have four.
    const bool ignored = i < samples * 2 && i % 4 != 0;
    labels.push_back(ignored ? -100 : static_cast<double>(i % 3));
  }
  return MakeBatch({{"x", MakeTensor(RandomDoubles(samples * 20, -1, 1, 9), {samples, 4, 5})},
                    {"label", MakeTensor(labels, {samples, 4}, DType::kI64)}});
}

TEST(MicroBatchTest, UnequalCountsOfTokens) {
  ExpectSameForEverySplit([](int64_t micro_batch) {
    const Mlp model = Classifier(0.25f);
    return Train(model, ClassificationLoss(model), {TokensBatch(7), TokensBatch(7)}, micro_batch);
  });
}

// The test above would catch a mean of means: it is far from the whole's.
TEST(MicroBatchTest, AMeanOfMeansIsAnotherLoss) {
  const Mlp model = Classifier();
  const Batch batch = TokensBatch(7);
  const Var x(batch.fields[0].values);
  const Var label(batch.fields[1].values);
  const double whole = ReadOne(CrossEntropy(model(x), label));
  double sum_of_means = 0;
  double sum = 0;
  double count = 0;
  for (int64_t start : {0, 3, 6}) {
    const int64_t stop = std::min<int64_t>(start + 3, 7);
    const Loss part = CrossEntropy(model(Slice(x, 0, start, stop)), Slice(label, 0, start, stop));
    sum_of_means += ReadOne(part) / 3;
    sum += ReadOne(part.sum);
    count += ReadOne(part.count);
  }
  EXPECT_NEAR(sum / count, whole, 1e-6);
  EXPECT_GT(std::fabs(sum_of_means - whole), 1e-2);
}

TEST(MicroBatchTest, APartWhoseTargetsAreAllIgnored) {
  ExpectSameForEverySplit([](int64_t micro_batch) {
    const Mlp model = Classifier();
    Batch batch = ClassificationBatch(7, 1);
    batch.fields[1].values = MakeTensor({-100, -100, -100, 1, 2, -100, 0}, {7}, DType::kI64);
    return Train(model, ClassificationLoss(model), {batch}, micro_batch);
  });
}

TEST(MicroBatchTest, AllTargetsIgnored) {
  for (int64_t micro_batch : {7, 3}) {
    const Mlp model = Classifier();
    const auto before = Snapshot(model);
    Batch batch = ClassificationBatch(7, 1);
    batch.fields[1].values = MakeTensor(std::vector<double>(7, -100), {7}, DType::kI64);
    const Result result = Train(model, ClassificationLoss(model), {batch}, micro_batch);
    EXPECT_EQ(result.reports[0].loss, 0);
    EXPECT_EQ(result.reports[0].gradient_norm, 0);
    EXPECT_FALSE(result.reports[0].skipped);
    EXPECT_EQ(result.weights, before);
  }
}

// A mean of the user's own weighs by samples.
TEST(MicroBatchTest, AUsersMean) {
  ExpectSameForEverySplit([](int64_t micro_batch) {
    const Mlp model = Classifier();
    const auto loss = [&](const Inputs& in) { return Loss(Mean(Sin(model(in["x"]) * 3.0))); };
    return Train(model, loss, ThreeBatches(), micro_batch);
  });
}

TEST(MicroBatchTest, ALossWithAPenalty) {
  ExpectSameForEverySplit([](int64_t micro_batch) {
    const Mlp model = Classifier();
    const auto loss = [&](const Inputs& in) {
      const Var weight = model.layers()[0].weight();
      return CrossEntropy(model(in["x"]), in["label"]) + Sum(weight * weight) * 0.01;
    };
    return Train(model, loss, {TokensBatch(7), TokensBatch(7)}, micro_batch);
  });
}

// 301 is no bf16.
TEST(MicroBatchTest, CountsOfBf16LossesAreExact) {
  const Linear model = Linear::Create({.inputs = 1, .outputs = 1}, {.dtype = DType::kBf16}).value();
  const Batch batch = MakeBatch({{"x", MakeTensor(std::vector<double>(301, 1), {301, 1}, DType::kBf16)}});
  for (int64_t micro_batch : {301, 100, 7}) {
    Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 0}),
                                      [&](const Inputs& in) { return Loss(Mean(model(in["x"]) * 0.0 + 1.0)); },
                                      {.global_batch = 301, .micro_batch = micro_batch})
                          .value();
    EXPECT_EQ(MustStep(trainer, batch).loss, 1) << micro_batch;
  }
}

class OneWeight : public Module {
 public:
  OneWeight() { weight = AddParameter("weight", Var::Parameter(MakeTensor({1}, {1}, DType::kBf16))); }
  Var weight;
};

// A bf16 sum of 1,000 gradients of 1 would stand still at 256.
TEST(MicroBatchTest, GradientsOfBf16AddUp) {
  const OneWeight model;
  const auto loss = [&](const Inputs& in) { return Loss(Sum(model.weight * Cast(in["x"], DType::kBf16))); };
  Trainer trainer =
      Trainer::Create(model, Sgd({.learning_rate = 0.5}), loss, {.global_batch = 1000, .micro_batch = 1}).value();
  Batch batch;
  batch.samples = 1000;
  batch.fields = {{"x", MakeTensor(std::vector<double>(1000, 1), {1000, 1})}};
  EXPECT_EQ(MustStep(trainer, batch).gradient_norm, 1);
  EXPECT_EQ(ReadOne(model.weight), 0.5);
}

}  // namespace
}  // namespace gemmill
