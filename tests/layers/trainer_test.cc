#include "gemmill/layers/training/trainer.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/training.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The batch with one feature of sample 4 replaced.
Batch With(Batch batch, double feature) {
  std::vector<double> x = Doubles(batch.fields[0].values);
  x[4 * 5 + 2] = feature;
  batch.fields[0].values = MakeTensor(x, batch.fields[0].values.shape());
  return batch;
}

Batch WithLabel(Batch batch, double label) {
  std::vector<double> labels = Doubles(batch.fields[1].values);
  labels[5] = label;
  batch.fields[1].values = MakeTensor(labels, batch.fields[1].values.shape(), DType::kI64);
  return batch;
}

std::vector<std::vector<double>> StateOf(const Trainer& trainer) {
  std::vector<std::vector<double>> state;
  for (const auto& part : trainer.optimizer().state()) state.push_back(Doubles(part.value));
  return state;
}

class TrainerTest : public testing::Test {
 protected:
  Trainer Make(TrainerOptions options = {}) {
    if (options.global_batch == 0) options.global_batch = 8;
    return Trainer::Create(model_, AdamW({.learning_rate = 0.01}), ClassificationLoss(model_), options).value();
  }

  const Mlp model_ = Classifier();
  const std::vector<Batch> batches_{ClassificationBatch(8, 1), ClassificationBatch(8, 2), ClassificationBatch(8, 3)};
};

TEST_F(TrainerTest, OptionsAreChecked) {
  const auto error = [&](const TrainerOptions& options) {
    return Message(Trainer::Create(model_, Sgd(), ClassificationLoss(model_), options).status());
  };
  EXPECT_THAT(error({.global_batch = 100, .micro_batch = 133}), AllOf(HasSubstr("133"), HasSubstr("100")));
  EXPECT_THAT(error({.global_batch = 100, .micro_batch = -1}), AllOf(HasSubstr("-1"), HasSubstr("100")));
  EXPECT_THAT(Message(Trainer::Make(model_, nullptr, ClassificationLoss(model_), {.global_batch = 1}).status()),
              HasSubstr("optimizer is null"));
  EXPECT_THAT(Message(Trainer::Create(model_, Sgd(), nullptr, {.global_batch = 1}).status()),
              HasSubstr("loss function is empty"));
  EXPECT_THAT(error({.global_batch = 0}), HasSubstr("global_batch is 0"));
  EXPECT_THAT(error({.global_batch = -5}), HasSubstr("global_batch is -5"));
  EXPECT_THAT(error({.global_batch = 1, .clip_norm = -2}), HasSubstr("clip_norm is -2"));
  EXPECT_THAT(error({.global_batch = 1, .clip_norm = NAN}), HasSubstr("clip_norm is nan"));
  EXPECT_THAT(error({.global_batch = 1, .schedule = Schedule::Step(0, 1)}), HasSubstr("schedule"));
  EXPECT_EQ(Make({.global_batch = 8}).options().micro_batch, 8);
  EXPECT_EQ(Make({.global_batch = 8, .micro_batch = 8}).options().micro_batch, 8);
  ASSERT_TRUE(model_.Freeze([](const std::string&) { return true; }).ok());
  EXPECT_THAT(error({.global_batch = 1}), HasSubstr("frozen"));
}

TEST_F(TrainerTest, HyperparametersAreCheckedBeforeTheFirstStep) {
  const auto error = [&](auto optimizer) {
    return Message(
        Trainer::Create(model_, std::move(optimizer), ClassificationLoss(model_), {.global_batch = 8}).status());
  };
  EXPECT_THAT(error(AdamW({.learning_rate = -1})), HasSubstr("AdamW: learning_rate is -1"));
  EXPECT_THAT(error(AdamW({.beta1 = 1.5f})), HasSubstr("AdamW: beta1 is 1.5"));
  EXPECT_THAT(error(Sgd({.momentum = -1})), HasSubstr("Sgd: momentum is -1"));
  EXPECT_THAT(error(Sgd({.groups = {{.weight_decay = 1}}})), HasSubstr("Sgd: a parameter group's `matches` is empty"));
}

