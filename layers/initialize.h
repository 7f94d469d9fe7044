// Initial values of parameters, a pure function of the seed.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gemmill/autograd/var.h"

namespace gemmill {

// Fans are those of a weight [outputs, inputs]: fan_in = inputs, fan_out = outputs.
enum class Initializer : uint8_t {
  kZeros,
  kOnes,
  kNormal,          // N(0, scale^2)
  kUniform,         // U(-scale, scale)
  kKaimingNormal,   // N(0, scale^2 * 2 / fan_in); He et al., "Delving Deep into Rectifiers" (2015), equation 10
  kKaimingUniform,  // the uniform distribution of the same variance
  kXavierNormal,    // N(0, scale^2 * 2 / (fan_in + fan_out)); Glorot and Bengio (2010), equation 12
  kXavierUniform,   // the uniform distribution of the same variance; equation 16
};

// Where and how a module's parameters are made.
struct InitOptions {
  uint64_t seed = 0;
  Device device = {};
  DType dtype = DType::kF32;
  // Zeros that take no memory until they are written (Tensor::Reserve): for reports and plans of a model that is not to
  // be trained here.
  bool reserve_only = false;

  // For part `i` of a module: the same but for the seed, so that parts differ.
  InitOptions Part(uint64_t i) const;
};

// A parameter of `shape`. The Kaiming and Xavier forms take two dimensions. The same options give the same values on
// every device and for any number of threads; bf16 gets the rounded values of f32.
absl::StatusOr<Var> MakeParameter(const Shape& shape, Initializer initializer, const InitOptions& options,
                                  double scale = 1);

}  // namespace gemmill
