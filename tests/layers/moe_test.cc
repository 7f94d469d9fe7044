// The block by itself: routing by hand-computed numbers, loads at their edges, what is refused.
#include <cmath>
#include <limits>

#include "gemmill/gemmill.h"
#include "tests/layers/moe.h"

namespace gemmill {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Pointwise;

std::vector<double> WeightsOf(Routing routing, int64_t top_k, const std::vector<double>& logits) {
  const Moe moe = RevealingMoe({.experts = static_cast<int64_t>(logits.size()), .top_k = top_k, .routing = routing});
  std::vector<double> weights = Read(moe(Var(Logits({logits}))));
  weights.pop_back();
  return weights;
}

TEST(MoeRouting, WeightsAreThoseOfTheDefinition) {
  const std::vector<double> logits{2, 1, 0, -1};
  const auto near = [](double a, double b) { return Pointwise(DoubleNear(5e-7), std::vector<double>{a, b, 0, 0}); };
  EXPECT_THAT(WeightsOf(Routing::kSoftmax, 2, logits), near(0.643914, 0.236883));
  EXPECT_THAT(WeightsOf(Routing::kSoftmaxRenormalized, 2, logits), near(0.731059, 0.268941));
  EXPECT_THAT(WeightsOf(Routing::kTopKSoftmax, 2, logits), near(0.731059, 0.268941));
  EXPECT_THAT(WeightsOf(Routing::kSigmoid, 2, logits), near(0.546449, 0.453551));
}

TEST(MoeRouting, TiesGoToTheLowestExpert) {
  EXPECT_THAT(WeightsOf(Routing::kTopKSoftmax, 2, {1, 3, 3, 3}), ElementsAre(0, 0.5, 0.5, 0));
  EXPECT_THAT(WeightsOf(Routing::kSoftmax, 1, {0, 0, 0, 0}), ElementsAre(0.25, 0, 0, 0));
}

TEST(MoeRouting, BiasChoosesAndDoesNotWeigh) {
  const Moe moe = RevealingMoe({.experts = 4, .routing = Routing::kSigmoid, .bias_update_rate = 0.1});
  Set(moe, "router.bias", {-10, 0, 10, 0});
  std::vector<double> weights = Read(moe(Var(Logits({{2, 1, 0, -1}}))));
  const double one = 1 / (1 + std::exp(-1.0));
  EXPECT_THAT(weights, Pointwise(DoubleNear(1e-6), std::vector<double>{0, one / (one + 0.5), 0.5 / (one + 0.5), 0, 0}));
}

double AuxiliaryLoss(const MoeOptions& options, const std::vector<std::vector<double>>& logits) {
  const Moe moe = RevealingMoe(options);
  const AuxiliaryScope auxiliary;
  EXPECT_TRUE(moe(Var(Logits(logits))).ok());
  return ValueOf(auxiliary.Mean().Item());
}

TEST(MoeRouting, WhatABiasChoosesMayHaveAScoreOfZero) {
  for (const Routing routing : {Routing::kSigmoid, Routing::kSoftmaxRenormalized}) {
    const Moe moe = RevealingMoe({.experts = 4, .routing = routing, .bias_update_rate = 0.1});
    Set(moe, "router.bias", {0, 0, 10, 10});
    const std::vector<double> low(4, -200);
    const std::vector<double> logits = routing == Routing::kSigmoid ? low : std::vector<double>{200, 0, 0, 0};
    const Var x = Var::Parameter(Logits({logits}));
    const Var y = moe(x);
    EXPECT_THAT(Read(y), Each(0.0));
    for (const Var& gradient : Grad(Sum(y), {x, moe.parameter("router.weight")})) {
      EXPECT_THAT(Read(gradient), Each(testing::Truly([](double value) { return std::isfinite(value); })));
    }
  }
}

TEST(MoeRouting, SharedExpertsAreAddedWithWeightOne) {
  const MoeOptions options{.hidden = 6, .ffn = 5, .experts = 4};
  MoeOptions with = options;
  with.shared_experts = 2;
  const Moe routed = MakeMoe(options);
  const Moe both = MakeMoe(with);
  const Var x(MakeTensor(RandomDoubles(int64_t{7} * 6, -1, 1, 1), {7, 6}));
  const Var inner = MatMul(x, both.parameter("shared.fc1"), {.trans_b = true});
  ASSERT_EQ(inner.shape(), (Shape{7, 20}));  // gates of both, then what they let through
  const Var gated = Silu(Slice(inner, 1, 0, 10)) * Slice(inner, 1, 10, 20);
  const Var shared = MatMul(gated, both.parameter("shared.fc2"), {.trans_b = true});
  ExpectVar(both(x), Read(routed(x) + shared), 1e-6, 1e-6);
}

TEST(MoeLosses, AreThoseOfTheDefinition) {
  std::vector<std::vector<double>> logits;
  for (const double p : {0.9, 0.8, 0.7, 0.4}) logits.push_back({std::log(p), std::log(1 - p)});
  MoeOptions options{.experts = 2, .top_k = 1, .routing = Routing::kSoftmax, .balance_loss = 1};
  EXPECT_NEAR(AuxiliaryLoss(options, logits), 1.2, 1e-6);
  // Even loads and even probabilities.
  EXPECT_NEAR(AuxiliaryLoss({.experts = 4, .top_k = 4, .balance_loss = 0.5}, {{1, 1, 1, 1}}), 0.5, 1e-6);
  EXPECT_NEAR(AuxiliaryLoss({.experts = 4, .z_loss = 0.25}, {{2, 1, 0, -1}}), 0.25 * 5.954526, 1e-5);
}

TEST(MoeLosses, LayersAddUp) {
  const MoeOptions options{.experts = 4, .balance_loss = 0.5, .z_loss = 0.25};
  const std::vector<std::vector<double>> logits{{2, 1, 0, -1}, {0, 3, 1, 1}};
  const double one = AuxiliaryLoss(options, logits);
  const Moe first = RevealingMoe(options);
  const Moe second = RevealingMoe(options);
  const AuxiliaryScope auxiliary;
  EXPECT_TRUE(first(Var(Logits(logits))).ok() && second(Var(Logits(logits))).ok());
  EXPECT_NEAR(ValueOf(auxiliary.Mean().Item()), 2 * one, 1e-6);
}

TEST(MoeCapacity, DropsTheLastByPosition) {
  const Moe moe = RevealingMoe({.experts = 4, .routing = Routing::kTopKSoftmax, .capacity_factor = 1.25});
  const std::vector<std::vector<double>> same(10, {4, 4, 0, 0});
  AuxiliaryScope auxiliary;
  const std::vector<double> weights = Read(moe(Var(Logits(same))));
  for (size_t token = 0; token < 10; ++token) EXPECT_EQ(weights[token * 5], token < 7 ? 0.5 : 0) << token;
  ASSERT_TRUE(auxiliary.AfterStep().ok());
  const MoeStatistics statistics = moe.statistics().value();
  EXPECT_THAT(statistics.tokens_per_expert, ElementsAre(10, 10, 0, 0));
  EXPECT_THAT(statistics.kept_per_expert, ElementsAre(7, 7, 0, 0));
  EXPECT_NEAR(statistics.dropped_share, 0.3, 1e-12);
}

TEST(MoeCapacity, AboveTheTokensDropsNothing) {
  const Moe without = RevealingMoe({.experts = 4});
  const Moe with = RevealingMoe({.experts = 4, .capacity_factor = 100});
  const Var x(Logits({{1, 2, 3, 4}, {1, 2, 3, 4}}));
  EXPECT_EQ(Read(without(x)), Read(with(x)));
}

TEST(MoeStatistics, AreThoseOfTheDefinition) {
  const Moe moe = RevealingMoe({.experts = 4, .top_k = 1, .routing = Routing::kSoftmax, .balance_loss = 0.01});
  EXPECT_FALSE(moe.statistics().has_value());
  AuxiliaryScope auxiliary;
  EXPECT_TRUE(moe(Var(Logits(Choosing({0, 0, 0, 1}, 4)))).ok());
  ASSERT_TRUE(auxiliary.AfterStep().ok());
  const MoeStatistics statistics = moe.statistics().value();
  EXPECT_EQ(statistics.tokens, 4);
  EXPECT_THAT(statistics.tokens_per_expert, ElementsAre(3, 1, 0, 0));
  EXPECT_NEAR(statistics.max_violation, 2, 1e-12);
  EXPECT_NEAR(statistics.load_entropy, -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)) / std::log(4), 1e-12);
  EXPECT_EQ(statistics.dead_experts, 2);
  EXPECT_EQ(statistics.dropped_share, 0);
  const double large = std::exp(5) / (std::exp(5) + 3);
  const double small = 1 / (std::exp(5) + 3);
  EXPECT_NEAR(statistics.router_entropy, -large * std::log(large) - 3 * small * std::log(small), 1e-6);
  const double balance = 4 * (0.75 * (3 * large + small) / 4 + 0.25 * (large + 3 * small) / 4);
  EXPECT_NEAR(statistics.balance_loss, balance, 1e-6);
  EXPECT_NEAR(statistics.scaled_balance_loss, 0.01 * balance, 1e-8);
  EXPECT_NEAR(statistics.z_loss, std::pow(std::log(std::exp(5) + 3), 2), 1e-5);
  EXPECT_EQ(statistics.scaled_z_loss, 0);
}

