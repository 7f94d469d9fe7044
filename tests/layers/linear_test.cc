// Linear, Mlp, Embedding, the norms and Dropout as layers: what they compute, and what they refuse.
#include "gemmill/layers/linear.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gemmill/gemmill.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename T>
std::string Error(const absl::StatusOr<T>& made) {
  return Message(made.status());
}

TEST(LinearTest, IsAnAffineMap) {
  const Var weight = Parameter({1, 2, 3, 4, 5, 6}, {2, 3});
  const Linear linear = Linear::FromParameters(weight, Parameter({10, -20}, {2})).value();
  ExpectVar(linear(Constant({1, 1, 1, 0, 0, 1}, {2, 3})), {16, -5, 13, -14});
  ExpectVar(linear(Constant({1, 1, 1, 0, 0, 1}, {2, 1, 3})), {16, -5, 13, -14});
  const Linear relu = Linear::FromParameters(weight, Parameter({10, -20}, {2}), Activation::kRelu).value();
  ExpectVar(relu(Constant({1, 1, 1}, {1, 3})), {16, 0});
  const Linear bare = Linear::FromParameters(weight, Var()).value();
  ExpectVar(bare(Constant({1, 1, 1}, {1, 3})), {6, 15});
  EXPECT_EQ(bare.named_parameters().size(), 1u);
}

TEST(LinearTest, EveryActivation) {
  const Var x = Constant({-1, 0.5, 2}, {3});
  const std::vector<std::pair<Activation, Var>> expected{{Activation::kNone, x},
                                                         {Activation::kRelu, Relu(x)},
                                                         {Activation::kGelu, Gelu(x)},
                                                         {Activation::kGeluTanh, GeluTanh(x)},
                                                         {Activation::kTanh, Tanh(x)},
                                                         {Activation::kSilu, Silu(x)},
                                                         {Activation::kSigmoid, Sigmoid(x)}};
  for (const auto& [activation, value] : expected) {
    EXPECT_EQ(Read(Activate(activation, x)), Read(value)) << ActivationName(activation);
    EXPECT_EQ(ParseActivation(ActivationName(activation)).value(), activation);
  }
  EXPECT_THAT(Error(ParseActivation("swish")), AllOf(HasSubstr("\"swish\""), HasSubstr("gelu, gelu_tanh, tanh, silu")));
}

TEST(LinearTest, Refuses) {
  EXPECT_THAT(Error(Linear::Create({.inputs = 0, .outputs = 3})), AllOf(HasSubstr("0 inputs"), HasSubstr("3 outputs")));
  EXPECT_THAT(Error(Linear::Create({.inputs = 2, .outputs = -1})), HasSubstr("-1 outputs"));
  EXPECT_FALSE(Linear::Create({.inputs = int64_t{1} << 40, .outputs = int64_t{1} << 40}).ok());
  EXPECT_THAT(Error(Linear::Create({.inputs = 2, .outputs = 2}, {.dtype = DType::kI64})), HasSubstr("i64"));
  EXPECT_THAT(Error(Linear::FromParameters(Parameter({1}, {1}), Var())), HasSubstr("f32[1]"));
  EXPECT_THAT(Error(Linear::FromParameters(Parameter({1, 2}, {2, 1}), Parameter({1}, {1}))),
              AllOf(HasSubstr("f32[1]"), HasSubstr("f32[2, 1]")));
  EXPECT_THAT(Error(Linear::FromParameters(Var(), Var())), HasSubstr("empty Var"));
  EXPECT_THAT(Error(Linear::FromParameters(Parameter({1, 2}, {1, 2}, DType::kI32), Var())), HasSubstr("i32[1, 2]"));
}

