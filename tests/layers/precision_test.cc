// Training in bf16: against f32, against PyTorch's autocast, and what it saves.
#include "gemmill/autograd/precision.h"

#include <map>
#include <string>
#include <vector>

#include "tests/layers/fixture.h"
#include "tests/layers/training.h"

namespace gemmill {
namespace {

// Two hidden layers with GELU and a norm between them, as tests/oracle/write_fixtures.py has it.
class NormedMlp : public Module {
 public:
  NormedMlp()
      : input_(Linear::Create({.inputs = 6, .outputs = 16}, {.seed = 1}).value()),
        norm_(LayerNorm::Create({.width = 16}).value()),
        output_(Linear::Create({.inputs = 16, .outputs = 3}, {.seed = 2}).value()) {
    AddModule("input", input_);
    AddModule("norm", norm_);
    AddModule("output", output_);
  }
  Var operator()(const Var& x) const { return output_(norm_(Gelu(input_(x)))); }

 private:
  Linear input_;
  LayerNorm norm_;
  Linear output_;
};

TEST(PrecisionOracleTest, LossesOfAutocast) {
  const nlohmann::json fixture = ReadFixture("autocast_bf16.json");
  const NormedMlp model;
  for (size_t i = 0; i < model.named_parameters().size(); ++i) {
    const nlohmann::json& expected = fixture["parameters"][i];
    ASSERT_EQ(model.named_parameters()[i].name, expected["name"].get<std::string>());
    SetValue(model.named_parameters()[i].value, FixtureTensor(expected["initial"]));
  }
  Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = fixture["learning_rate"]}),
                                    [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); },
                                    {.global_batch = 12, .precision = Precision::kBf16})
                        .value();
  const Batch batch =
      MakeBatch({{"x", FixtureTensor(fixture["inputs"])}, {"label", FixtureTensor(fixture["labels"], DType::kI64)}});
  for (const nlohmann::json& loss : fixture["losses"]) EXPECT_NEAR(MustStep(trainer, batch).loss, loss, 0.01);
}

class PrecisionTrainingTest : public testing::Test {
 protected:
  Trainer Make(const Mlp& model, TrainerOptions options) {
    options.global_batch = 8;
    return Trainer::Create(model, AdamW({.learning_rate = 0.01}), ClassificationLoss(model), options).value();
  }
  struct Result {
    std::vector<std::vector<double>> weights;
    std::vector<double> losses;
    std::vector<double> norms;
  };
  Result Train(const TrainerOptions& options, int steps = 4) {
    const Mlp model = Classifier(0.2f);
    Trainer trainer = Make(model, options);
    Result result;
    for (int step = 0; step < steps; ++step) {
      const StepReport report = MustStep(trainer, ClassificationBatch(8, static_cast<uint32_t>(step % 2)));
      result.losses.push_back(report.loss);
      result.norms.push_back(report.gradient_norm);
    }
    result.weights = Snapshot(model);
    return result;
  }
};

TEST_F(PrecisionTrainingTest, NearF32) {
  const Result exact = Train({});
  const Result narrow = Train({.precision = Precision::kBf16});
  EXPECT_THAT(narrow.losses, testing::Pointwise(testing::DoubleNear(0.02), exact.losses));
  EXPECT_THAT(narrow.norms, testing::Pointwise(testing::DoubleNear(0.02), exact.norms));
  EXPECT_NE(narrow.losses, exact.losses);
}

// Eagerly, recorded, with and without passes; run to run; checked number by number.
TEST_F(PrecisionTrainingTest, SameBitsHoweverItRuns) {
  for (int64_t micro_batch : {8, 3}) {
    const Result first = Train({.micro_batch = micro_batch, .precision = Precision::kBf16});
    for (const TrainerOptions& options : {TrainerOptions{}, TrainerOptions{.trace = false},
                                          TrainerOptions{.passes = false}, TrainerOptions{.check_numerics = true}}) {
      TrainerOptions same = options;
      same.micro_batch = micro_batch;
      same.precision = Precision::kBf16;
      const Result again = Train(same);
      EXPECT_EQ(again.losses, first.losses);
      EXPECT_EQ(again.weights, first.weights);
    }
  }
}

TEST_F(PrecisionTrainingTest, SplitsDifferByRounding) {
  const Result whole = Train({.precision = Precision::kBf16}, 2);
  const Result parts = Train({.micro_batch = 3, .precision = Precision::kBf16}, 2);
  EXPECT_THAT(parts.losses, testing::Pointwise(testing::DoubleNear(0.01), whole.losses));
  EXPECT_THAT(parts.norms, testing::Pointwise(testing::DoubleNear(0.01), whole.norms));
}

