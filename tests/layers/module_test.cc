#include "gemmill/layers/module.h"

#include <string>
#include <utility>
#include <vector>

#include "gemmill/gemmill.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Names(const std::vector<NamedParameter>& parameters) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

// An embedding whose table is also the weight of the output layer.
class TiedModel : public Module {
 public:
  static TiedModel Make() {
    Embedding embedding = Embedding::Create({.rows = 5, .width = 3}, {.seed = 1}).value();
    Linear output = Linear::FromParameters(embedding.weight(), Var()).value();
    return TiedModel(std::move(embedding), std::move(output));
  }
  Var operator()(Located tokens) const { return output_(embedding_(tokens)); }

 private:
  TiedModel(Embedding embedding, Linear output) : embedding_(std::move(embedding)), output_(std::move(output)) {
    AddModule("embedding", embedding_);
    AddModule("output", output_);
  }

  Embedding embedding_;
  Linear output_;
};

// A parameter added after a part.
class LateParameter : public Module {
 public:
  explicit LateParameter(Linear linear) : linear_(std::move(linear)) {
    AddModule("fc", linear_);
    gain_ = AddParameter("gain", Parameter({1, 1}, {2}));
  }

  Var operator()(Located x) const {
    const LayerScope scope(name());
    return linear_(x) * gain_;
  }

 private:
  Linear linear_;
  Var gain_;
};

class Outer : public Module {
 public:
  explicit Outer(LateParameter inner) : inner_(std::move(inner)) { AddModule("block", inner_); }
  Var operator()(Located x) const { return inner_(x); }

 private:
  LateParameter inner_;
};

Linear MakeLinear(int64_t inputs, int64_t outputs) {
  return Linear::Create({.inputs = inputs, .outputs = outputs}, {.seed = 1}).value();
}

TEST(ModuleTest, ParametersAreNamedInOrder) {
  const Mlp mlp = Mlp::Create({.sizes = {4, 3, 2}, .dropout = 0.5f}).value();
  EXPECT_THAT(Names(mlp.named_parameters()), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(mlp.parameter("fc2.weight").shape(), (Shape{2, 3}));
  EXPECT_TRUE(mlp.parameter("fc1.weight").Is(mlp.layers()[0].weight()));
  EXPECT_THAT(Message(mlp.parameter("fc3.weight")), AllOf(HasSubstr("fc3.weight"), HasSubstr("fc1.bias, fc2.weight")));
  const Outer outer(LateParameter(MakeLinear(3, 2)));
  EXPECT_THAT(Names(outer.named_parameters()), ElementsAre("block.fc.weight", "block.fc.bias", "block.gain"));
}

TEST(ModuleTest, OpsKnowTheirLayer) {
  const Outer outer(LateParameter(MakeLinear(3, 2)));
  const int line = __LINE__ + 1;
  const Var y = outer(Constant({1, 2}, {1, 2}));
  EXPECT_THAT(Message(y), AllOf(HasSubstr("layer block.fc"), HasSubstr(Place(__FILE__, line)), HasSubstr("MatMul")));
  EXPECT_EQ(CurrentLayer(), "");
}

TEST(ModuleTest, CopiesShareParameters) {
  const Mlp mlp = Mlp::Create({.sizes = {2, 2}}).value();
  const Mlp copy = mlp;
  Sgd optimizer({.learning_rate = 1});
  const Var x = Constant({1, 1}, {1, 2});
  const Var before = copy(x);
  ASSERT_TRUE(optimizer.Apply(mlp.trainable(), Grad(Sum(mlp(x)), mlp.parameters())).ok());
  EXPECT_NE(Read(copy(x)), Read(before));
  EXPECT_EQ(Read(copy(x)), Read(mlp(x)));
}

TEST(ModuleTest, TiedWeights) {
  const TiedModel model = TiedModel::Make();
  EXPECT_THAT(Names(model.named_parameters()), ElementsAre("embedding.weight", "output.weight"));
  EXPECT_THAT(Names(model.trainable()), ElementsAre("embedding.weight"));
  ASSERT_EQ(model.parameters().size(), 1u);
  const Var tokens = Constant({1, 4}, {2}, DType::kI64);

  // The gradient is the sum over both uses: those of an untied model with the same values.
  const Var table = Var::Parameter(TensorIn(model.parameters()[0]));
  const Var weight = Var::Parameter(TensorIn(model.parameters()[0]));
  const Var untied = Sum(Sin(MatMul(GatherRows(table, tokens), weight, {.trans_b = true})));
  const std::vector<Var> parts = Grad(untied, {table, weight});
  const Var gradient = Grad(Sum(Sin(model(tokens))), model.parameters())[0];
  ExpectVar(gradient, Read(parts[0] + parts[1]));

  // And it is taken once.
  std::vector<double> expected = Read(model.parameters()[0]);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] -= 0.5 * Read(gradient)[i];
  Sgd optimizer({.learning_rate = 0.5});
  ASSERT_TRUE(optimizer.Apply(model.trainable(), {gradient}).ok());
  ExpectVar(model.parameter("output.weight"), expected);
  ExpectVar(model.parameter("embedding.weight"), expected);

  EXPECT_THAT(Summary(model), AllOf(ContainsRegex("embedding +Embedding 5 x 3 +15 +60\n"),
                                    ContainsRegex("output +Linear 3 -> 5, no bias +0 +5 x 3 +0\n"),
                                    ContainsRegex("total +15 +1 forward +60\n")));
}