TEST(MoeMask, PaddingGoesNowhereAndCountsNowhere) {
  const MoeOptions options{.hidden = 6,
                           .ffn = 5,
                           .experts = 4,
                           .shared_experts = 1,
                           .capacity_factor = 1.25,
                           .balance_loss = 0.1,
                           .z_loss = 0.1,
                           .bias_update_rate = 0.01};
  std::vector<double> values = RandomDoubles(int64_t{10} * 6, -1, 1, 1);
  const Tensor x = MakeTensor(values, {10, 6});
  for (double pad : RandomDoubles(int64_t{98} * 6, -1, 1, 2)) values.push_back(pad);
  values.insert(values.end(), 6, std::numeric_limits<double>::quiet_NaN());
  values.insert(values.end(), 6, std::numeric_limits<double>::infinity());
  const Tensor padded = MakeTensor(values, {110, 6});
  std::vector<double> kept(110, 0);
  std::fill_n(kept.begin(), 10, 1);
  const Tensor mask = MakeTensor(kept, {110}, DType::kU8);

  struct Result {
    std::vector<double> y, sums;
    std::vector<std::vector<double>> gradients;
  };
  const auto run = [&](const Var& input, const Var& m) {
    const Moe moe = MakeMoe(options);
    const AuxiliaryScope auxiliary;
    const Var y = Slice(moe(input, m), 0, 0, 10);
    Result result{Read(y), Read(auxiliary.SumOf(moe.step_sums()[0], {})), {}};
    for (const Var& gradient : Grad(Sum(y * y) + auxiliary.Mean(), moe.parameters())) {
      result.gradients.push_back(Read(gradient));
    }
    for (double value : Read(Slice(moe(input, m), 0, 10, input.shape()[0]))) EXPECT_EQ(value, 0);
    return result;
  };
  const Result without = run(Var(x), Var());
  const Result with = run(Var(padded), Var(mask));
  EXPECT_THAT(with.y, Pointwise(DoubleNear(1e-6), without.y));
  EXPECT_THAT(with.sums, Pointwise(DoubleNear(1e-5), without.sums));
  ExpectNear(with.gradients, without.gradients, 1e-5);
}

