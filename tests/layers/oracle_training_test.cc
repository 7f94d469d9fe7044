// Losses, clipping and schedules against PyTorch.
#include <string>
#include <utility>
#include <vector>

#include "gemmill/gemmill.h"
#include "tests/layers/fixture.h"

namespace gemmill {
namespace {

using nlohmann::json;

TEST(OracleLossTest, CrossEntropy) {
  const json fixture = ReadFixture("losses.json");
  for (const json& test : fixture["cross_entropy"]) {
    SCOPED_TRACE(test["ignore_index"].dump() + ", " + test["label_smoothing"].dump());
    const CrossEntropyOptions options{.ignore_index = test["ignore_index"], .label_smoothing = test["label_smoothing"]};
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const Var logits = Var::Parameter(FixtureTensor(test["logits"], dtype));
      const Loss loss = CrossEntropy(logits, Var(FixtureTensor(test["labels"], DType::kI64)), options);
      EXPECT_EQ(ReadOne(loss.count), test["count"].get<double>());
      ExpectVar(loss, {test["loss"].get<double>()}, 1e-6);
      ExpectFixture(Grad(loss, {logits})[0], test["gradient"], 1e-5, 1e-7);
    }
  }
}

TEST(OracleLossTest, OverElements) {
  const json fixture = ReadFixture("losses.json");
  const std::vector<std::pair<std::string, Loss (*)(Located, const Var&)>> losses{
      {"mse", MeanSquaredError},
      {"l1", MeanAbsoluteError},
      {"binary_cross_entropy_with_logits", BinaryCrossEntropyWithLogits}};
  for (const auto& [name, function] : losses) {
    SCOPED_TRACE(name);
    const json& test = fixture[name];
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const Var prediction = Var::Parameter(FixtureTensor(test["prediction"], dtype));
      const Loss loss = function(prediction, Var(FixtureTensor(test["target"], dtype)));
      ExpectVar(loss, {test["loss"].get<double>()}, 1e-6);
      ExpectFixture(Grad(loss, {prediction})[0], test["gradient"], 1e-5, 1e-7);
    }
  }
}

class Weights : public Module {
 public:
  Var Add(const std::string& parameter_name, const Var& value) { return AddParameter(parameter_name, value); }
};

// Steps of learning rate 1 from 0 along gradients that the loss, a weighted sum, is made to have.
TEST(OracleClippingTest, ByGlobalNorm) {
  const json fixture = ReadFixture("clipping.json");
  for (const json& test : fixture["cases"]) {
    Weights model;
    std::vector<Var> weights;
    std::vector<Var> gradients;
    for (const json& gradient : test["gradients"]) {
      gradients.emplace_back(FixtureTensor(gradient));
      const Tensor zeros = ValueOf(Tensor::Zeros(gradients.back().spec()));
      weights.push_back(model.Add("weight" + std::to_string(weights.size()), Var::Parameter(zeros)));
    }
    const auto loss = [&](const Inputs&) {
      Var sum = Fill({}, 0);
      for (size_t i = 0; i < weights.size(); ++i) sum = sum + Sum(weights[i] * gradients[i]);
      return Loss(sum);
    };
    Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 1}), loss,
                                      {.global_batch = 4, .micro_batch = 3, .clip_norm = test["max_norm"]})
                          .value();
    Batch batch;
    batch.samples = 4;
    const StepReport report = trainer.Step(batch).value();
    EXPECT_NEAR(report.gradient_norm, test["norm"].get<double>(), 1e-6);
    for (size_t i = 0; i < weights.size(); ++i) ExpectFixture(-weights[i], test["clipped"][i], 1e-5, 1e-7);
  }
}

void ExpectRates(const Schedule& schedule, const json& test) {
  const std::vector<double> rates = test["rates"];
  for (size_t step = 0; step < rates.size(); ++step) {
    const double rate = test["learning_rate"].get<double>() * schedule.Factor(static_cast<int64_t>(step));
    EXPECT_NEAR(rate, rates[step], 1e-8 * rates[step]) << "step " << step;
  }
}

TEST(OracleScheduleTest, Rates) {
  const json fixture = ReadFixture("schedules.json");
  const json& cosine = fixture["warmup_cosine"];
  const double final_factor = cosine["final_learning_rate"].get<double>() / cosine["learning_rate"].get<double>();
  ExpectRates(Schedule::WarmupCosine(cosine["warmup_steps"], cosine["total_steps"], final_factor), cosine);
  ExpectRates(Schedule::Step(fixture["step"]["period"], fixture["step"]["factor"]), fixture["step"]);
}

}  // namespace
}  // namespace gemmill
