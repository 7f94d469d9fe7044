#include "gemmill/layers/training/optimizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/infer.h"

namespace gemmill {
namespace {

absl::Status WantRange(const char* name, double value, double least, double below) {
  if (value >= least && value < below) return absl::OkStatus();
  return InvalidArgument(name, " is ", value, ", expected at least ", least, " and below ", below);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

bool IsBiasOrNorm(const std::string& name) {
  return name == "bias" || absl::EndsWith(name, ".bias") || absl::StrContains(name, "norm");
}

std::vector<ParameterGroup> NoDecayOnBiasesAndNorms() { return {{IsBiasOrNorm, 0, 1}}; }

absl::Status Optimizer::Start(absl::Span<const NamedParameter> parameters) {
  GM_RETURN_IF_ERROR(WantRange("learning_rate", learning_rate_, 0, kInfinity));
  GM_RETURN_IF_ERROR(WantRange("weight_decay", weight_decay_, 0, kInfinity));
  GM_RETURN_IF_ERROR(Check());
  for (const ParameterGroup& group : groups_) {
    if (group.matches == nullptr) return InvalidArgument(Name(), ": a parameter group's `matches` is empty");
    GM_RETURN_IF_ERROR(WantRange("a parameter group's weight_decay", group.weight_decay, 0, kInfinity));
    GM_RETURN_IF_ERROR(WantRange("a parameter group's learning_rate_scale", group.learning_rate_scale, 0, kInfinity));
  }
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) {
    if (std::find(names.begin(), names.end(), parameter.name) != names.end()) {
      return InvalidArgument(Name(), ": two parameters are called ", parameter.name);
    }
    names.push_back(parameter.name);
  }
  std::vector<Tensor> state;
  std::vector<float> decays;
  std::vector<float> scales;
  const size_t per_parameter = StateNames().size();
  for (const NamedParameter& parameter : parameters) {
    const Spec& spec = parameter.value.spec();
    for (size_t i = 0; i < per_parameter; ++i) {
      const DType dtype = spec.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
      absl::StatusOr<Tensor> zeros = Tensor::Zeros(Spec{spec.shape, dtype, spec.device});
      if (!zeros.ok()) return Annotate(zeros.status(), Name(), ": the state of ", parameter.name, ": ");
      state.push_back(*std::move(zeros));
    }
    decays.push_back(static_cast<float>(weight_decay_));
    scales.push_back(1);
    for (const ParameterGroup& group : groups_) {
      if (!group.matches(parameter.name)) continue;
      decays.back() = group.weight_decay;
      scales.back() = group.learning_rate_scale;
      break;
    }
  }
  names_ = std::move(names);
  state_ = std::move(state);
  decays_ = std::move(decays);
  scales_ = std::move(scales);
  return absl::OkStatus();
}

absl::Status Optimizer::Apply(absl::Span<const NamedParameter> parameters, absl::Span<const Var> gradients,
                              const UpdateControl& control) {
  if (parameters.empty()) return InvalidArgument(Name(), ": there are no parameters to update; all frozen?");
  if (parameters.size() != gradients.size()) {
    return InvalidArgument(Name(), ": ", gradients.size(), " gradients for ", parameters.size(), " parameters");
  }
  for (const NamedParameter& parameter : parameters) GM_RETURN_IF_ERROR(parameter.value.status());
  if (names_.empty()) GM_RETURN_IF_ERROR(Start(parameters));
  if (names_.size() != parameters.size()) {
    return InvalidArgument(Name(), ": ", parameters.size(), " parameters, but the state is of ", names_.size());
  }
  const size_t per_parameter = StateNames().size();
  const Device device = parameters[0].value.device();
  GM_ASSIGN_OR_RETURN(const Tensor control_values,
                      Tensor::From(std::vector<double>{learning_rate_ * control.learning_rate_factor,
                                                       static_cast<double>(steps_ + 1), control.gradient_scale},
                                   {3}, device));
  std::vector<Tensor> inputs{control_values};
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (names_[i] != parameters[i].name) {
      return InvalidArgument(Name(), ": parameter ", i, " is ", parameters[i].name, ", but its state is of ",
                             names_[i]);
    }
    GM_ASSIGN_OR_RETURN(Tensor value, parameters[i].value.Value());
    absl::StatusOr<Tensor> gradient = gradients[i].Value();
    if (!gradient.ok()) return Annotate(gradient.status(), Name(), ": the gradient of ", names_[i], ": ");
    inputs.push_back(value);
    inputs.push_back(*std::move(gradient));
    outputs.push_back(std::move(value));
    for (size_t s = 0; s < per_parameter; ++s) {
      inputs.push_back(state_[i * per_parameter + s]);
      outputs.push_back(state_[i * per_parameter + s]);
    }
  }
  const Op op = UpdateOp(decays_, scales_);
  std::vector<Spec> specs;
  for (const Tensor& input : inputs) specs.push_back(input.spec());
  GM_RETURN_IF_ERROR(Infer(op, specs).status());
  GM_RETURN_IF_ERROR(Execute(op, inputs, absl::MakeSpan(outputs), Stream::Default(device)));
  for (const Tensor& output : outputs) output.buffer()->MarkWritten();
  ++steps_;
  return absl::OkStatus();
}

Sgd::Sgd(const SgdOptions& options)
    : Optimizer(options.learning_rate, options.weight_decay, options.groups), options_(options) {}

std::vector<std::string> Sgd::StateNames() const {
  return options_.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"};
}

Op Sgd::UpdateOp(std::vector<float> weight_decay, std::vector<float> learning_rate_scale) const {
  return op::Sgd{options_.momentum, options_.nesterov, std::move(weight_decay), std::move(learning_rate_scale)};
}

absl::Status Sgd::Check() const {
  if (options_.nesterov && options_.momentum == 0) return InvalidArgument("nesterov needs a momentum above 0");
  return WantRange("momentum", options_.momentum, 0, 1);
}

AdamW::AdamW(const AdamWOptions& options)
    : Optimizer(options.learning_rate, options.weight_decay, options.groups), options_(options) {}

Op AdamW::UpdateOp(std::vector<float> weight_decay, std::vector<float> learning_rate_scale) const {
  return op::AdamW{options_.beta1, options_.beta2, options_.epsilon, std::move(weight_decay),
                   std::move(learning_rate_scale)};
}

absl::Status AdamW::Check() const {
  GM_RETURN_IF_ERROR(WantRange("beta1", options_.beta1, 0, 1));
  GM_RETURN_IF_ERROR(WantRange("beta2", options_.beta2, 0, 1));
  // With 0, a parameter whose gradient is 0 would be moved by 0 / 0.
  if (!(options_.epsilon > 0)) return InvalidArgument("epsilon is ", options_.epsilon, ", expected above 0");
  return absl::OkStatus();
}

}  // namespace gemmill
