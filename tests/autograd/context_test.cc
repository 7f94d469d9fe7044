// Scopes, and what errors say of where an op stood.
#include "gemmill/autograd/context.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gemmill/autograd/custom.h"
#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ContextTest, LayersNest) {
  EXPECT_EQ(CurrentLayer(), "");
  {
    const LayerScope unnamed("");
    const LayerScope encoder("encoder");
    EXPECT_EQ(CurrentLayer(), "encoder");
    const LayerScope inner("fc1");
    EXPECT_EQ(CurrentLayer(), "encoder.fc1");
    {
      const LayerScope path = LayerScope::Path("decoder.fc2", GemmRole::kDgrad);
      EXPECT_EQ(CurrentLayer(), "decoder.fc2");
      EXPECT_EQ(CurrentRole(), GemmRole::kDgrad);
    }
    EXPECT_EQ(CurrentLayer(), "encoder.fc1");
    EXPECT_EQ(CurrentRole(), GemmRole::kForward);
  }
  EXPECT_EQ(CurrentLayer(), "");
}

TEST(ContextTest, OriginsName) {
  EXPECT_EQ((Caller{"/src/train.cc", 12}.ToString()), "train.cc:12");
  EXPECT_EQ((Caller{"train.cc", 3}.ToString()), "train.cc:3");
  EXPECT_EQ((Origin{"mlp.fc1", GemmRole::kForward, {"a/train.cc", 12}}.ToString()), "train.cc:12, layer mlp.fc1");
  EXPECT_EQ((Origin{"", GemmRole::kWgrad, {"train.cc", 12}}.ToString()), "train.cc:12 (wgrad)");
}

TEST(ContextTest, ErrorsNameTheLayer) {
  const LayerScope scope("encoder");
  const LayerScope inner("fc1");
  EXPECT_THAT(Message(MatMul(Constant({1}, {1, 1}), Constant({1, 2}, {2, 1}))), HasSubstr("layer encoder.fc1"));
  EXPECT_THAT(Message(Softmax(Constant({1}, {1, 1}), 3)), HasSubstr("layer encoder.fc1"));
}

class NoRule : public CustomOp {
 public:
  std::string Name() const override { return "NoRule"; }
  absl::StatusOr<std::vector<Spec>> Infer(Specs inputs) const override { return std::vector<Spec>{inputs[0]}; }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    return outputs[0].CopyFrom(inputs[0]);
  }
};

TEST(ContextTest, ErrorsOfGradientsNameTheLayerOfTheOp) {
  const Var x = Parameter({1}, {});
  Var y;
  {
    const LayerScope scope("encoder");
    y = ApplyCustom(std::make_shared<NoRule>(), {x})[0];
  }
  const LayerScope elsewhere("elsewhere");
  EXPECT_THAT(Message(Grad(y, {x})[0]), AllOf(HasSubstr("layer encoder"), Not(HasSubstr("elsewhere"))));
}

TEST(ContextTest, OpsOfGradientsBelongToTheLayerOfTheOp) {
  const Var x = Parameter({1, 2}, {1, 2});
  const Var w = Parameter({3, 4}, {1, 2});
  Var y;
  {
    const LayerScope scope("fc");
    y = MatMul(x, w, {.trans_b = true});
  }
  const std::vector<Var> gradients = Grad(Sum(y * y), {x, w}, {.differentiable = true});
  EXPECT_EQ(gradients[0].node()->origin.layer, "fc");
  EXPECT_EQ(gradients[0].node()->origin.role, GemmRole::kDgrad);
  EXPECT_EQ(gradients[1].node()->origin.layer, "fc");
  EXPECT_EQ(gradients[1].node()->origin.role, GemmRole::kWgrad);
}

TEST(ContextTest, CheckNumericsNamesTheFirstOp) {
  const CheckNumericsScope check;
  const Var x = Constant({1, -2, 4}, {3});
  const LayerScope scope("head");
  const int line = __LINE__ + 1;
  const Var bad = Log(x);
  const Var later = Sum(bad * 2.0);
  EXPECT_THAT(Message(later), AllOf(HasSubstr(Place(__FILE__, line)), HasSubstr("layer head"), HasSubstr("log made"),
                                    HasSubstr("element 1"), HasSubstr("f32[3]"), HasSubstr("[-2, 4]")));
}

TEST(ContextTest, CheckNumericsNamesInfinitiesToo) {
  const CheckNumericsScope check;
  const Var a = Constant({1, 0, 2}, {3});
  const Var b = Constant({1, 0.5, 0}, {3});
  EXPECT_THAT(Message(a / b), AllOf(HasSubstr("div made inf"), HasSubstr("[0, 2]"), HasSubstr("[0, 1]")));
  EXPECT_THAT(Message(Exp(Constant({100}, {1}))), HasSubstr("exp made inf"));
  EXPECT_TRUE((a + b).ok());
}

TEST(ContextTest, CheckNumericsLooksAtGradients) {
  const CheckNumericsScope check;
  const Var x = Parameter({0}, {});
  Var y;
  {
    const LayerScope scope("root");
    y = Sqrt(x);
  }
  EXPECT_TRUE(y.ok());
  EXPECT_THAT(Message(Grad(y, {x})[0]), HasSubstr("layer root"));
}

// An infinity that the user wrote was made by no op.
TEST(ContextTest, CheckNumericsAllowsFills) {
  const CheckNumericsScope check;
  EXPECT_TRUE(Fill({2}, -INFINITY).ok());
  EXPECT_NEAR(ReadOne(LogSumExp(Constant({0, 0}, {2}))), std::log(2.0), 1e-6);
  EXPECT_TRUE(Less(Constant({1}, {1}), INFINITY).ok());
}

TEST(ContextTest, CheckNumericsEnds) {
  {
    const CheckNumericsScope check;
    EXPECT_TRUE(CheckNumericsEnabled());
    const CheckNumericsScope off(false);
    EXPECT_TRUE(Log(Constant({-1}, {1})).ok());
  }
  EXPECT_FALSE(CheckNumericsEnabled());
  EXPECT_TRUE(Log(Constant({-1}, {1})).ok());
}

}  // namespace
}  // namespace gemmill