TEST_F(TrainerTest, AFieldThatIsNotThereNamesTheLineAndTheFieldsThereAre) {
  int line = 0;
  const auto error = [&](bool trace, const Batch& batch) {
    const auto loss = [&](const Inputs& in) {
      line = __LINE__ + 1;
      return CrossEntropy(model_(in["pixels"]), in["label"]);
    };
    Trainer trainer = Trainer::Create(model_, Sgd(), loss, {.global_batch = 8, .trace = trace}).value();
    return Message(trainer.Step(batch).status());
  };
  Batch bare;
  bare.samples = 8;
  for (const bool trace : {true, false}) {
    const std::string message = error(trace, batches_[0]);
    EXPECT_THAT(message, HasSubstr(Place(__FILE__, line) + ": the batch has no field \"pixels\"; it has x, label"));
    EXPECT_THAT(error(trace, bare), HasSubstr("the batch has no field \"pixels\"; it has no fields"));
  }
}

TEST_F(TrainerTest, Reports) {
  Trainer trainer = Make({.micro_batch = 3});
  const double expected =
      ReadOne(CrossEntropy(model_(Var(batches_[0].fields[0].values)), Var(batches_[0].fields[1].values)));
  const StepReport report = MustStep(trainer, batches_[0]);
  EXPECT_EQ(report.step, 1);
  EXPECT_NEAR(report.loss, expected, 1e-6);
  EXPECT_EQ(report.samples, 8);
  EXPECT_GT(report.gradient_norm, 0);
  EXPECT_GT(report.seconds, 0);
  EXPECT_NEAR(report.samples_per_second, 8 / report.seconds, 1e-6 * report.samples_per_second);
  EXPECT_FALSE(report.skipped);
  EXPECT_EQ(MustStep(trainer, batches_[1]).step, 2);
  EXPECT_EQ(trainer.steps(), 2);
}

TEST_F(TrainerTest, Learns) {
  Trainer trainer = Make();
  const double first = MustStep(trainer, batches_[0]).loss;
  for (int step = 0; step < 200; ++step) MustStep(trainer, batches_[0]);
  EXPECT_LT(MustStep(trainer, batches_[0]).loss, 0.1 * first);
}

TEST_F(TrainerTest, LearningRatesFollowTheSchedule) {
  const Schedule schedule = Schedule::WarmupCosine(2, 8, 0.1);
  Trainer trainer = Make({.micro_batch = 3, .schedule = schedule});
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_DOUBLE_EQ(MustStep(trainer, batches_[0]).learning_rate, 0.01 * schedule.Factor(step));
  }
}

TEST_F(TrainerTest, ClipsToTheGlobalNorm) {
  const auto step = [&](double clip_norm, int64_t micro_batch) {
    const Mlp model = Classifier();
    const auto before = Snapshot(model);
    Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 1}), ClassificationLoss(model),
                                      {.global_batch = 8, .micro_batch = micro_batch, .clip_norm = clip_norm})
                          .value();
    const double norm = MustStep(trainer, batches_[0]).gradient_norm;
    double squares = 0;
    const auto after = Snapshot(model);
    for (size_t i = 0; i < after.size(); ++i) {
      for (size_t k = 0; k < after[i].size(); ++k) squares += std::pow(after[i][k] - before[i][k], 2);
    }
    return std::pair(norm, std::sqrt(squares));
  };
  const double norm = step(0, 8).first;
  for (int64_t micro_batch : {8, 3}) {
    EXPECT_NEAR(step(0, micro_batch).second, norm, 1e-6);
    EXPECT_NEAR(step(norm / 4, micro_batch).first, norm, 1e-6);
    EXPECT_NEAR(step(norm / 4, micro_batch).second, norm / 4, 1e-5 * norm);
    EXPECT_NEAR(step(norm * 4, micro_batch).second, norm, 1e-6);
  }
}