TEST(LinearTest, SizesBeyondTheMachine) {
  const absl::Status linear = Linear::Create({.inputs = 64, .outputs = int64_t{1} << 42}).status();
  EXPECT_EQ(linear.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(linear), HasSubstr("[4398046511104, 64]"));
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
    const InitOptions init{.dtype = dtype};
    EXPECT_TRUE(absl::IsResourceExhausted(Embedding::Create({.rows = int64_t{1} << 50, .width = 4}, init).status()));
    EXPECT_TRUE(absl::IsResourceExhausted(LayerNorm::Create({.width = int64_t{1} << 50}, init).status()));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Mlp::Create({.sizes = {64, int64_t{1} << 45, 10}}).status()));
}

TEST(LinearTest, ErrorsNameTheLineThatCalledTheLayer) {
  const Linear linear = Linear::Create({.inputs = 3, .outputs = 2}).value();
  EXPECT_THAT(Message(linear(Constant({1, 2}, {1, 2}))), HasSubstr(Place(__FILE__, __LINE__)));
  EXPECT_THAT(Message(linear(Constant({1, 2, 3}, {1, 3}, DType::kF64))), HasSubstr(Place(__FILE__, __LINE__)));
}

TEST(MlpTest, Refuses) {
  EXPECT_THAT(Error(Mlp::Create({.sizes = {4}})), AllOf(HasSubstr("4"), HasSubstr("at least two")));
  EXPECT_THAT(Error(Mlp::Create({})), HasSubstr("at least two"));
  EXPECT_THAT(Error(Mlp::Create({.sizes = {4, 0, 2}})), HasSubstr("4,0,2"));
  EXPECT_THAT(Error(Mlp::Create({.sizes = {4, -3, 2}})), HasSubstr("4,-3,2"));
  EXPECT_THAT(Error(Mlp::Create({.sizes = {4, 3, 2}, .dropout = 1})), HasSubstr("rate is 1"));
  EXPECT_THAT(Error(Mlp::Create({.sizes = {4, 2}, .dropout = 5})), HasSubstr("rate is 5"));
  EXPECT_FALSE(Mlp::Create({.sizes = {4, 2}, .dropout = NAN}).ok());
}

TEST(MlpTest, ErrorsNameTheLineAndTheLayer) {
  const Mlp mlp = Mlp::Create({.sizes = {4, 3, 2}}).value();
  const int line = __LINE__ + 1;
  const Var y = mlp(Constant({1, 2}, {1, 2}));
  EXPECT_THAT(Message(y), AllOf(HasSubstr(Place(__FILE__, line)), HasSubstr("layer fc1")));
}

TEST(MlpTest, DropoutActsOnlyInTraining) {
  const Mlp mlp = Mlp::Create({.sizes = {4, 64, 2}, .dropout = 0.5f}, {.seed = 1}).value();
  const Var x = Constant({1, 2, 3, 4}, {1, 4});
  const std::vector<double> evaluated = Read(mlp(x));
  EXPECT_EQ(Read(mlp(x)), evaluated);
  const TrainingScope training({.seed = 1});
  EXPECT_NE(Read(mlp(x)), evaluated);
}

// Each of two dropouts draws for itself: through layers that pass on what they get, a quarter is kept by both.
TEST(MlpTest, DropoutsDiffer) {
  const Mlp mlp =
      Mlp::Create({.sizes = {32, 32, 32, 32}, .activation = Activation::kNone, .bias = false, .dropout = 0.5f}).value();
  const Tensor identity = TensorIn(OneHot(Iota(32), 32));
  for (const Linear& layer : mlp.layers()) ASSERT_TRUE(TensorIn(layer.weight()).CopyFrom(identity).ok());
  const TrainingScope training({.seed = 1});
  const std::vector<double> y = Read(mlp(Fill({128, 32}, 1)));
  const auto kept = std::count(y.begin(), y.end(), 4);
  EXPECT_EQ(kept + std::count(y.begin(), y.end(), 0), 4096);
  EXPECT_NEAR(static_cast<double>(kept) / 4096, 0.25, 5 * std::sqrt(0.25 * 0.75 / 4096));
}

