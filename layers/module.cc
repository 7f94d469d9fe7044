#include "gemmill/layers/module.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gemmill {
namespace {

std::string Joined(const std::string& prefix, const std::string& name) {
  return name.empty() ? prefix : absl::StrCat(prefix, ".", name);
}

bool Holds(const std::vector<Var>& vars, const Var& var) {
  return std::any_of(vars.begin(), vars.end(), [&](const Var& other) { return other.Is(var); });
}

}  // namespace

Module::Module(std::string description) {
  if (!description.empty()) lines_.push_back({"", std::move(description), {}, 0, 0});
}

std::vector<NamedParameter> Module::trainable() const {
  std::vector<NamedParameter> found;
  std::vector<Var> seen;
  for (const NamedParameter& parameter : parameters_) {
    if (!parameter.value.requires_grad() || Holds(seen, parameter.value)) continue;
    seen.push_back(parameter.value);
    found.push_back(parameter);
  }
  return found;
}

std::vector<Var> Module::parameters() const {
  std::vector<Var> values;
  for (const NamedParameter& parameter : trainable()) values.push_back(parameter.value);
  return values;
}

Var Module::parameter(const std::string& name) const {
  for (const NamedParameter& parameter : parameters_) {
    if (parameter.name == name) return parameter.value;
  }
  return Var::Error(absl::NotFoundError(absl::StrCat(
      "no parameter \"", name, "\"; there are ",
      absl::StrJoin(parameters_, ", ", [](std::string* out, const NamedParameter& p) { out->append(p.name); }))));
}

absl::Status Module::Freeze(const std::function<bool(const std::string& name)>& matches, bool freeze) const {
  if (matches == nullptr) return InvalidArgument("Freeze: the function that says which parameters is empty");
  for (const NamedParameter& parameter : parameters_) {
    if (matches(parameter.name)) parameter.value.SetRequiresGrad(!freeze);
  }
  return absl::OkStatus();
}

Var Module::AddParameter(const std::string& parameter_name, Var value) {
  const bool has_own_line = !lines_.empty() && lines_.front().name.empty();
  if (!has_own_line) lines_.insert(lines_.begin(), {"", "parameters", {}, 0, 0});
  lines_.front().parameters.push_back(value);
  parameters_.push_back({parameter_name, value});
  return value;
}

void Module::AddModule(const std::string& child_name, Module& child) {
  child.name_ = child_name;
  for (const NamedParameter& parameter : child.parameters_) {
    parameters_.push_back({Joined(child_name, parameter.name), parameter.value});
  }
  step_sums_.insert(step_sums_.end(), child.step_sums_.begin(), child.step_sums_.end());
  for (Line line : child.lines_) {
    line.name = Joined(child_name, line.name);
    lines_.push_back(std::move(line));
  }
}

void Module::SetGemm(int64_t outputs, int64_t inputs) {
  lines_.front().gemm_outputs = outputs;
  lines_.front().gemm_inputs = inputs;
}

std::string Summary(const Module& model) {
  size_t name_width = 5;
  size_t description_width = 5;
  for (const Module::Line& line : model.lines()) {
    name_width = std::max(name_width, line.name.size());
    description_width = std::max(description_width, line.description.size());
  }
  const auto row = [&](const std::string& name, const std::string& description, const std::string& parameters,
                       const std::string& gemm, const std::string& bytes) {
    return absl::StrFormat("%-*s  %-*s  %12s  %14s  %12s\n", static_cast<int>(name_width), name,
                           static_cast<int>(description_width), description, parameters, gemm, bytes);
  };
  std::string table = row("layer", "what", "parameters", "GEMM", "bytes");
  std::vector<Var> seen;  // tied parameters count once
  int64_t total = 0;
  int64_t total_bytes = 0;
  int64_t frozen = 0;
  int64_t gemms = 0;
  for (const Module::Line& line : model.lines()) {
    int64_t count = 0;
    int64_t bytes = 0;
    for (const Var& parameter : line.parameters) {
      if (Holds(seen, parameter)) continue;
      seen.push_back(parameter);
      count += parameter.spec().num_elements();
      bytes += parameter.spec().bytes();
      if (!parameter.requires_grad()) frozen += parameter.spec().num_elements();
    }
    total += count;
    total_bytes += bytes;
    const bool gemm = line.gemm_outputs > 0;
    gemms += gemm ? 1 : 0;
    table += row(line.name, line.description, absl::StrCat(count),
                 gemm ? absl::StrCat(line.gemm_outputs, " x ", line.gemm_inputs) : "", absl::StrCat(bytes));
  }
  table += row("total", frozen == 0 ? "" : absl::StrCat(frozen, " parameters frozen"), absl::StrCat(total),
               absl::StrCat(gemms, " forward"), absl::StrCat(total_bytes));
  return table;
}

}  // namespace gemmill
