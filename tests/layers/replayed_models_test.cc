// Whole training steps give the same bits eagerly, recorded and replayed, and replayed with the passes: losses, norms,
// weights and the optimizer's state.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gemmill/autograd/custom.h"
#include "gemmill/data/idx.h"
#include "tests/layers/random_model.h"

namespace gemmill {
namespace {

struct Outcome {
  std::vector<double> reports;  // of each step its loss and its gradients' norm
  std::vector<Tensor> tensors;  // weights and state at the end
};

struct Way {
  const char* name;
  bool trace;
  bool passes;
};
constexpr Way kWays[] = {{"eagerly", false, false}, {"replayed", true, false}, {"replayed with passes", true, true}};

Outcome OutcomeOf(const Module& model, const Trainer& trainer, std::vector<double> reports) {
  Outcome outcome{std::move(reports), {}};
  for (const NamedParameter& parameter : model.named_parameters()) outcome.tensors.push_back(TensorIn(parameter.value));
  for (const Optimizer::State& state : trainer.optimizer().state()) outcome.tensors.push_back(state.value);
  return outcome;
}

// `train` makes a model anew and trains it with these options' trace and passes.
void ExpectTheSameEveryWay(const std::function<Outcome(const Way&)>& train) {
  const Outcome eager = train(kWays[0]);
  for (const Way& way : {kWays[1], kWays[2]}) {
    SCOPED_TRACE(way.name);
    const Outcome other = train(way);
    EXPECT_EQ(other.reports, eager.reports);
    ASSERT_EQ(other.tensors.size(), eager.tensors.size());
    for (size_t i = 0; i < eager.tensors.size(); ++i) EXPECT_TRUE(SameBits(other.tensors[i], eager.tensors[i])) << i;
  }
}

template <typename Batches>
std::vector<double> Reports(Trainer& trainer, const Batches& batches) {
  std::vector<double> reports;
  for (const Batch& batch : batches) {
    const StepReport report = MustStep(trainer, batch);
    EXPECT_FALSE(report.skipped);
    reports.insert(reports.end(), {report.loss, report.gradient_norm});
  }
  return reports;
}

// Of 200 models, 20 a test.
class RandomModels : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomModels, TheSameBitsEveryWay) {
  for (uint32_t seed = GetParam() * 20; seed < GetParam() * 20 + 20; ++seed) {
    SCOPED_TRACE(RandomModel(seed).Describe());
    ExpectTheSameEveryWay([&](const Way& way) {
      const RandomModel model(seed);
      TrainerOptions options = model.options();
      options.trace = way.trace;
      options.passes = way.passes;
      Trainer trainer = Trainer::Make(
                            model, model.NewOptimizer(), [&](const Inputs& in) { return model(in); }, options)
                            .value();
      std::vector<Batch> batches;
      for (int64_t step = 0; step < 4; ++step) batches.push_back(model.NewBatch(step));
      return OutcomeOf(model, trainer, Reports(trainer, batches));
    });
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomModels, testing::Range(0u, 10u));

// 50 steps of examples/train_mlp.cc.
TEST(ReplayedExamplesTest, TrainMlp) {
  const Dataset digits =
      LoadIdxDirectory(std::string(GEMMILL_SOURCE_DIR) + "/data/samples/digits", Split::kTrain).value();
  for (const auto& [dropout, micro_batch] : std::vector<std::pair<float, int64_t>>{{0.0f, 0}, {0.2f, 12}}) {
    ExpectTheSameEveryWay([&](const Way& way) {
      const Mlp model = Mlp::Create({{64, 512, 512, 10}, Activation::kGelu, true, dropout}, {.seed = 1}).value();
      Loader loader = Loader::Create(digits, {.global_batch = 32, .seed = 1}).value();
      Trainer trainer = Trainer::Create(model, AdamW({.learning_rate = 1e-3, .weight_decay = 0.01f}),
                                        [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); },
                                        {.global_batch = 32,
                                         .micro_batch = micro_batch,
                                         .schedule = Schedule::WarmupCosine(2, 50),
                                         .seed = 1,
                                         .trace = way.trace,
                                         .passes = way.passes})
                            .value();
      std::vector<Batch> batches;
      while (batches.size() < 50) {
        for (const Batch& batch : loader) batches.push_back(batch);
      }
      batches.resize(50);
      const std::vector<double> reports = Reports(trainer, batches);
      EXPECT_LT(reports[98], reports[0] / 2) << "it has learnt nothing";
      return OutcomeOf(model, trainer, reports);
    });
  }
}

// As examples/own_layer.cc has it.
class Residual : public Module {
 public:
  explicit Residual(int64_t width, const InitOptions& init = {.seed = 3})
      : norm_(LayerNorm::Create({.width = width}, init).value()),
        mlp_(Mlp::Create({{width, 4 * width, width}, Activation::kGelu}, init).value()),
        gain_(AddParameter("gain", MakeParameter({width}, Initializer::kOnes, init).value())) {
    AddModule("norm", norm_);
    AddModule("mlp", mlp_);
  }
  Var operator()(Located x) const {
    const LayerScope scope(name());
    return x.var + mlp_(norm_(x)) * gain_;
  }

