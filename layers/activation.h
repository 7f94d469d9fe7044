// The activations that layers offer by name.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/autograd/var.h"

namespace gemmill {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kTanh, kSilu, kSigmoid };

const char* ActivationName(Activation activation);  // "none", "relu", "gelu", "gelu_tanh", "tanh", "silu", "sigmoid"
absl::StatusOr<Activation> ParseActivation(absl::string_view name);

Var Activate(Activation activation, Located x);

}  // namespace gemmill
