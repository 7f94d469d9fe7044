// The block's gradients are finite differences, whatever its options.
#include "absl/strings/str_cat.h"
#include "gemmill/gemmill.h"
#include "tests/layers/moe.h"

namespace gemmill {
namespace {

using testing::Each;

struct Variant {
  std::string name;
  MoeOptions options;
  bool mask = false;
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const Routing routing :
       {Routing::kSoftmax, Routing::kSoftmaxRenormalized, Routing::kTopKSoftmax, Routing::kSigmoid}) {
    variants.push_back({RoutingName(routing), {.top_k = 2, .routing = routing}});
  }
  variants.push_back({"top_1", {.top_k = 1, .routing = Routing::kSoftmax}});
  variants.push_back({"all", {.top_k = 4}});
  for (const Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu, Activation::kTanh,
                                      Activation::kSilu, Activation::kSigmoid}) {
    for (const bool gated : {false, true}) {
      variants.push_back({absl::StrCat(gated ? "gated_" : "plain_", ActivationName(activation)),
                          {.activation = activation, .gated = gated}});
    }
  }
  variants.push_back({"one_expert", {.experts = 1, .top_k = 1, .routing = Routing::kSoftmax, .z_loss = 0.2}});
  variants.push_back({"shared", {.shared_experts = 2}});
  variants.push_back({"capacity", {.capacity_factor = 0.75}});
  variants.push_back({"losses", {.balance_loss = 0.5, .z_loss = 0.2}});
  variants.push_back({"sigmoid_losses", {.routing = Routing::kSigmoid, .balance_loss = 0.5, .bias_update_rate = 0.1}});
  variants.push_back({"shared_capacity_losses",
                      {.routing = Routing::kTopKSoftmax,
                       .shared_experts = 1,
                       .capacity_factor = 0.5,
                       .balance_loss = 0.5,
                       .z_loss = 0.2}});
  variants.push_back({"mask_capacity", {.capacity_factor = 0.75}, true});
  variants.push_back({"mask", {.shared_experts = 1, .balance_loss = 0.5, .z_loss = 0.2}, true});
  for (Variant& variant : variants) {
    variant.options.hidden = 5;
    variant.options.ffn = 3;
    if (variant.options.experts == 0) variant.options.experts = 4;
  }
  return variants;
}

class MoeVariant : public testing::TestWithParam<Variant> {};

TEST_P(MoeVariant, GradientsAreFiniteDifferences) {
  const Variant& variant = GetParam();
  const Moe moe = MakeMoe(variant.options, {.seed = 3, .dtype = DType::kF64});
  const Var x = Var::Parameter(MakeTensor(RandomDoubles(int64_t{7} * 5, -1, 1, 4), {7, 5}, DType::kF64));
  const Var weights(MakeTensor(RandomDoubles(int64_t{7} * 5, -1, 1, 5), {7, 5}, DType::kF64));
  const Var mask = variant.mask ? Var(MakeTensor({1, 1, 0, 1, 1, 0, 1}, {7}, DType::kU8)) : Var();
  const auto loss = [&] {
    const AuxiliaryScope auxiliary;
    const Var y = moe(x, mask);
    return Sum(y * weights) + Cast(auxiliary.Mean(), DType::kF64);
  };
  std::vector<Var> vars = moe.parameters();
  vars.push_back(x);
  const std::vector<Var> gradients = Grad(loss(), vars);
  for (size_t v = 0; v < vars.size(); ++v) {
    const std::vector<double> gradient = Read(gradients[v]);
    const std::vector<double> center = Read(vars[v]);
    for (size_t i = 0; i < center.size(); ++i) {
      double values[2];
      for (const int side : {0, 1}) {
        std::vector<double> moved = center;
        moved[i] += side == 0 ? -1e-5 : 1e-5;
        SetValue(vars[v], MakeTensor(moved, vars[v].shape(), DType::kF64));
        values[side] = ValueOf(loss().Item());
      }
      SetValue(vars[v], MakeTensor(center, vars[v].shape(), DType::kF64));
      EXPECT_NEAR(gradient[i], (values[1] - values[0]) / 2e-5, 1e-7) << "parameter " << v << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, MoeVariant, testing::ValuesIn(Variants()),
                         [](const auto& variant) { return variant.param.name; });

TEST(MoeGradients, LossesReachTheRouterAlone) {
  const Moe moe = MakeMoe({.hidden = 5, .ffn = 3, .experts = 4, .balance_loss = 0.5});
  const AuxiliaryScope auxiliary;
  EXPECT_TRUE(moe(Var(MakeTensor(RandomDoubles(35, -1, 1, 4), {7, 5}))).ok());
  const std::vector<Var> gradients = Grad(auxiliary.Mean(), moe.parameters());
  EXPECT_THAT(Read(gradients[0]), testing::Not(Each(0.0)));
  EXPECT_THAT(Read(gradients[1]), Each(0.0));
}

}  // namespace
}  // namespace gemmill
