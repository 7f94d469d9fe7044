// Optimizers as objects: state, groups, and errors that change nothing. The update formulas:
// tests/runtime/optimizer_test.cc.
#include "gemmill/layers/training/optimizer.h"

#include <cmath>
#include <string>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/layers/linear.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(OptimizerTest, AdamWDecaysTheOldWeight) {
  const Var w = Parameter({2}, {1});
  AdamW optimizer({.learning_rate = 0.1, .weight_decay = 0.5f});
  ASSERT_TRUE(optimizer.Apply({{"w", w}}, {Constant({3}, {1})}).ok());
  // mhat = 3, vhat = 9.
  ExpectVar(w, {2 * (1 - 0.1 * 0.5) - 0.1 * 3 / (3 + 1e-8)});
  ASSERT_TRUE(optimizer.Apply({{"w", w}}, {Constant({-1}, {1})}).ok());
  const double w1 = 2 * 0.95 - 0.1;
  const double mhat = (0.9 * 0.1 * 3 + 0.1 * -1) / (1 - 0.81);
  const double vhat = (0.999 * 0.001 * 9 + 0.001 * 1) / (1 - 0.999 * 0.999);
  ExpectVar(w, {w1 * 0.95 - 0.1 * mhat / (std::sqrt(vhat) + 1e-8)}, 1e-5);
}

TEST(OptimizerTest, AZeroGradientWithoutDecayChangesNothing) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
    const std::vector<double> values = Read(Constant({1.7, -1e-30, 3e30}, {3}, dtype));
    const Var w = Parameter(values, {3}, dtype);
    AdamW adamw({.learning_rate = 0.1, .weight_decay = 0});
    Sgd sgd({.learning_rate = 0.1, .momentum = 0.9f, .nesterov = true});
    for (Optimizer* optimizer : {static_cast<Optimizer*>(&adamw), static_cast<Optimizer*>(&sgd)}) {
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(optimizer->Apply({{"w", w}}, {Fill({3}, 0, dtype)}).ok());
      }
      EXPECT_EQ(Read(w), values) << optimizer->Name() << " " << DTypeName(dtype);
    }
  }
}

TEST(OptimizerTest, NamesOfBiasesAndNorms) {
  for (const char* name : {"bias", "fc1.bias", "layer_norm.weight", "block.norm1.weight", "norm.bias"}) {
    EXPECT_TRUE(IsBiasOrNorm(name)) << name;
  }
  for (const char* name : {"weight", "fc1.weight", "embedding.weight", "biased.weight", "unbias"}) {
    EXPECT_FALSE(IsBiasOrNorm(name)) << name;
  }
}

TEST(OptimizerTest, TheFirstGroupThatMatchesApplies) {
  const std::vector<NamedParameter> parameters{
      {"fc.weight", Parameter({1}, {1})}, {"fc.bias", Parameter({1}, {1})}, {"head.weight", Parameter({1}, {1})}};
  const std::vector<Var> zeros(3, Constant({0}, {1}));
  AdamW by_default({.learning_rate = 0.1, .weight_decay = 0.5f});
  ASSERT_TRUE(by_default.Apply(parameters, zeros).ok());
  ExpectVar(parameters[0].value, {0.95});
  ExpectVar(parameters[1].value, {1});

  const auto is_head = [](const std::string& name) { return name.rfind("head", 0) == 0; };
  const auto all = [](const std::string&) { return true; };
  Sgd grouped({.learning_rate = 0.1, .groups = {{is_head, 0, 10}, {all, 0, 0.5f}}});
  ASSERT_TRUE(grouped.Apply(parameters, std::vector<Var>(3, Constant({1}, {1}))).ok());
  ExpectVar(parameters[0].value, {0.95 - 0.05});
  ExpectVar(parameters[2].value, {0.95 - 1});
}

TEST(OptimizerTest, ControlScalesRateAndGradient) {
  const Var w = Parameter({1}, {1});
  Sgd optimizer({.learning_rate = 0.5});
  ASSERT_TRUE(optimizer.Apply({{"w", w}}, {Constant({8}, {1})}, {0.25, 0.125}).ok());
  ExpectVar(w, {1 - 0.5 * 0.25 * 8 * 0.125});
  EXPECT_EQ(optimizer.learning_rate(), 0.5);
}