TEST_F(TrainerTest, GradientsThatAreNotFiniteSkipTheStep) {
  const Schedule schedule = Schedule::Step(1, 0.5);
  for (double bad : {NAN, INFINITY, -INFINITY}) {
    for (int64_t micro_batch : {8, 3}) {
      // The same steps without the bad batch.
      const Mlp other = Classifier();
      Trainer expected = Trainer::Create(other, AdamW({.learning_rate = 0.01}), ClassificationLoss(other),
                                         {.global_batch = 8, .micro_batch = micro_batch, .schedule = schedule})
                             .value();
      const Mlp model = Classifier();
      Trainer trainer = Trainer::Create(model, AdamW({.learning_rate = 0.01}), ClassificationLoss(model),
                                        {.global_batch = 8, .micro_batch = micro_batch, .schedule = schedule})
                            .value();
      MustStep(expected, batches_[0]);
      MustStep(trainer, batches_[0]);
      const auto weights = Snapshot(model);
      const auto state = StateOf(trainer);

      const StepReport report = MustStep(trainer, With(batches_[1], bad));
      EXPECT_TRUE(report.skipped);
      EXPECT_FALSE(std::isfinite(report.gradient_norm));
      EXPECT_EQ(report.step, 1);
      EXPECT_EQ(trainer.steps(), 1);
      EXPECT_EQ(trainer.optimizer().steps(), 1);
      EXPECT_EQ(Snapshot(model), weights);
      EXPECT_EQ(StateOf(trainer), state);

      const StepReport next = MustStep(trainer, batches_[2]);
      EXPECT_EQ(next.learning_rate, MustStep(expected, batches_[2]).learning_rate);
      EXPECT_FALSE(next.skipped);
      EXPECT_EQ(next.step, 2);
      EXPECT_EQ(Snapshot(model), Snapshot(other));
    }
  }
}

TEST_F(TrainerTest, SkippingBeforeTheFirstStep) {
  Trainer trainer = Make();
  const auto weights = Snapshot(model_);
  EXPECT_TRUE(MustStep(trainer, With(batches_[0], NAN)).skipped);
  EXPECT_EQ(Snapshot(model_), weights);
  EXPECT_EQ(MustStep(trainer, batches_[0]).step, 1);
}

TEST_F(TrainerTest, ErrorsLeaveWeightsAndOptimizerAsTheyWere) {
  Trainer trainer = Make({.micro_batch = 4});
  MustStep(trainer, batches_[0]);
  const auto weights = Snapshot(model_);
  const auto state = StateOf(trainer);
  const auto error = [&](const Batch& batch) { return Message(trainer.Step(batch).status()); };

  // In the second micro-batch.
  EXPECT_THAT(error(WithLabel(batches_[1], 3)), AllOf(HasSubstr("3"), HasSubstr("training.h:")));
  EXPECT_THAT(error(WithLabel(batches_[1], -4)), HasSubstr("-4"));
  Batch unread;
  unread.status = absl::DataLossError("train.csv:7: ragged row");
  EXPECT_EQ(trainer.Step(unread).status(), unread.status);
  EXPECT_THAT(error(ClassificationBatch(9, 1)), AllOf(HasSubstr("9 samples"), HasSubstr("global_batch of 8")));
  EXPECT_THAT(error(ClassificationBatch(0, 1)), HasSubstr("0 samples"));
  EXPECT_THAT(error(MakeBatch({batches_[0].fields[0]})), AllOf(HasSubstr("\"label\""), HasSubstr("it has x")));
  EXPECT_THAT(error(MakeBatch({{"x", MakeTensor({1, 2}, {1, 2})}, {"label", MakeTensor({0}, {1}, DType::kI64)}})),
              HasSubstr("layer fc1"));
  Batch disagrees = batches_[0];
  disagrees.samples = 6;
  EXPECT_THAT(error(disagrees), AllOf(HasSubstr("6 samples"), HasSubstr("\"x\""), HasSubstr("f32[8, 5]")));
  EXPECT_FALSE(trainer.Step(MakeBatch({batches_[0].fields[0], {"label", MakeTensor({1}, {}, DType::kI64)}})).ok());

  EXPECT_EQ(Snapshot(model_), weights);
  EXPECT_EQ(StateOf(trainer), state);
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_EQ(trainer.optimizer().steps(), 1);
  EXPECT_EQ(MustStep(trainer, batches_[1]).step, 2);
}

TEST_F(TrainerTest, ALossThatIsNoScalarOrUsesNoParameter) {
  const auto error = [&](const LossFunction& loss) {
    Trainer trainer = Trainer::Create(model_, Sgd(), loss, {.global_batch = 8}).value();
    return Message(trainer.Step(batches_[0]).status());
  };
  const auto vector = [&](const Inputs& in) { return Loss(model_(in["x"])); };
  EXPECT_THAT(error(vector), HasSubstr("the loss function returned f32[8, 3], expected a scalar or Loss"));
  Trainer trainer = Trainer::Create(model_, Sgd(), vector, {.global_batch = 8}).value();
  EXPECT_THAT(Message(trainer.Evaluate(Dataset::Create(batches_[0].fields).value()).status()),
              HasSubstr("the loss function returned f32[8, 3]"));
  EXPECT_THAT(error([&](const Inputs& in) { return Loss(Mean(in["x"])); }), HasSubstr("no parameter"));
  EXPECT_THAT(error([&](const Inputs&) { return Loss(Var()); }), HasSubstr("empty Var"));
}

