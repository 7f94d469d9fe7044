// Small models and batches for the tests of Trainer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gemmill/gemmill.h"
#include "tests/autograd/vars.h"

namespace gemmill {

inline Batch MakeBatch(std::vector<Field> fields) {
  Batch batch;
  batch.samples = fields[0].values.shape()[0];
  batch.global_samples = batch.samples;
  batch.fields = std::move(fields);
  return batch;
}

// Every number of a model's parameters: equal ones are equal to the bit.
inline std::vector<std::vector<double>> Snapshot(const Module& model) {
  std::vector<std::vector<double>> values;
  for (const NamedParameter& parameter : model.named_parameters()) values.push_back(Read(parameter.value));
  return values;
}

inline void ExpectNear(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                       double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_THAT(a[i], testing::Pointwise(testing::DoubleNear(tolerance), b[i]));
}

// 5 features, 3 classes; a label of -100 is ignored.
inline Batch ClassificationBatch(int64_t samples, uint32_t seed) {
  std::vector<double> labels;
  for (double value : RandomDoubles(samples, 0, 3, seed + 1000)) labels.push_back(static_cast<int>(value));
  return MakeBatch({{"x", MakeTensor(RandomDoubles(samples * 5, -1, 1, seed), {samples, 5})},
                    {"label", MakeTensor(labels, {samples}, DType::kI64)}});
}

inline Mlp Classifier(float dropout = 0) {
  return Mlp::Create({.sizes = {5, 16, 3}, .activation = Activation::kGelu, .dropout = dropout}, {.seed = 1}).value();
}

inline LossFunction ClassificationLoss(const Mlp& model) {
  return [&model](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); };
}

inline StepReport MustStep(Trainer& trainer, const Batch& batch) {
  const absl::StatusOr<StepReport> report = trainer.Step(batch);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.value_or(StepReport{});
}

}  // namespace gemmill
