#include "gemmill/layers/training/optimizer.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/infer.h"

namespace gemmill {
namespace {

absl::Status WantRange(const char* name, double value, double least, double below) {
  if (value >= least && value < below) return absl::OkStatus();
  return InvalidArgument(name, " is ", value, ", expected ", least, " <= ", name, " < ", below);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

bool IsBiasOrNorm(const std::string& name) {
  return name == "bias" || absl::EndsWith(name, ".bias") || absl::StrContains(name, "norm");
}

std::vector<ParameterGroup> NoDecayOnBiasesAndNorms() { return {{IsBiasOrNorm, 0, 1}}; }

absl::StatusOr<Optimizer::Started> Optimizer::Start(absl::Span<const NamedParameter> parameters) const {
  GM_RETURN_IF_ERROR(WantRange("learning_rate", learning_rate_, 0, kInfinity));
  GM_RETURN_IF_ERROR(WantRange("weight_decay", weight_decay_, 0, kInfinity));
  GM_RETURN_IF_ERROR(Check());
  Started started;
  std::map<const void*, std::string> by_address;
  for (const NamedParameter& parameter : parameters) {
    if (std::find(started.names.begin(), started.names.end(), parameter.name) != started.names.end()) {
      return InvalidArgument(Name(), ": two parameters are called ", parameter.name);
    }
    started.names.push_back(parameter.name);
    GM_ASSIGN_OR_RETURN(const Tensor value, parameter.value.Value());
    const auto [found, is_new] = by_address.emplace(value.data(), parameter.name);
    if (!is_new) {
      return InvalidArgument(Name(), ": parameters ", found->second, " and ", parameter.name,
                             " are one tensor; give it once (Module::trainable does)");
    }
    started.decays.push_back(static_cast<float>(weight_decay_));
    started.scales.push_back(1);
    for (const ParameterGroup& group : groups_) {
      if (!group.matches(parameter.name)) continue;
      started.decays.back() = group.weight_decay;
      started.scales.back() = group.learning_rate_scale;
      break;
    }
  }
  const auto add = [&](const NamedParameter& parameter, const std::string& kind) -> absl::Status {
    const Spec& spec = parameter.value.spec();
    const DType dtype = spec.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    GM_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Zeros(Spec{spec.shape, dtype, spec.device}));
    started.state.push_back({parameter.name, kind, std::move(zeros)});
    return absl::OkStatus();
  };
  for (const std::string& kind : StateNames()) {
    for (const NamedParameter& parameter : parameters) GM_RETURN_IF_ERROR(add(parameter, kind));
  }
  for (const NamedParameter& parameter : parameters) {
    if (parameter.value.dtype() == DType::kBf16) GM_RETURN_IF_ERROR(add(parameter, "master"));
  }
  return started;
}

absl::Status Optimizer::CheckNames(absl::Span<const NamedParameter> parameters) const {
  const std::vector<std::string>& names = started_.names;
  if (names.size() != parameters.size()) {
    return InvalidArgument(Name(), ": ", parameters.size(), " parameters, but the state is of ", names.size());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (names[i] == parameters[i].name) continue;
    return InvalidArgument(Name(), ": parameter ", i, " is ", parameters[i].name, ", but its state is of ", names[i]);
  }
  return absl::OkStatus();
}

absl::Status Optimizer::Apply(absl::Span<const NamedParameter> parameters, absl::Span<const Var> gradients,
                              const UpdateControl& control) {
  if (parameters.empty()) return InvalidArgument(Name(), ": there are no parameters to update; all frozen?");
  if (parameters.size() != gradients.size()) {
    return InvalidArgument(Name(), ": ", gradients.size(), " gradients for ", parameters.size(), " parameters");
  }
  for (const NamedParameter& parameter : parameters) GM_RETURN_IF_ERROR(parameter.value.status());
  Started fresh;
  const bool first = started_.names.empty();
  if (first) {
    GM_ASSIGN_OR_RETURN(fresh, Start(parameters));
  } else {
    GM_RETURN_IF_ERROR(CheckNames(parameters));
  }
  const Started& started = first ? fresh : started_;

  const Device device = parameters[0].value.device();
  GM_ASSIGN_OR_RETURN(const Tensor control_values,
                      Tensor::From(std::vector<double>{learning_rate_ * control.learning_rate_factor,
                                                       static_cast<double>(steps_ + 1), control.gradient_scale},
                                   {3}, device));
  std::vector<Tensor> outputs;
  for (const NamedParameter& parameter : parameters) {
    GM_ASSIGN_OR_RETURN(Tensor value, parameter.value.Value());
    outputs.push_back(std::move(value));
  }
  for (const State& state : started.state) outputs.push_back(state.value);

  std::vector<Tensor> inputs{control_values};
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  for (size_t i = 0; i < gradients.size(); ++i) {
    absl::StatusOr<Tensor> gradient = gradients[i].Value();
    if (!gradient.ok()) return Annotate(gradient.status(), Name(), ": the gradient of ", parameters[i].name, ": ");
    const bool is_updated = std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& output) {
      return output.buffer() == gradient->buffer();  // a parameter as a gradient: it would change while it is read
    });
    if (is_updated) {
      GM_ASSIGN_OR_RETURN(Tensor copy, Tensor::Empty(gradient->spec()));
      GM_RETURN_IF_ERROR(copy.CopyFrom(*gradient));
      gradient = std::move(copy);
    }
    inputs.insert(inputs.begin() + static_cast<int64_t>(1 + parameters.size() + i), *std::move(gradient));
  }
  const Op op = UpdateOp(started.decays, started.scales);
  std::vector<Spec> specs;
  for (const Tensor& input : inputs) specs.push_back(input.spec());
  GM_RETURN_IF_ERROR(Infer(op, specs).status());
  GM_RETURN_IF_ERROR(Execute(op, inputs, absl::MakeSpan(outputs), Stream::Default(device)));
  for (const Tensor& output : outputs) output.buffer()->MarkWritten();
  if (first) started_ = std::move(fresh);
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
