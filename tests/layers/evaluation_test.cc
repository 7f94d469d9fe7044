// Evaluation: sums over all of a data set, whatever the size of its batches, recorded or not, in either precision.
#include "gemmill/layers/training/evaluation.h"

#include <string>
#include <vector>

#include "tests/layers/training.h"

namespace gemmill {
namespace {

using testing::HasSubstr;

TEST(EvaluationTest, IsTheMeanOverAllSamples) {
  const Mlp model = Classifier(0.5f);
  const Batch all = ClassificationBatch(21, 5);
  const Dataset dataset = Dataset::Create(all.fields).value();
  const Var logits = model(Var(all.fields[0].values));
  const Var labels(all.fields[1].values);
  const double expected = ReadOne(CrossEntropy(logits, labels));
  const double right = ReadOne(Mean(Cast(Equal(ArgMax(logits), labels), DType::kF32)));
  const auto before = Snapshot(model);
  for (int64_t size : {1, 8, 21, 100}) {
    Trainer trainer = Trainer::Create(model, Sgd(), ClassificationLoss(model), {.global_batch = size}).value();
    const Evaluation evaluation = trainer.Evaluate(dataset).value();
    EXPECT_NEAR(evaluation.loss, expected, 1e-6) << size;
    EXPECT_EQ(evaluation.samples, 21);
    EXPECT_EQ(trainer.steps(), 0);
    const Evaluation classified =
        EvaluateClassifier([&](const Inputs& in) { return model(in["x"]); }, dataset, size).value();
    EXPECT_NEAR(classified.loss, expected, 1e-6);
    EXPECT_NEAR(classified.accuracy.value_or(-1), right, 1e-6);
  }
  EXPECT_EQ(Snapshot(model), before);
  EXPECT_FALSE(EvaluateClassifier([&](const Inputs& in) { return model(in["y"]); }, dataset, 8).ok());
  EXPECT_THAT(Message(EvaluateClassifier([&](const Inputs& in) { return model(in["x"]); }, dataset, 0).status()),
              HasSubstr("EvaluateClassifier: batch is 0, expected at least 1"));
  EXPECT_THAT(Message(EvaluateClassifier(nullptr, dataset, 8).status()), HasSubstr("logits is empty"));
}

TEST(EvaluationTest, LeavesOutIgnoredLabels) {
  const Mlp model = Classifier(0);
  Batch all = ClassificationBatch(8, 5);
  std::vector<double> labels = Doubles(all.fields[1].values);
  const Var logits = model(Var(all.fields[0].values));
  const std::vector<double> best = Read(ArgMax(logits));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = i < 2 ? best[i] : -100;
  all.fields[1].values = MakeTensor(labels, {8}, DType::kI64);
  const Evaluation evaluation =
      EvaluateClassifier([&](const Inputs& in) { return model(in["x"]); }, Dataset::Create(all.fields).value(), 3)
          .value();
  EXPECT_EQ(evaluation.accuracy, 1);
  EXPECT_NEAR(evaluation.loss, ReadOne(CrossEntropy(logits, Var(all.fields[1].values))), 1e-6);
}

TEST(EvaluationTest, TheTrainersIsThatOfItsPrecisionAndSums) {
  const Mlp model = Classifier(0);
  const Dataset dataset = Dataset::Create(ClassificationBatch(21, 5).fields).value();
  const LogitsFunction logits = [&](const Inputs& in) { return model(in["x"]); };
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const Evaluation expected = EvaluateClassifier(logits, dataset, 4, {}, "label", precision).value();
    for (const bool trace : {true, false}) {
      Trainer trainer = Trainer::Create(model, Sgd(), ClassificationLoss(model),
                                        {.global_batch = 8,
                                         .micro_batch = 4,
                                         .precision = precision,
                                         .trace = trace,
                                         .evaluation = ClassifierSums(logits)})
                            .value();
      const Evaluation evaluation = trainer.Evaluate(dataset).value();
      EXPECT_EQ(evaluation.loss, expected.loss) << PrecisionName(precision) << trace;
      EXPECT_EQ(evaluation.accuracy, expected.accuracy);
      // Without sums of a classifier there is no accuracy.
      Trainer plain = Trainer::Create(model, Sgd(), ClassificationLoss(model), {.global_batch = 8}).value();
      EXPECT_FALSE(plain.Evaluate(dataset).value().accuracy.has_value());
    }
  }
}

}  // namespace
}  // namespace gemmill