TEST(EmbeddingTest, LooksUpRows) {
  const Embedding embedding = Embedding::Create({.rows = 4, .width = 2}, {.seed = 1}).value();
  const std::vector<double> table = Read(embedding.weight());
  const Var rows = embedding(Constant({3, 0}, {1, 2}, DType::kI32));
  EXPECT_EQ(rows.shape(), (Shape{1, 2, 2}));
  ExpectVar(rows, {table[6], table[7], table[0], table[1]});
  const auto at = HasSubstr(Place(__FILE__, __LINE__ + 1));
  EXPECT_THAT(Message(embedding(Constant({4}, {1}, DType::kI64))), AllOf(at, HasSubstr("4")));
  EXPECT_THAT(Message(embedding(Constant({-1}, {1}, DType::kI64))), HasSubstr("-1"));
  EXPECT_THAT(Error(Embedding::Create({.rows = 0, .width = 2})), AllOf(HasSubstr("0 rows"), HasSubstr("width 2")));
  EXPECT_THAT(Error(Embedding::Create({.rows = 2, .width = 2, .deviation = NAN})), HasSubstr("deviation) is nan"));
  EXPECT_THAT(Error(Embedding::Create({.rows = 2, .width = 2, .deviation = -1})), HasSubstr("deviation) is -1"));
}

TEST(NormTest, KnownValues) {
  const LayerNorm norm = LayerNorm::Create({.width = 4, .epsilon = 0}).value();
  ExpectVar(norm(Constant({40000, 40001, 40002, 40003}, {1, 4})), {-1.34164, -0.44721, 0.44721, 1.34164}, 1e-5);
  const RmsNorm rms = RmsNorm::Create({.width = 2, .epsilon = 0}).value();
  ExpectVar(rms(Constant({3, 4}, {1, 2})), {3 / std::sqrt(12.5), 4 / std::sqrt(12.5)});
  EXPECT_EQ(norm.named_parameters().size(), 2u);
  EXPECT_EQ(LayerNorm::Create({.width = 4, .bias = false})->named_parameters().size(), 1u);
  EXPECT_EQ(rms.named_parameters().size(), 1u);
}

TEST(NormTest, Refuses) {
  EXPECT_THAT(Error(LayerNorm::Create({})), HasSubstr("width is 0"));
  EXPECT_THAT(Error(RmsNorm::Create({.width = -2})), HasSubstr("width is -2"));
  EXPECT_THAT(Error(LayerNorm::Create({.width = 2, .epsilon = -1})), HasSubstr("epsilon is -1"));
  EXPECT_FALSE(RmsNorm::Create({.width = 2, .epsilon = NAN}).ok());
  const LayerNorm norm = LayerNorm::Create({.width = 4}).value();
  EXPECT_THAT(Message(norm(Constant({1, 2, 3}, {1, 3}))), HasSubstr(Place(__FILE__, __LINE__)));
}

TEST(DropoutLayerTest, Refuses) {
  EXPECT_THAT(Error(Dropout::Create({.rate = 1})), HasSubstr("rate is 1"));
  EXPECT_THAT(Error(Dropout::Create({.rate = -0.1f})), HasSubstr("-0.1"));
  EXPECT_FALSE(Dropout::Create({.rate = NAN}).ok());
}

// Two parts of a model that are made alike, dropouts included.
class TwoParts : public Module {
 public:
  TwoParts() : Module() {
    AddModule("a", a);
    AddModule("b", b);
  }
  Dropout a = Dropout::Create({}).value();
  Dropout b = Dropout::Create({}).value();
};

TEST(DropoutTest, PartsOfAModelDropApart) {
  const TwoParts parts;
  const TrainingScope training({.seed = 1});
  const Var ones = Fill({16, 16}, 1);
  EXPECT_EQ(Read(parts.a(ones)), Read(parts.a(ones)));
  EXPECT_NE(Read(parts.a(ones)), Read(parts.b(ones)));
}

}  // namespace
}  // namespace gemmill