TEST_F(TrainerTest, ALossOfAnotherModelsParameters) {
  const Mlp other = Classifier();
  for (const bool trace : {true, false}) {
    const auto step = [&](const LossFunction& loss) {
      Trainer trainer = Trainer::Create(model_, Sgd(), loss, {.global_batch = 8, .trace = trace}).value();
      return trainer.Step(batches_[0]).status();
    };
    EXPECT_THAT(
        Message(step(ClassificationLoss(other))),
        AllOf(HasSubstr("depends on none of the parameters"), HasSubstr("fc1.weight"), HasSubstr("trainer_test.cc:")));
    // One of them is enough.
    EXPECT_TRUE(step([&](const Inputs& in) {
                  return CrossEntropy(other(in["x"]) + model_.layers()[1].bias(), in["label"]);
                }).ok());
  }
}

// A part of it that no parameter has to do with.
TEST_F(TrainerTest, ALossThatIsNotFiniteSkipsTheStep) {
  for (const double bad : {NAN, INFINITY}) {
    for (const bool trace : {true, false}) {
      const auto weights = Snapshot(model_);
      const auto loss = [&](const Inputs& in) { return CrossEntropy(model_(in["x"]), in["label"]) + Mean(in["more"]); };
      Trainer trainer =
          Trainer::Create(model_, AdamW({.learning_rate = 0.01}), loss, {.global_batch = 8, .trace = trace}).value();
      Batch batch = batches_[0];
      batch.fields.push_back({"more", MakeTensor(std::vector<double>(8, bad), {8})});
      const StepReport report = MustStep(trainer, batch);
      EXPECT_TRUE(report.skipped);
      EXPECT_FALSE(std::isfinite(report.loss));
      EXPECT_TRUE(std::isfinite(report.gradient_norm));
      EXPECT_EQ(report.step, 0);
      EXPECT_EQ(Snapshot(model_), weights);
    }
  }
}

TEST_F(TrainerTest, WhatTheLossThrowsIsAnError) {
  for (const bool trace : {true, false}) {
    bool now = false;
    const auto loss = [&](const Inputs& in) {
      if (now) throw std::runtime_error("no disk");
      return CrossEntropy(model_(in["x"]), in["label"]);
    };
    Trainer trainer = Trainer::Create(model_, AdamW(), loss, {.global_batch = 8, .trace = trace}).value();
    MustStep(trainer, batches_[0]);
    const auto weights = Snapshot(model_);
    const auto state = StateOf(trainer);
    now = true;
    EXPECT_THAT(Message(trainer.Step(batches_[1]).status()),
                AllOf(HasSubstr("no disk"), HasSubstr("the loss function"), HasSubstr("trainer_test.cc:")));
    EXPECT_FALSE(trainer.Evaluate(Dataset::Create(batches_[0].fields).value()).ok());
    EXPECT_EQ(Snapshot(model_), weights);
    EXPECT_EQ(StateOf(trainer), state);
    now = false;
    EXPECT_EQ(MustStep(trainer, batches_[1]).step, 2);
  }
  EXPECT_FALSE(
      EvaluateClassifier([](const Inputs&) -> Var { throw 1; }, Dataset::Create(batches_[0].fields).value(), 8).ok());
}