TEST(OptimizerTest, StateIsF32WhateverTheParameter) {
  const std::vector<NamedParameter> parameters{{"a", Parameter({1, 2}, {2}, DType::kBf16)},
                                               {"b", Parameter({1}, {1}, DType::kF64)}};
  AdamW optimizer;
  EXPECT_TRUE(optimizer.state().empty());
  EXPECT_THAT(optimizer.StateNames(), ElementsAre("exp_avg", "exp_avg_sq"));
  ASSERT_TRUE(optimizer.Apply(parameters, {Fill({2}, 1, DType::kBf16), Fill({1}, 1, DType::kF64)}).ok());
  std::vector<std::string> state;
  for (const auto& [parameter, kind, value] : optimizer.state()) {
    state.push_back(absl::StrCat(parameter, " ", kind, " ", value.spec().ToString()));
  }
  EXPECT_THAT(state, ElementsAre("a exp_avg f32[2]", "b exp_avg f64[1]", "a exp_avg_sq f32[2]", "b exp_avg_sq f64[1]",
                                 "a master f32[2]"));
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_TRUE(Sgd().StateNames().empty());
  EXPECT_THAT(Sgd({.momentum = 0.9f}).StateNames(), ElementsAre("momentum_buffer"));
}

TEST(OptimizerTest, RefusesHyperparameters) {
  const std::vector<NamedParameter> parameters{{"w", Parameter({1}, {1})}};
  const std::vector<Var> gradients{Constant({1}, {1})};
  const auto error = [&](auto optimizer) { return Message(optimizer.Apply(parameters, gradients)); };
  EXPECT_THAT(error(AdamW({.learning_rate = -1})), HasSubstr("AdamW: learning_rate is -1"));
  EXPECT_THAT(error(AdamW({.learning_rate = NAN})), HasSubstr("learning_rate is nan"));
  EXPECT_THAT(error(AdamW({.beta1 = 1})), HasSubstr("beta1 is 1"));
  EXPECT_THAT(error(AdamW({.beta2 = -0.5f})), HasSubstr("beta2 is -0.5"));
  EXPECT_THAT(error(AdamW({.epsilon = -1})), HasSubstr("epsilon is -1"));
  EXPECT_THAT(error(AdamW({.weight_decay = -1})), HasSubstr("weight_decay is -1"));
  EXPECT_THAT(error(Sgd({.momentum = 1})), HasSubstr("momentum is 1"));
  const auto all = [](const std::string&) { return true; };
  EXPECT_THAT(error(Sgd({.groups = {{all, -1, 1}}})), HasSubstr("group's weight_decay is -1"));
  EXPECT_THAT(error(Sgd({.groups = {{all, NAN, 1}}})), HasSubstr("group's weight_decay is nan"));
  EXPECT_THAT(error(AdamW({.groups = {{all, 0, -2}}})), HasSubstr("group's learning_rate_scale is -2"));
  EXPECT_THAT(error(AdamW({.groups = {{all, 0, INFINITY}}})), HasSubstr("group's learning_rate_scale is inf"));
  EXPECT_THAT(error(AdamW({.groups = {{nullptr, 0, 1}}})),
              AllOf(HasSubstr("AdamW: "), HasSubstr("`matches` is empty")));
  EXPECT_THAT(error(Sgd({.nesterov = true})), HasSubstr("nesterov"));
  ExpectVar(parameters[0].value, {1});
}

// A parameter that only claims its bytes.
TEST(OptimizerTest, StateBeyondTheMachine) {
  float value = 1;
  const Var w = Var::Parameter(Tensor::View(&value, {{int64_t{1} << 50}}));
  const absl::Status status = AdamW().Apply({{"fc.weight", w}}, {w});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("AdamW: the exp_avg of fc.weight: no memory for"));
}

