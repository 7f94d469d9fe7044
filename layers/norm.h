// LayerNorm and RmsNorm with learnt scale (and shift).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gemmill/layers/initialize.h"
#include "gemmill/layers/module.h"

namespace gemmill {

struct NormOptions {
  int64_t width = 0;  // of the last axis, which is normalised
  float epsilon = 1e-5f;
  bool bias = true;  // RmsNorm has none
};

// LayerNormalize(x) * weight + bias: x [..., width]. Parameters: weight [width] (ones), bias [width] (zeros).
class LayerNorm : public Module {
 public:
  static absl::StatusOr<LayerNorm> Create(const NormOptions& options, const InitOptions& init = {});
  Var operator()(Located x) const;

 private:
  LayerNorm(const NormOptions& options, Var weight, Var bias);

  float epsilon_;
  Var weight_;
  Var bias_;
};

// RmsNormalize(x) * weight: x [..., width]. Parameter: weight [width] (ones).
class RmsNorm : public Module {
 public:
  static absl::StatusOr<RmsNorm> Create(const NormOptions& options, const InitOptions& init = {});
  Var operator()(Located x) const;

 private:
  RmsNorm(const NormOptions& options, Var weight);

  float epsilon_;
  Var weight_;
};

}  // namespace gemmill