TEST(MoeMask, OfAnotherShapeIsRefused) {
  const Moe moe = MakeMoe({.hidden = 3, .ffn = 2, .experts = 2});
  const Var y = moe(Var(MakeTensor({1, 2, 3}, {1, 3})), Var(MakeTensor({1, 1}, {2}, DType::kU8)));
  EXPECT_THAT(Message(y.status()), HasSubstr("the mask is u8[2], expected u8[1]"));
}

// --- Loads

TEST(MoeLoads, AllToOneExpertIsTheDenseComputation) {
  for (const int64_t tokens : {1, 5, 700}) {
    const Moe moe = MakeMoe({.hidden = 40, .ffn = 33, .experts = 3, .top_k = 1, .routing = Routing::kSoftmax});
    std::vector<double> router(120, 0);
    router[40] = 50;  // the first input's weight in expert 1
    Set(moe, "router.weight", router);
    std::vector<double> values = RandomDoubles(tokens * 40, -1, 1, 4);
    for (size_t token = 0; token < static_cast<size_t>(tokens); ++token) values[token * 40] = 2;
    const Var x = Var::Parameter(MakeTensor(values, {tokens, 40}));
    const std::vector<Var> vars{moe.parameter("experts.fc1"), moe.parameter("experts.fc2"), x};
    const Var y = moe(x);

    const auto of_one = [](const Var& stack) {
      return Reshape(Slice(stack, 0, 1, 2), {stack.shape()[1], stack.shape()[2]});
    };
    const Var inner = MatMul(x, of_one(vars[0]), {.trans_b = true});
    const Var gated = Silu(Slice(inner, 1, 0, 33)) * Slice(inner, 1, 33, 66);
    const Var dense = MatMul(gated, of_one(vars[1]), {.trans_b = true});
    ExpectVar(y, Read(dense), 1e-5, 1e-5);
    const std::vector<Var> gradients = Grad(Sum(y * y), vars);
    const std::vector<Var> expected = Grad(Sum(dense * dense), vars);
    for (size_t v = 0; v < vars.size(); ++v) ExpectVar(gradients[v], Read(expected[v]), 1e-4, 1e-4);
    for (const int64_t other : {0, 2}) {
      EXPECT_THAT(Read(Slice(gradients[0], 0, other, other + 1)), Each(0.0));
      EXPECT_THAT(Read(Slice(gradients[1], 0, other, other + 1)), Each(0.0));
    }
  }
}