TEST(OptimizerTest, AnErrorLeavesEverythingAsItWas) {
  const std::vector<NamedParameter> parameters{{"a", Parameter({1, 2}, {2})}, {"b", Parameter({3}, {1})}};
  const std::vector<Var> gradients{Constant({1, 1}, {2}), Constant({1}, {1})};
  AdamW optimizer({.learning_rate = 0.1});
  ASSERT_TRUE(optimizer.Apply(parameters, gradients).ok());
  const std::vector<double> a = Read(parameters[0].value);
  const std::vector<double> state = Doubles(optimizer.state()[0].value);

  const Var bad = Constant({1, 2}, {2}) + Constant({1, 2, 3}, {3});
  EXPECT_THAT(Message(optimizer.Apply(parameters, {gradients[0], bad})), HasSubstr("AdamW: the gradient of b: "));
  EXPECT_THAT(Message(optimizer.Apply(parameters, {gradients[0], gradients[0]})),
              HasSubstr("AdamW: the gradient of b is f32[2], expected f32[1]"));
  EXPECT_THAT(Message(optimizer.Apply(parameters, {gradients[0], Constant({1}, {1}, DType::kF64)})),
              HasSubstr("AdamW: the gradient of b is f64[1], expected f32[1]"));
  EXPECT_THAT(Message(optimizer.Apply(parameters, {gradients[0]})),
              AllOf(HasSubstr("1 gradients"), HasSubstr("2 parameters")));
  EXPECT_THAT(Message(optimizer.Apply({}, {})), HasSubstr("no parameters"));
  EXPECT_THAT(Message(optimizer.Apply({parameters[1], parameters[0]}, {gradients[1], gradients[0]})),
              AllOf(HasSubstr("parameter 0 is b"), HasSubstr("of a")));
  EXPECT_THAT(Message(optimizer.Apply({parameters[0]}, {gradients[0]})), HasSubstr("1 parameters"));
  EXPECT_THAT(Message(optimizer.Apply({parameters[0], {"b", Var()}}, gradients)), HasSubstr("empty Var"));

  EXPECT_EQ(Read(parameters[0].value), a);
  EXPECT_EQ(Doubles(optimizer.state()[0].value), state);
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_TRUE(optimizer.Apply(parameters, gradients).ok());
}

TEST(OptimizerTest, AFailedFirstStepLeavesNoState) {
  const NamedParameter a{"a", Parameter({1, 2}, {2})};
  const NamedParameter b{"b", Parameter({3}, {1})};
  AdamW optimizer;
  EXPECT_FALSE(optimizer.Apply({a, b}, {Constant({1}, {1}), Constant({1}, {1})}).ok());
  EXPECT_TRUE(optimizer.state().empty());
  EXPECT_TRUE(optimizer.Apply({b}, {Constant({1}, {1})}).ok());
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(OptimizerTest, RefusesOneTensorUnderTwoNames) {
  const Var w = Parameter({1}, {1});
  const Var g = Constant({1}, {1});
  Sgd optimizer;
  EXPECT_THAT(Message(optimizer.Apply({{"a", w}, {"b", w}}, {g, g})), AllOf(HasSubstr("a and b"), HasSubstr("once")));
  ExpectVar(w, {1});
}

TEST(OptimizerTest, ParametersMayBeGradients) {
  const Var a = Parameter({1}, {1});
  const Var b = Parameter({10}, {1});
  Sgd optimizer({.learning_rate = 0.5});
  ASSERT_TRUE(optimizer.Apply({{"a", a}, {"b", b}}, {b, a}).ok());
  ExpectVar(a, {1 - 5});
  ExpectVar(b, {10 - 0.5});
}

TEST(OptimizerTest, AWeightThatWasSetIsTheNextStepsStart) {
  const Var w = Parameter({1}, {1}, DType::kBf16);
  Sgd optimizer({.learning_rate = 1e-3});
  ASSERT_TRUE(optimizer.Apply({{"w", w}}, {Constant({1}, {1}, DType::kBf16)}).ok());
  Tensor value = w.Value().value();
  ASSERT_TRUE(value.CopyFrom(Constant({8}, {1}, DType::kBf16).Value().value()).ok());
  ASSERT_TRUE(optimizer.Apply({{"w", w}}, {Constant({0}, {1}, DType::kBf16)}).ok());
  ExpectVar(w, {8});
}

TEST(OptimizerTest, AParameterUnusedInTheLossGetsAZeroGradient) {
  const Mlp used = Mlp::Create({.sizes = {2, 2}}, {.seed = 1}).value();
  const Var unused = Parameter({5}, {1});
  std::vector<NamedParameter> parameters = used.trainable();
  parameters.push_back({"unused", unused});
  std::vector<Var> values = used.parameters();
  values.push_back(unused);
  AdamW optimizer({.learning_rate = 0.1, .weight_decay = 0});
  const std::vector<Var> gradients = Grad(Sum(used(Constant({1, 2}, {1, 2}))), values);
  EXPECT_THAT(Read(gradients.back()), Each(0));
  ASSERT_TRUE(optimizer.Apply(parameters, gradients).ok());
  EXPECT_EQ(ReadOne(unused), 5);
}

// A graph made before a step must not be differentiated with the weights after it.
TEST(OptimizerTest, AStepInvalidatesOlderGraphs) {
  const Var w = Parameter({1}, {1});
  const Var loss = Sum(w * w);
  Sgd optimizer;
  ASSERT_TRUE(optimizer.Apply({{"w", w}}, Grad(loss, {w})).ok());
  EXPECT_THAT(Message(Grad(loss, {w})[0]), HasSubstr("changed in place"));
}

}  // namespace
}  // namespace gemmill
