// Whole models against PyTorch: outputs, losses, gradients, and 20 steps of each optimizer.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gemmill/gemmill.h"
#include "tests/layers/fixture.h"

namespace gemmill {
namespace {

using nlohmann::json;

constexpr int kSteps = 20;

// A model whose parameters stand in the order of the fixture's.
struct TrainingCase {
  const Module& model;
  std::function<Loss()> loss;
  const json& fixture;
};

void SetInitialValues(const TrainingCase& test) {
  const std::vector<NamedParameter>& parameters = test.model.named_parameters();
  ASSERT_EQ(parameters.size(), test.fixture["parameters"].size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const json& expected = test.fixture["parameters"][i];
    SetValue(parameters[i].value, FixtureTensor(expected["initial"]));
    EXPECT_EQ(IsBiasOrNorm(parameters[i].name), !expected["weight_decay"].get<bool>()) << parameters[i].name;
  }
}

void ExpectLossAndGradients(const TrainingCase& test) {
  SetInitialValues(test);
  const Var loss = test.loss();
  EXPECT_NEAR(ReadOne(loss), test.fixture["loss"].get<double>(), 1e-6);
  const std::vector<Var> gradients = Grad(loss, test.model.parameters());
  ASSERT_EQ(gradients.size(), test.fixture["parameters"].size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const json& expected = test.fixture["parameters"][i];
    SCOPED_TRACE(expected["name"].get<std::string>());
    ExpectFixture(gradients[i], expected["gradient"], 1e-5, 1e-6);
  }
}

void ExpectSteps(const TrainingCase& test, Optimizer& optimizer, const json& settings, const char* after) {
  SetInitialValues(test);
  for (int step = 0; step < kSteps; ++step) {
    const Var loss = test.loss();
    EXPECT_NEAR(ReadOne(loss), settings["losses"][static_cast<size_t>(step)].get<double>(), 2e-6) << "step " << step;
    const absl::Status applied = optimizer.Apply(test.model.trainable(), Grad(loss, test.model.parameters()));
    ASSERT_TRUE(applied.ok()) << applied;
  }
  EXPECT_EQ(optimizer.steps(), kSteps);
  for (size_t i = 0; i < test.model.named_parameters().size(); ++i) {
    const NamedParameter& parameter = test.model.named_parameters()[i];
    SCOPED_TRACE(parameter.name);
    ExpectFixture(parameter.value, test.fixture["parameters"][i][after], 1e-5, 2e-6);
  }
}

void ExpectAdamWSteps(const TrainingCase& test) {
  const json& settings = test.fixture["adamw"];
  AdamW optimizer({.learning_rate = settings["learning_rate"],
                   .beta1 = settings["beta1"],
                   .beta2 = settings["beta2"],
                   .epsilon = settings["epsilon"],
                   .weight_decay = settings["weight_decay"]});
  ExpectSteps(test, optimizer, settings, "after_adamw");
}

void ExpectSgdSteps(const TrainingCase& test) {
  const json& settings = test.fixture["sgd"];
  Sgd optimizer({.learning_rate = settings["learning_rate"],
                 .momentum = settings["momentum"],
                 .nesterov = settings["nesterov"],
                 .weight_decay = settings["weight_decay"]});
  ExpectSteps(test, optimizer, settings, "after_sgd");
}

class OracleMlpTest : public testing::TestWithParam<Activation> {
 protected:
  OracleMlpTest()
      : fixture_(ReadFixture("mlp_" + FixtureName() + ".json")),
        model_(Mlp::Create({.sizes = fixture_["sizes"].get<std::vector<int64_t>>(), .activation = GetParam()}).value()),
        inputs_(FixtureTensor(fixture_["inputs"])),
        labels_(FixtureTensor(fixture_["labels"], DType::kI64)) {}

  static std::string FixtureName() { return GetParam() == Activation::kGelu ? "gelu_erf" : ActivationName(GetParam()); }

  TrainingCase Case() const {
    return {model_, [this] { return CrossEntropy(model_(inputs_), labels_); }, fixture_};
  }

