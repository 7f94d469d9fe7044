#include "gemmill/layers/norm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/ops.h"

namespace gemmill {
namespace {

absl::Status Check(const char* layer, const NormOptions& options) {
  if (options.width < 1) return InvalidArgument(layer, ": width is ", options.width, ", expected at least 1");
  if (!(options.epsilon >= 0)) return InvalidArgument(layer, ": epsilon is ", options.epsilon, ", expected 0 or more");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LayerNorm> LayerNorm::Create(const NormOptions& options, const InitOptions& init) {
  GM_RETURN_IF_ERROR(Check("LayerNorm", options));
  GM_ASSIGN_OR_RETURN(Var weight, MakeParameter({options.width}, Initializer::kOnes, init));
  Var bias;
  if (options.bias) {
    GM_ASSIGN_OR_RETURN(bias, MakeParameter({options.width}, Initializer::kZeros, init));
  }
  return LayerNorm(options, std::move(weight), std::move(bias));
}

LayerNorm::LayerNorm(const NormOptions& options, Var weight, Var bias)
    : Module(absl::StrCat("LayerNorm ", options.width)), epsilon_(options.epsilon) {
  weight_ = AddParameter("weight", std::move(weight));
  if (bias.node() != nullptr) bias_ = AddParameter("bias", std::move(bias));
}

Var LayerNorm::operator()(Located x) const {
  const LayerScope scope(name());
  const CallerScope caller(x.caller);
  const Var scaled = LayerNormalize(x, epsilon_) * weight_;
  return bias_.node() == nullptr ? scaled : scaled + bias_;
}

absl::StatusOr<RmsNorm> RmsNorm::Create(const NormOptions& options, const InitOptions& init) {
  GM_RETURN_IF_ERROR(Check("RmsNorm", options));
  GM_ASSIGN_OR_RETURN(Var weight, MakeParameter({options.width}, Initializer::kOnes, init));
  return RmsNorm(options, std::move(weight));
}

RmsNorm::RmsNorm(const NormOptions& options, Var weight)
    : Module(absl::StrCat("RmsNorm ", options.width)), epsilon_(options.epsilon) {
  weight_ = AddParameter("weight", std::move(weight));
}

Var RmsNorm::operator()(Located x) const {
  const LayerScope scope(name());
  const CallerScope caller(x.caller);
  return RmsNormalize(x, epsilon_) * weight_;
}

}  // namespace gemmill
