#include "gemmill/layers/initialize.h"

#include <algorithm>
#include <cmath>

#include "gemmill/runtime/philox.h"

namespace gemmill {
namespace {

bool IsUniform(Initializer initializer) {
  return initializer == Initializer::kUniform || initializer == Initializer::kKaimingUniform ||
         initializer == Initializer::kXavierUniform;
}

// The standard deviation, or for kUniform the bound.
absl::StatusOr<double> Spread(const Shape& shape, Initializer initializer, double scale) {
  if (!(scale >= 0 && std::isfinite(scale))) {
    return InvalidArgument("an initializer's scale (a normal distribution's deviation) is ", scale,
                           ", expected a finite number of 0 or more");
  }
  if (initializer == Initializer::kNormal || initializer == Initializer::kUniform) return scale;
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0) {
    return InvalidArgument("Kaiming and Xavier initializers take a weight [outputs, inputs], got ", ShapeString(shape));
  }
  const double outputs = static_cast<double>(shape[0]);
  const double inputs = static_cast<double>(shape[1]);
  const bool kaiming = initializer == Initializer::kKaimingNormal || initializer == Initializer::kKaimingUniform;
  const double deviation = scale * std::sqrt(2 / (kaiming ? inputs : inputs + outputs));
  return IsUniform(initializer) ? deviation * std::sqrt(3.0) : deviation;  // U(-b, b) deviates by b / sqrt(3)
}

}  // namespace

InitOptions InitOptions::Part(uint64_t i) const {
  InitOptions part = *this;
  part.seed = philox::Scatter(seed + (i + 1) * 0x9E3779B97F4A7C15);  // nearby seeds and parts become unrelated seeds
  return part;
}

absl::StatusOr<Var> MakeParameter(const Shape& shape, Initializer initializer, const InitOptions& options,
                                  double scale) {
  GM_ASSIGN_OR_RETURN(const int64_t count, CheckedNumElements(shape, SizeOf(DType::kF64)));
  if (!IsFloating(options.dtype)) {
    return InvalidArgument("parameters are f32, bf16 or f64, got ", DTypeName(options.dtype));
  }
  if (options.reserve_only) {
    GM_ASSIGN_OR_RETURN(Tensor reserved, Tensor::Reserve({shape, options.dtype, options.device}));
    return Var::Parameter(std::move(reserved));
  }
  const absl::StatusOr<Tensor> host = Tensor::Empty({shape, DType::kF32});
  if (!host.ok()) return Annotate(host.status(), "a parameter ", ShapeString(shape), ": ");
  float* values = static_cast<float*>(host->data());
  if (initializer == Initializer::kZeros || initializer == Initializer::kOnes) {
    std::fill_n(values, count, initializer == Initializer::kOnes ? 1.0f : 0.0f);
  } else {
    GM_ASSIGN_OR_RETURN(const double spread, Spread(shape, initializer, scale));
    const philox::Sequence sequence(options.seed, 0);
    for (int64_t i = 0; i < count; ++i) {
      const double unit = IsUniform(initializer) ? 2.0 * sequence.Uniform(i) - 1.0 : sequence.Normal(i);
      values[i] = static_cast<float>(spread * unit);
    }
  }
  GM_ASSIGN_OR_RETURN(const Tensor moved, host->To(options.device));
  if (options.dtype == DType::kF32) return Var::Parameter(moved);
  const Var cast = Apply1(op::Cast{options.dtype}, {Var(moved)}, Caller::Here());
  GM_ASSIGN_OR_RETURN(const Tensor stored, cast.Value());
  return Var::Parameter(stored);
}

}  // namespace gemmill