  const json fixture_;
  const Mlp model_;
  const Var inputs_;
  const Var labels_;
};

TEST_P(OracleMlpTest, Logits) {
  SetInitialValues(Case());
  ExpectFixture(model_(inputs_), fixture_["logits"], 1e-5, 1e-6);
}

TEST_P(OracleMlpTest, LossAndGradients) { ExpectLossAndGradients(Case()); }
TEST_P(OracleMlpTest, AdamWSteps) { ExpectAdamWSteps(Case()); }
TEST_P(OracleMlpTest, SgdSteps) { ExpectSgdSteps(Case()); }

INSTANTIATE_TEST_SUITE_P(Activations, OracleMlpTest,
                         testing::Values(Activation::kRelu, Activation::kGelu, Activation::kGeluTanh, Activation::kTanh,
                                         Activation::kSilu),
                         [](const auto& test) { return std::string(ActivationName(test.param)); });

// Embedding, both norms, and layers that act on the last of three dimensions.
class TokensModel : public Module {
 public:
  static absl::StatusOr<TokensModel> Create(const json& fixture) {
    const int64_t width = fixture["width"];
    const int64_t hidden = fixture["hidden"];
    const int64_t classes = fixture["classes"];
    GM_ASSIGN_OR_RETURN(Embedding embedding, Embedding::Create({.rows = fixture["vocabulary"], .width = width}));
    GM_ASSIGN_OR_RETURN(LayerNorm layer_norm,
                        LayerNorm::Create({.width = width, .epsilon = fixture["layer_norm_epsilon"]}));
    GM_ASSIGN_OR_RETURN(Linear linear,
                        Linear::Create({.inputs = width, .outputs = hidden, .activation = Activation::kSilu}));
    GM_ASSIGN_OR_RETURN(Dropout dropout, Dropout::Create({.rate = 0}));
    GM_ASSIGN_OR_RETURN(RmsNorm rms_norm, RmsNorm::Create({.width = hidden, .epsilon = fixture["rms_norm_epsilon"]}));
    GM_ASSIGN_OR_RETURN(Linear output, Linear::Create({.inputs = hidden, .outputs = classes}));
    return TokensModel(std::move(embedding), std::move(layer_norm), std::move(linear), std::move(dropout),
                       std::move(rms_norm), std::move(output));
  }

  Var operator()(Located tokens) const {
    const Var hidden = hidden_(layer_norm_(embedding_(std::move(tokens))));
    return output_(rms_norm_(dropout_(hidden)));
  }

 private:
  TokensModel(Embedding embedding, LayerNorm layer_norm, Linear hidden, Dropout dropout, RmsNorm rms_norm,
              Linear output)
      : embedding_(std::move(embedding)),
        layer_norm_(std::move(layer_norm)),
        hidden_(std::move(hidden)),
        dropout_(std::move(dropout)),
        rms_norm_(std::move(rms_norm)),
        output_(std::move(output)) {
    AddModule("embedding", embedding_);
    AddModule("layer_norm", layer_norm_);
    AddModule("hidden", hidden_);
    AddModule("dropout", dropout_);
    AddModule("rms_norm", rms_norm_);
    AddModule("output", output_);
  }

  Embedding embedding_;
  LayerNorm layer_norm_;
  Linear hidden_;
  Dropout dropout_;
  RmsNorm rms_norm_;
  Linear output_;
};

class OracleTokensTest : public testing::Test {
 protected:
  OracleTokensTest()
      : fixture_(ReadFixture("tokens.json")),
        model_(TokensModel::Create(fixture_).value()),
        tokens_(FixtureTensor(fixture_["tokens"], DType::kI32)),
        labels_(Reshape(Var(FixtureTensor(fixture_["labels"], DType::kI64)), tokens_.shape())),
        training_({.seed = 1}) {}

  TrainingCase Case() const {
    return {model_, [this] { return CrossEntropy(model_(tokens_), labels_); }, fixture_};
  }

  const json fixture_;
  const TokensModel model_;
  const Var tokens_;
  const Var labels_;
  const TrainingScope training_;
};

TEST_F(OracleTokensTest, NamesOfParameters) {
  const std::vector<NamedParameter>& parameters = model_.named_parameters();
  ASSERT_EQ(parameters.size(), fixture_["parameters"].size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].name, fixture_["parameters"][i]["name"].get<std::string>());
  }
}

TEST_F(OracleTokensTest, LossAndGradients) { ExpectLossAndGradients(Case()); }
TEST_F(OracleTokensTest, AdamWSteps) { ExpectAdamWSteps(Case()); }
TEST_F(OracleTokensTest, SgdSteps) { ExpectSgdSteps(Case()); }

}  // namespace
}  // namespace gemmill