TEST_F(PrecisionTrainingTest, AWeightIsConvertedOncePerStep) {
  for (int64_t micro_batch : {8, 3}) {
    const Mlp model = Classifier();
    Trainer trainer = Make(model, {.micro_batch = micro_batch, .precision = Precision::kBf16});
    MustStep(trainer, ClassificationBatch(8, 1));  // makes the copies
    std::map<std::string, int> casts;
    trainer.SetWatch([&](const Program& program, size_t step, double) {
      if (!std::holds_alternative<op::Cast>(program.steps[step].op)) return;
      for (const NamedParameter& parameter : model.named_parameters()) {
        const Value& input = program.values[static_cast<size_t>(program.steps[step].inputs[0])];
        if (input.storage != Storage::kBound || !input.bound.valid()) continue;
        if (input.bound.data() == TensorIn(parameter.value).data()) ++casts[parameter.name];
      }
    });
    for (int step = 0; step < 12; ++step) MustStep(trainer, ClassificationBatch(8, 1));
    EXPECT_EQ(casts.size(), model.named_parameters().size());
    for (const auto& [name, count] : casts) EXPECT_EQ(count, 12) << name << ", micro-batch " << micro_batch;
  }
}

// Updates far smaller than a bf16 can hold beside 1.
TEST_F(PrecisionTrainingTest, SmallUpdatesReachTheMasters) {
  class Scalar : public Module {
   public:
    Scalar() : weight(AddParameter("weight", Parameter({1}, {1, 1}))) {}
    Var weight;
  };
  const Scalar model;
  Trainer trainer = Trainer::Create(model, AdamW({.learning_rate = 6e-4, .weight_decay = 0}),
                                    [&](const Inputs& in) { return Loss(Mean(MatMul(in["x"], model.weight))); },
                                    {.global_batch = 1, .precision = Precision::kBf16})
                        .value();
  const Batch batch = MakeBatch({{"x", MakeTensor({1}, {1, 1})}});
  for (int step = 0; step < 100; ++step) MustStep(trainer, batch);
  EXPECT_NEAR(ReadOne(model.weight), 1 - 100 * 6e-4, 1e-4);
}

TEST_F(PrecisionTrainingTest, ActivationsTakeHalfTheMemory) {
  const Mlp model = Mlp::Create({.sizes = {32, 64, 64, 64, 64, 8}, .activation = Activation::kGelu}).value();
  const auto arena = [&](Precision precision) {
    Trainer trainer =
        Trainer::Create(model, Sgd(), [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); },
                        {.global_batch = 1024, .precision = precision})
            .value();
    MustStep(trainer, MakeBatch({{"x", ValueOf(Tensor::Zeros(Spec{{1024, 32}}))},
                                 {"label", ValueOf(Tensor::Zeros(Spec{{1024}, DType::kI64}))}}));
    return static_cast<double>(trainer.recordings()[0]->plan().arena_bytes);
  };
  EXPECT_LT(arena(Precision::kBf16), 0.6 * arena(Precision::kF32));
}

TEST_F(PrecisionTrainingTest, EvaluationRunsAsTrainingDoes) {
  const Mlp model = Classifier();
  Trainer trainer = Make(model, {.precision = Precision::kBf16});
  Trainer exact = Make(model, {});
  const Dataset dataset = Dataset::Create(ClassificationBatch(8, 1).fields).value();
  MustStep(trainer, ClassificationBatch(8, 2));
  const double loss = trainer.Evaluate(dataset).value().loss;
  EXPECT_EQ(loss, MustStep(trainer, ClassificationBatch(8, 1)).loss);  // before its update
  const auto logits = [&](const Inputs& in) { return model(in["x"]); };
  EXPECT_EQ(EvaluateClassifier(logits, dataset, 8, {}, "label", Precision::kBf16).value().loss,
            trainer.Evaluate(dataset).value().loss);
  EXPECT_NEAR(trainer.Evaluate(dataset).value().loss, exact.Evaluate(dataset).value().loss, 0.02);
}

TEST_F(PrecisionTrainingTest, GradientsThatAreNotFiniteSkipTheStep) {
  const Mlp model = Classifier();
  Trainer trainer = Make(model, {.precision = Precision::kBf16});
  MustStep(trainer, ClassificationBatch(8, 1));
  const auto before = Snapshot(model);
  Batch batch = ClassificationBatch(8, 1);
  batch.fields[0].values = MakeTensor(std::vector<double>(40, 3.4e38), {8, 5});  // beyond the largest bf16
  EXPECT_TRUE(MustStep(trainer, batch).skipped);
  EXPECT_EQ(Snapshot(model), before);
  EXPECT_FALSE(MustStep(trainer, ClassificationBatch(8, 1)).skipped);
}

}  // namespace
}  // namespace gemmill
