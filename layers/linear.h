// Linear and Mlp: fully-connected layers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "gemmill/layers/activation.h"
#include "gemmill/layers/dropout.h"
#include "gemmill/layers/initialize.h"
#include "gemmill/layers/module.h"
#include "gemmill/layers/moe.h"

namespace gemmill {

struct LinearOptions {
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool bias = true;
  Activation activation = Activation::kNone;
  // Unless given: Kaiming uniform before the rectifier's kin (relu, gelu, silu), Xavier uniform elsewhere. Biases start
  // at 0.
  std::optional<Initializer> initializer = {};
};

// activation(x weight^T + bias): x [..., inputs] -> [..., outputs]. Parameters: weight [outputs, inputs], bias
// [outputs].
class Linear : public Module {
 public:
  static absl::StatusOr<Linear> Create(const LinearOptions& options, const InitOptions& init = {});
  // With parameters that exist already: tied weights. `bias` may be an empty Var.
  static absl::StatusOr<Linear> FromParameters(Var weight, Var bias, Activation activation = Activation::kNone);

  Var operator()(Located x) const;

  const Var& weight() const { return weight_; }
  const Var& bias() const { return bias_; }  // an empty Var where there is none

 private:
  Linear(Var weight, Var bias, Activation activation);

  Var weight_;
  Var bias_;
  Activation activation_;
};

struct MlpOptions {
  std::vector<int64_t> sizes = {};            // inputs, hidden widths, outputs: at least two
  Activation activation = Activation::kRelu;  // between layers, not after the last
  bool bias = true;
  float dropout = 0;  // after each activation
  // A block of experts "moe" between the first two layers, whose output is added to its input. `hidden` is the first
  // hidden width, and `ffn` too unless given.
  std::optional<MoeOptions> moe = {};
};

// Linear layers "fc1", "fc2", ...: x [..., sizes.front()] -> [..., sizes.back()].
class Mlp : public Module {
 public:
  static absl::StatusOr<Mlp> Create(const MlpOptions& options, const InitOptions& init = {});

  Var operator()(Located x) const;

  const std::vector<Linear>& layers() const { return layers_; }
  const std::optional<Moe>& moe() const { return moe_; }

 private:
  Mlp(std::vector<Linear> layers, std::vector<Dropout> dropouts, std::optional<Moe> moe);

  std::vector<Linear> layers_;
  std::vector<Dropout> dropouts_;  // one after each layer but the last, or none
  std::optional<Moe> moe_;
};

}  // namespace gemmill
