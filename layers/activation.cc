#include "gemmill/layers/activation.h"

#include <string>

#include "gemmill/autograd/ops.h"

namespace gemmill {
namespace {

constexpr Activation kAll[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,   Activation::kGeluTanh,
                               Activation::kTanh, Activation::kSilu, Activation::kSigmoid};

}  // namespace

const char* ActivationName(Activation activation) {
  static constexpr const char* kNames[] = {"none", "relu", "gelu", "gelu_tanh", "tanh", "silu", "sigmoid"};
  return kNames[static_cast<int>(activation)];
}

absl::StatusOr<Activation> ParseActivation(absl::string_view name) {
  std::string known;
  for (Activation activation : kAll) {
    if (name == ActivationName(activation)) return activation;
    absl::StrAppend(&known, known.empty() ? "" : ", ", ActivationName(activation));
  }
  return InvalidArgument("no activation \"", name, "\"; there are ", known);
}

Var Activate(Activation activation, Located x) {
  switch (activation) {
    case Activation::kNone:
      return x.var;
    case Activation::kRelu:
      return Relu(x);
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kGeluTanh:
      return GeluTanh(x);
    case Activation::kTanh:
      return Tanh(x);
    case Activation::kSilu:
      return Silu(x);
    case Activation::kSigmoid:
      return Sigmoid(x);
  }
  return x.var;
}

}  // namespace gemmill
