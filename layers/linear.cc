#include "gemmill/layers/linear.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/autograd/ops.h"

namespace gemmill {
namespace {

Initializer DefaultInitializer(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
    case Activation::kGelu:
    case Activation::kGeluTanh:
    case Activation::kSilu:
      return Initializer::kKaimingUniform;
    default:
      return Initializer::kXavierUniform;
  }
}

std::string Describe(const Var& weight, const Var& bias, Activation activation) {
  return absl::StrCat(
      "Linear ", weight.shape()[1], " -> ", weight.shape()[0], activation == Activation::kNone ? "" : ", ",
      activation == Activation::kNone ? "" : ActivationName(activation), bias.node() == nullptr ? ", no bias" : "");
}

}  // namespace

absl::StatusOr<Linear> Linear::Create(const LinearOptions& options, const InitOptions& init) {
  if (options.inputs < 1 || options.outputs < 1) {
    return InvalidArgument("Linear: ", options.inputs, " inputs and ", options.outputs,
                           " outputs, expected at least 1 of each");
  }
  const Initializer initializer = options.initializer.value_or(DefaultInitializer(options.activation));
  GM_ASSIGN_OR_RETURN(Var weight, MakeParameter({options.outputs, options.inputs}, initializer, init));
  Var bias;
  if (options.bias) {
    GM_ASSIGN_OR_RETURN(bias, MakeParameter({options.outputs}, Initializer::kZeros, init));
  }
  return Linear(std::move(weight), std::move(bias), options.activation);
}

absl::StatusOr<Linear> Linear::FromParameters(Var weight, Var bias, Activation activation) {
  GM_RETURN_IF_ERROR(weight.status());
  if (weight.shape().size() != 2 || !IsFloating(weight.dtype())) {
    return InvalidArgument("Linear: weight is ", weight.spec().ToString(),
                           ", expected f32, bf16 or f64 [outputs, inputs]");
  }
  if (bias.node() != nullptr) {
    GM_RETURN_IF_ERROR(bias.status());
    if (bias.shape() != Shape{weight.shape()[0]} || bias.dtype() != weight.dtype()) {
      return InvalidArgument("Linear: bias is ", bias.spec().ToString(), " beside a weight ", weight.spec().ToString());
    }
  }
  return Linear(std::move(weight), std::move(bias), activation);
}

Linear::Linear(Var weight, Var bias, Activation activation)
    : Module(Describe(weight, bias, activation)), activation_(activation) {
  weight_ = AddParameter("weight", std::move(weight));
  if (bias.node() != nullptr) bias_ = AddParameter("bias", std::move(bias));
  SetGemm(weight_.shape()[0], weight_.shape()[1]);
}

Var Linear::operator()(Located x) const {
  const LayerScope scope(name());
  const CallerScope caller(x.caller);
  Var y = MatMul(x, weight_, {.trans_b = true});
  if (bias_.node() != nullptr) y = y + bias_;
  return Activate(activation_, y);
}

absl::StatusOr<Mlp> Mlp::Create(const MlpOptions& options, const InitOptions& init) {
  const std::string sizes = absl::StrJoin(options.sizes, ",");
  if (options.sizes.size() < 2) return InvalidArgument("Mlp: sizes are ", sizes, ", expected at least two");
  for (int64_t size : options.sizes) {
    if (size < 1) return InvalidArgument("Mlp: sizes are ", sizes, ", expected each to be at least 1");
  }
  GM_RETURN_IF_ERROR(Dropout::Create({.rate = options.dropout}).status());
  if (options.moe.has_value() && options.sizes.size() < 3) {
    return InvalidArgument("Mlp: sizes are ", sizes, ", and a block of ", options.moe->experts,
                           " experts stands behind a hidden layer; expected at least three");
  }
  std::vector<Linear> layers;
  std::vector<Dropout> dropouts;
  for (size_t i = 0; i + 1 < options.sizes.size(); ++i) {
    const bool last = i + 2 == options.sizes.size();
    GM_ASSIGN_OR_RETURN(Linear layer, Linear::Create({.inputs = options.sizes[i],
                                                      .outputs = options.sizes[i + 1],
                                                      .bias = options.bias,
                                                      .activation = last ? Activation::kNone : options.activation},
                                                     init.Part(i)));
    layers.push_back(std::move(layer));
    if (options.dropout == 0 || last) continue;
    GM_ASSIGN_OR_RETURN(Dropout dropout, Dropout::Create({.rate = options.dropout, .stream = static_cast<int64_t>(i)}));
    dropouts.push_back(std::move(dropout));
  }
  std::optional<Moe> moe;
  if (options.moe.has_value()) {
    MoeOptions block = *options.moe;
    block.hidden = options.sizes[1];
    if (block.ffn == 0) block.ffn = block.hidden;
    GM_ASSIGN_OR_RETURN(moe, Moe::Create(block, init.Part(layers.size())));
  }
  return Mlp(std::move(layers), std::move(dropouts), std::move(moe));
}

Mlp::Mlp(std::vector<Linear> layers, std::vector<Dropout> dropouts, std::optional<Moe> moe)
    : layers_(std::move(layers)), dropouts_(std::move(dropouts)), moe_(std::move(moe)) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    AddModule(absl::StrCat("fc", i + 1), layers_[i]);
    if (i < dropouts_.size()) AddModule(absl::StrCat("dropout", i + 1), dropouts_[i]);
    if (i == 0 && moe_.has_value()) AddModule("moe", *moe_);
  }
}

Var Mlp::operator()(Located x) const {
  const LayerScope scope(name());
  const CallerScope caller(x.caller);
  Var y = x.var;
  for (size_t i = 0; i < layers_.size(); ++i) {
    y = layers_[i](y);
    if (i < dropouts_.size()) y = dropouts_[i](y);
    if (i == 0 && moe_.has_value()) y = y + (*moe_)(y);
  }
  return y;
}

}  // namespace gemmill