TEST(ModuleTest, Freezing) {
  const Mlp mlp = Mlp::Create({.sizes = {3, 2, 2}}).value();
  ASSERT_TRUE(mlp.Freeze([](const std::string& name) { return name.rfind("fc1", 0) == 0; }).ok());
  EXPECT_THAT(Names(mlp.trainable()), ElementsAre("fc2.weight", "fc2.bias"));
  EXPECT_THAT(Summary(mlp), HasSubstr("8 parameters frozen"));
  const std::vector<double> frozen = Read(mlp.parameter("fc1.weight"));
  const std::vector<double> trained = Read(mlp.parameter("fc2.weight"));
  AdamW optimizer({.learning_rate = 0.1});
  const Var x = Constant({1, 2, 3}, {1, 3});
  ASSERT_TRUE(optimizer.Apply(mlp.trainable(), Grad(Sum(mlp(x) * mlp(x)), mlp.parameters())).ok());
  EXPECT_EQ(Read(mlp.parameter("fc1.weight")), frozen);
  EXPECT_NE(Read(mlp.parameter("fc2.weight")), trained);
  ASSERT_TRUE(mlp.Freeze([](const std::string&) { return true; }).ok());
  EXPECT_TRUE(mlp.trainable().empty());
  ASSERT_TRUE(mlp.Freeze([](const std::string&) { return true; }, false).ok());
  EXPECT_THAT(Message(mlp.Freeze(nullptr)), HasSubstr("Freeze"));
  EXPECT_EQ(mlp.trainable().size(), 4u);
  EXPECT_THAT(Summary(mlp), Not(HasSubstr("frozen")));
}

TEST(SummaryTest, CountsLayersParametersGemmsAndBytes) {
  const Mlp mlp = Mlp::Create({.sizes = {784, 512, 10}, .activation = Activation::kGelu, .dropout = 0.1f}).value();
  EXPECT_THAT(Summary(mlp), AllOf(ContainsRegex("fc1 +Linear 784 -> 512, gelu +401920 +512 x 784 +1607680\n"),
                                  ContainsRegex("dropout1 +Dropout 0.1 +0 +0\n"),
                                  ContainsRegex("fc2 +Linear 512 -> 10 +5130 +10 x 512 +20520\n"),
                                  ContainsRegex("total +407050 +2 forward +1628200\n")));
}

TEST(SummaryTest, BytesFollowTheDType) {
  const Linear linear = Linear::Create({.inputs = 4, .outputs = 2}, {.dtype = DType::kBf16}).value();
  EXPECT_THAT(Summary(linear), ContainsRegex("total +10 +1 forward +20\n"));
}

TEST(SummaryTest, AModulesOwnParametersHaveALineOfTheirOwn) {
  const LateParameter model(MakeLinear(3, 2));
  EXPECT_THAT(Summary(model),
              AllOf(ContainsRegex(" parameters +2 +8\n"), ContainsRegex("fc +Linear 3 -> 2 +8 +2 x 3 +32\n"),
                    ContainsRegex("total +10 +1 forward +40\n")));
  EXPECT_THAT(Summary(Outer(model)), ContainsRegex("block +parameters +2 +8\n"));
}

}  // namespace
}  // namespace gemmill