TEST(MoeLoads, NoTokens) {
  const Moe moe = MakeMoe({.hidden = 4, .ffn = 3, .experts = 3, .shared_experts = 1, .balance_loss = 1, .z_loss = 1});
  AuxiliaryScope auxiliary;
  const Var y = moe(Var(MakeTensor({}, {2, 0, 4})));
  EXPECT_EQ(y.shape(), (Shape{2, 0, 4}));
  for (const Var& gradient : Grad(Sum(y) + auxiliary.Mean(), moe.parameters())) {
    EXPECT_THAT(Read(gradient), Each(0.0));
  }
  ASSERT_TRUE(auxiliary.AfterStep().ok());
  EXPECT_EQ(moe.statistics()->tokens, 0);
}

TEST(MoeLoads, TheSameBitsEveryTimeOnAnyThreads) {
  const Moe moe = MakeMoe({.hidden = 48, .ffn = 64, .experts = 8, .top_k = 3});
  const Var x = Var::Parameter(MakeTensor(RandomDoubles(int64_t{300} * 48, -1, 1, 4), {300, 48}));
  std::vector<Var> vars = moe.parameters();
  vars.push_back(x);
  const auto run = [&] {
    const Var y = moe(x);
    std::vector<std::vector<double>> values{Read(y)};
    for (const Var& gradient : Grad(Sum(y * y), vars)) values.push_back(Read(gradient));
    return values;
  };
  const auto first = run();
  const int threads = NumThreads();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(SetNumThreads(1 + i % 3).ok());
    EXPECT_EQ(Read(moe(x)), first[0]);
    if (i % 20 == 0) {
      EXPECT_EQ(run(), first);
    }
  }
  ASSERT_TRUE(SetNumThreads(threads).ok());
}

TEST(Moe, InBf16IsNearF32) {
  const Moe moe = MakeMoe({.hidden = 32, .ffn = 24, .experts = 4, .shared_experts = 1});
  const Var x(MakeTensor(RandomDoubles(int64_t{50} * 32, -1, 1, 4), {50, 32}));
  const auto run = [&](Precision precision) {
    Var y;
    {
      const PrecisionScope scope(precision);
      y = moe(x);
    }
    EXPECT_EQ(y.dtype(), precision == Precision::kF32 ? DType::kF32 : DType::kBf16);
    std::vector<std::vector<double>> values{Read(y)};
    for (const Var& gradient : Grad(Sum(Cast(y, DType::kF32)), moe.parameters())) {
      EXPECT_EQ(gradient.dtype(), DType::kF32);
      values.push_back(Read(gradient));
    }
    return values;
  };
  const auto wide = run(Precision::kF32);
  const auto narrow = run(Precision::kBf16);
  for (size_t i = 0; i < wide.size(); ++i) {
    double most = 0;
    for (const double value : wide[i]) most = std::max(most, std::abs(value));
    EXPECT_THAT(narrow[i], Pointwise(DoubleNear(0.03 * most), wide[i])) << i;
  }
}

// --- Bad input

TEST(MoeOptions, WhatCannotBeIsRefusedByItsNumbers) {
  const auto message = [](MoeOptions options) {
    if (options.hidden == 0) options.hidden = options.ffn = 4;
    return Message(Moe::Create(options).status());
  };
  EXPECT_THAT(message({.experts = 4, .top_k = 5}), HasSubstr("top_k is 5, expected 1 to the 4 experts"));
  EXPECT_THAT(message({.experts = 4, .top_k = 0}), HasSubstr("top_k is 0"));
  EXPECT_THAT(message({.experts = 0}), HasSubstr("experts is 0"));
  EXPECT_THAT(message({.experts = 4, .top_k = 1}), HasSubstr("top_k is 1 with softmax_renormalized"));
  EXPECT_THAT(message({.experts = 4, .capacity_factor = 0}), HasSubstr("capacity_factor is 0"));
  EXPECT_THAT(message({.experts = 4, .balance_loss = -1}), HasSubstr("balance_loss is -1"));
  EXPECT_THAT(message({.hidden = -3, .ffn = 2, .experts = 4}), HasSubstr("hidden is -3"));
  EXPECT_THAT(message({.experts = 4, .activation = Activation::kNone}), HasSubstr("activation is none"));
  const Moe moe = MakeMoe({.hidden = 3, .ffn = 2, .experts = 2});
  EXPECT_THAT(Message(moe(Var(MakeTensor({1, 2}, {1, 2}))).status()), HasSubstr("expected [..., 3]"));
}

}  // namespace
}  // namespace gemmill