 private:
  LayerNorm norm_;
  Mlp mlp_;
  Var gain_;
};

std::vector<Batch> FiftyBatches(int64_t width) {
  std::vector<Batch> batches;
  for (uint32_t step = 0; step < 50; ++step) {
    batches.push_back(MakeBatch({{"x", MakeTensor(RandomDoubles(8 * width, -1, 1, step), {8, width})}}));
  }
  return batches;
}

TEST(ReplayedExamplesTest, OwnLayer) {
  ExpectTheSameEveryWay([](const Way& way) {
    const Residual model(16);
    Trainer trainer = Trainer::Create(model, Sgd({.learning_rate = 0.01, .momentum = 0.9f}),
                                      [&](const Inputs& in) { return MeanSquaredError(model(in["x"]), in["x"] * 2.0); },
                                      {.global_batch = 8, .micro_batch = 3, .trace = way.trace, .passes = way.passes})
                          .value();
    return OutcomeOf(model, trainer, Reports(trainer, FiftyBatches(16)));
  });
}

// As examples/own_op.cc has it.
class CubeOp : public DifferentiableOp {
 public:
  std::string Name() const override { return "Cube"; }
  absl::StatusOr<std::vector<Spec>> Infer(Specs inputs) const override { return std::vector<Spec>{inputs[0]}; }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    const auto* x = static_cast<const float*>(inputs[0].data());
    auto* y = static_cast<float*>(outputs[0].data());
    for (int64_t i = 0; i < inputs[0].num_elements(); ++i) y[i] = x[i] * x[i] * x[i];
    return absl::OkStatus();
  }
  std::vector<Var> Vjp(absl::Span<const Var> in, absl::Span<const Var>, absl::Span<const Var> dout) const override {
    return {dout[0] * 3.0 * in[0] * in[0]};
  }
};

TEST(ReplayedExamplesTest, OwnOp) {
  ExpectTheSameEveryWay([](const Way& way) {
    const Mlp model = Mlp::Create({.sizes = {6, 6, 6}}, {.seed = 1}).value();
    const auto loss = [&](const Inputs& in) {
      const Var cubed = ApplyCustom(std::make_shared<CubeOp>(), {model(in["x"])})[0];
      const Var slope = Grad(Sum(cubed), {model.layers()[1].bias()}, {.differentiable = true})[0];
      return Loss(Mean(cubed * cubed) + Mean(slope * slope) * 0.1);
    };
    Trainer trainer = Trainer::Create(model, AdamW({.learning_rate = 0.01}), loss,
                                      {.global_batch = 8, .trace = way.trace, .passes = way.passes})
                          .value();
    return OutcomeOf(model, trainer, Reports(trainer, FiftyBatches(6)));
  });
}

}  // namespace
}  // namespace gemmill