// A number of the user's own, which a trace freezes.
TEST_F(TrainerTest, ANumberThatChangesIsFoundAtTheNextCheck) {
  for (const auto& [change, found] : std::vector<std::pair<int, int>>{{2, 2}, {3, 10}, {11, 20}, {30, 40}, {41, 80}}) {
    const Mlp model = Classifier();
    int step = 0;
    const auto loss = [&](const Inputs& in) {
      return CrossEntropy(model(in["x"]), in["label"]) * (step < change ? 0.5 : 0.25);
    };
    Trainer trainer = Trainer::Create(model, Sgd(), loss, {.global_batch = 8}).value();
    absl::Status status;
    while (status.ok() && step < 200) {
      ++step;
      status = trainer.Step(batches_[0]).status();
    }
    EXPECT_EQ(step, found) << change;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("Fill {0.25} instead of Fill {0.5}"), HasSubstr("trainer_test.cc:"),
                                       HasSubstr("TrainerOptions.trace")));
    EXPECT_FALSE(trainer.Step(batches_[0]).ok()) << "again, until it is mended";
  }
}

TEST_F(TrainerTest, ALossThatReadsAValueCannotBeRecorded) {
  const auto loss = [&](const Inputs& in) {
    const Loss made = CrossEntropy(model_(in["x"]), in["label"]);
    (void)made.sum.Item().value_or(0);
    return made;
  };
  Trainer recorded = Trainer::Create(model_, Sgd(), loss, {.global_batch = 8}).value();
  EXPECT_THAT(
      Message(recorded.Step(batches_[0]).status()),
      AllOf(HasSubstr("only being recorded"), HasSubstr("trainer_test.cc:"), HasSubstr("TrainerOptions.trace")));
  Trainer eager = Trainer::Create(model_, Sgd(), loss, {.global_batch = 8, .trace = false}).value();
  MustStep(eager, batches_[0]);
}

TEST_F(TrainerTest, CheckNumericsNamesOpLayerAndRanges) {
  Trainer trainer = Make({.check_numerics = true});
  const auto weights = Snapshot(model_);
  EXPECT_THAT(
      Message(trainer.Step(With(batches_[0], INFINITY)).status()),
      AllOf(HasSubstr("MatMul made"), HasSubstr("layer fc1"), HasSubstr("f32[8, 5]"), HasSubstr("1 not finite")));
  EXPECT_EQ(Snapshot(model_), weights);
  EXPECT_EQ(MustStep(trainer, batches_[0]).step, 1);
  EXPECT_FALSE(CheckNumericsEnabled());
}

TEST_F(TrainerTest, SameSeedSameBits) {
  const auto run = [&](uint64_t seed) {
    const Mlp model = Classifier(0.5f);
    Trainer trainer = Trainer::Create(model, AdamW({.learning_rate = 0.01}), ClassificationLoss(model),
                                      {.global_batch = 8, .micro_batch = 3, .seed = seed})
                          .value();
    for (int step = 0; step < 6; ++step) MustStep(trainer, batches_[static_cast<size_t>(step % 3)]);
    return Snapshot(model);
  };
  const auto first = run(1);
  EXPECT_EQ(run(1), first);
  EXPECT_EQ(run(1), first);
  EXPECT_NE(run(2), first);
}

TEST_F(TrainerTest, DropoutDiffersFromStepToStep) {
  const Mlp model = Classifier(0.5f);
  Trainer trainer =
      Trainer::Create(model, Sgd({.learning_rate = 0}), ClassificationLoss(model), {.global_batch = 8}).value();
  EXPECT_NE(MustStep(trainer, batches_[0]).loss, MustStep(trainer, batches_[0]).loss);
}

TEST_F(TrainerTest, FrozenAndUnusedParametersStay) {
  ASSERT_TRUE(model_.Freeze([](const std::string& name) { return name == "fc1.weight"; }).ok());
  const auto before = Snapshot(model_);
  Trainer trainer = Make();
  for (const Batch& batch : batches_) MustStep(trainer, batch);
  const auto after = Snapshot(model_);
  EXPECT_EQ(after[0], before[0]);
  for (size_t i = 1; i < after.size(); ++i) EXPECT_NE(after[i], before[i]);
}

TEST_F(TrainerTest, AnEpochOfALoaderWithAShortLastBatch) {
  const Batch all = ClassificationBatch(21, 5);
  const Dataset dataset = Dataset::Create(all.fields).value();
  Loader loader = Loader::Create(dataset, {.global_batch = 8, .seed = 1}).value();
  Trainer trainer = Make({.micro_batch = 6});
  std::vector<int64_t> samples;
  for (const Batch& batch : loader) samples.push_back(MustStep(trainer, batch).samples);
  EXPECT_THAT(samples, testing::ElementsAre(8, 8, 5));
}

}  // namespace
}  // namespace gemmill
