#include "gemmill/layers/training/optimizer.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/infer.h"
#include "gemmill/runtime/memory.h"

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

absl::Status Optimizer::Validate() const {
  const auto check = [&]() -> absl::Status {
    GM_RETURN_IF_ERROR(WantRange("learning_rate", learning_rate_, 0, kInfinity));
    GM_RETURN_IF_ERROR(WantRange("weight_decay", weight_decay_, 0, kInfinity));
    GM_RETURN_IF_ERROR(Check());
    for (const ParameterGroup& group : groups_) {
      if (group.matches == nullptr) return InvalidArgument("a parameter group's `matches` is empty");
      GM_RETURN_IF_ERROR(WantRange("a parameter group's weight_decay", group.weight_decay, 0, kInfinity));
      GM_RETURN_IF_ERROR(WantRange("a parameter group's learning_rate_scale", group.learning_rate_scale, 0, kInfinity));
    }
    return absl::OkStatus();
  };
  return Annotate(check(), Name(), ": ");
}

absl::StatusOr<Optimizer::Started> Optimizer::Start(absl::Span<const NamedParameter> parameters) const {
  GM_RETURN_IF_ERROR(Validate());
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
  for (const StateSpec& state : StateSpecs(parameters)) {
    absl::StatusOr<Tensor> zeros = Tensor::Zeros(state.spec);
    if (!zeros.ok()) return Annotate(zeros.status(), Name(), ": the ", state.kind, " of ", state.parameter, ": ");
    started.state.push_back({state.parameter, state.kind, *std::move(zeros)});
  }
  const Device device = parameters[0].value.device();
  GM_ASSIGN_OR_RETURN(started.control, Tensor::Zeros(Spec{{3}, DType::kF64, device}));
  for (const NamedParameter& parameter : parameters) {
    GM_ASSIGN_OR_RETURN(Tensor value, parameter.value.Value());
    started.updated.push_back(std::move(value));
  }
  for (const State& state : started.state) started.updated.push_back(state.value);
  const size_t count = parameters.size();
  started.specs.push_back(started.control.spec());
  started.inputs.push_back(started.control.data());
  for (size_t i = 0; i < started.updated.size(); ++i) {
    const Tensor& tensor = started.updated[i];
    if (i == count) {
      started.specs.resize(1 + 2 * count);  // the gradients', not known yet
      started.inputs.resize(1 + 2 * count);
    }
    started.specs.push_back(tensor.spec());
    started.inputs.push_back(tensor.data());
    started.outputs.push_back(tensor.data());
    started.updated_buffers.push_back(tensor.buffer().get());
  }
  started.specs.resize(std::max(started.specs.size(), 1 + 2 * count));
  started.inputs.resize(started.specs.size());
  std::sort(started.updated_buffers.begin(), started.updated_buffers.end());
  return started;
}

std::vector<Optimizer::StateSpec> Optimizer::StateSpecs(absl::Span<const NamedParameter> parameters) const {
  std::vector<StateSpec> specs;
  const auto add = [&](const NamedParameter& parameter, const std::string& kind) {
    const Spec& spec = parameter.value.spec();
    const DType dtype = spec.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    specs.push_back({parameter.name, kind, Spec{spec.shape, dtype, spec.device}});
  };
  for (const std::string& kind : StateNames()) {
    for (const NamedParameter& parameter : parameters) add(parameter, kind);
  }
  for (const NamedParameter& parameter : parameters) {
    if (parameter.value.dtype() == DType::kBf16) add(parameter, "master");
  }
  return specs;
}

absl::Status Optimizer::MakeState(absl::Span<const NamedParameter> parameters) {
  if (!started_.names.empty()) return CheckNames(parameters);
  GM_ASSIGN_OR_RETURN(started_, Start(parameters));
  return absl::OkStatus();
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

// `copies` keeps gradients that had to be copied.
absl::Status Optimizer::SetGradients(absl::Span<const NamedParameter> parameters, absl::Span<const Var> gradients,
                                     Started& started, std::vector<Tensor>& copies) const {
  bool changed = started.kernel.run == nullptr;
  std::vector<Spec> specs;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const size_t place = 1 + parameters.size() + i;
    absl::StatusOr<Tensor> gradient = gradients[i].Value();
    if (!gradient.ok()) return Annotate(gradient.status(), Name(), ": the gradient of ", parameters[i].name, ": ");
    const Spec& parameter = parameters[i].value.spec();
    const bool in_f32 = parameter.dtype == DType::kBf16 && gradient->dtype() == DType::kF32;
    if (gradient->shape() != parameter.shape || (gradient->dtype() != parameter.dtype && !in_f32)) {
      return InvalidArgument(Name(), ": the gradient of ", parameters[i].name, " is ", gradient->spec().ToString(),
                             ", expected ", parameter.ToString());
    }
    // A parameter as a gradient would change while it is read.
    if (std::binary_search(started.updated_buffers.begin(), started.updated_buffers.end(), gradient->buffer().get())) {
      GM_ASSIGN_OR_RETURN(Tensor copy, Tensor::Empty(gradient->spec()));
      GM_RETURN_IF_ERROR(copy.CopyFrom(*gradient));
      copies.push_back(copy);
      gradient = std::move(copy);
    }
    started.inputs[place] = gradient->data();
    if (!changed && gradient->spec() == started.specs[place]) continue;
    if (specs.empty()) specs = started.specs;
    specs[place] = gradient->spec();
    changed = true;
  }
  if (!changed) return absl::OkStatus();
  const Op op = UpdateOp(started.decays, started.scales);
  GM_ASSIGN_OR_RETURN(const std::vector<Spec> outputs, Infer(op, specs));
  GM_ASSIGN_OR_RETURN(started.kernel, Prepare(op, specs, outputs));
  started.specs = std::move(specs);
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
  Started& started = first ? fresh : started_;
  std::vector<Tensor> copies;
  GM_RETURN_IF_ERROR(SetGradients(parameters, gradients, started, copies));

  const Device device = started.control.device();
  const double values[] = {learning_rate_ * control.learning_rate_factor, static_cast<double>(steps_ + 1),
                           control.gradient_scale};
  GM_RETURN_IF_ERROR(CopyFromHost(values, started.control.data(), sizeof(values), device));
  GM_RETURN_IF_ERROR(RunKernel(started.kernel, {started.inputs, started.outputs, nullptr}, Stream::Default(device)));
  for (const Tensor& tensor : started.updated) tensor.buffer()->MarkWritten();
  if (first) started_ = std::move(fresh);
  ++steps_;
  return absl::OkStatus();
}

Program Optimizer::UpdateProgram(Caller caller) const {
  Program program;
  if (started_.kernel.run == nullptr) return program;
  Step step{.op = UpdateOp(started_.decays, started_.scales), .origin = {.caller = caller}};
  for (const Spec& spec : started_.specs) {
    step.inputs.push_back(static_cast<int>(program.values.size()));
    program.values.push_back({spec, Storage::kInput, {}});
  }
  program.inputs = step.inputs;
  for (const Tensor& tensor : started_.updated) {
    step.outputs.push_back(static_cast<int>(program.values.size()));
    program.values.push_back({tensor.spec(), Storage::kBound, tensor});
  }
  program.steps.push_back(std::move(step));
  return program;
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
