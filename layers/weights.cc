#include "gemmill/layers/weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/runtime/json.h"

namespace gemmill {
namespace {

// Every name by which a file may call a parameter that the model knows as `names`, of one tensor.
struct Tied {
  std::vector<std::string> names;
  Var value;
};

std::vector<Tied> TiedParameters(const Module& model, const WeightNames& names) {
  std::vector<Tied> tied;
  for (const NamedParameter& parameter : model.named_parameters()) {
    const auto renamed = names.find(parameter.name);
    const std::string& name = renamed == names.end() ? parameter.name : renamed->second;
    const auto same =
        std::find_if(tied.begin(), tied.end(), [&](const Tied& t) { return t.value.Is(parameter.value); });
    if (same == tied.end()) {
      tied.push_back({{name}, parameter.value});
    } else {
      same->names.push_back(name);
    }
  }
  return tied;
}

absl::Status CheckNames(const Module& model, const WeightNames& names) {
  for (const auto& [name, in_file] : names) GM_RETURN_IF_ERROR(model.parameter(name).status());
  return absl::OkStatus();
}

absl::Status Wrong(const Safetensors& file, const std::vector<std::string>& faults) {
  constexpr size_t kMost = 4;
  const std::vector<std::string> shown(faults.begin(), faults.begin() + std::min<int64_t>(kMost, std::ssize(faults)));
  return InvalidArgument(file.path(), ": its weights are not this model's: ", absl::StrJoin(shown, "; "),
                         faults.size() > kMost ? absl::StrCat("; and ", faults.size() - kMost, " more") : "");
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> Weights(const Module& model, const WeightNames& names) {
  GM_RETURN_IF_ERROR(CheckNames(model, names));
  std::vector<NamedTensor> weights;
  for (const Tied& parameter : TiedParameters(model, names)) {
    GM_ASSIGN_OR_RETURN(Tensor value, parameter.value.Value());
    weights.push_back({parameter.names[0], std::move(value)});
  }
  return weights;
}

absl::Status SaveWeights(const std::string& path, const Module& model, const Metadata& metadata,
                         const WeightNames& names) {
  GM_ASSIGN_OR_RETURN(const std::vector<NamedTensor> weights, Weights(model, names));
  return WriteSafetensors(path, weights, metadata);
}

absl::Status LoadWeights(const Safetensors& file, const Module& model, const WeightNames& names) {
  GM_RETURN_IF_ERROR(CheckNames(model, names));
  const std::vector<Tied> parameters = TiedParameters(model, names);
  std::vector<std::string> found;  // one per parameter
  std::set<std::string> known;
  std::vector<std::string> faults;
  for (const Tied& parameter : parameters) {
    known.insert(parameter.names.begin(), parameter.names.end());
    const auto name = std::find_if(parameter.names.begin(), parameter.names.end(),
                                   [&](const std::string& n) { return file.Find(n) != nullptr; });
    if (name == parameter.names.end()) {
      faults.push_back(absl::StrCat(absl::StrJoin(parameter.names, " or "), " is not there"));
      continue;
    }
    found.push_back(*name);
    const SafetensorsEntry& entry = *file.Find(*name);
    const bool convertible =
        entry.dtype.has_value() &&
        (entry.dtype == parameter.value.dtype() || (IsFloating(*entry.dtype) && IsFloating(parameter.value.dtype())));
    if (!convertible || entry.shape != parameter.value.shape()) {
      faults.push_back(absl::StrCat(*name, " is ", entry.ToString(), ", expected ", parameter.value.spec().ToString()));
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (known.count(entry.name) == 0 && !absl::StartsWith(entry.name, kOptimizerPrefix)) {
      faults.push_back(absl::StrCat("the model has no ", entry.name));
    }
  }
  if (!faults.empty()) return Wrong(file, faults);

  for (size_t i = 0; i < parameters.size(); ++i) {
    const Var& parameter = parameters[i].value;
    GM_ASSIGN_OR_RETURN(Tensor value, parameter.Value());
    if (file.Find(found[i])->dtype == parameter.dtype()) {
      GM_RETURN_IF_ERROR(file.ReadInto(found[i], value));
    } else {
      GM_ASSIGN_OR_RETURN(Tensor stored, file.Read(found[i], parameter.device()));
      GM_ASSIGN_OR_RETURN(const Tensor converted, Cast(Var(std::move(stored)), parameter.dtype()).Value());
      GM_RETURN_IF_ERROR(value.CopyFrom(converted));
    }
    value.buffer()->MarkWritten();
  }
  return absl::OkStatus();
}

namespace {

nlohmann::json MoeJson(const MoeOptions& options) {
  nlohmann::json json = {{"ffn", options.ffn},
                         {"experts", options.experts},
                         {"top_k", options.top_k},
                         {"activation", ActivationName(options.activation)},
                         {"gated", options.gated},
                         {"routing", RoutingName(options.routing)},
                         {"shared_experts", options.shared_experts},
                         {"balance_loss", options.balance_loss},
                         {"z_loss", options.z_loss},
                         {"bias_update_rate", options.bias_update_rate}};
  if (options.capacity_factor.has_value()) json["capacity_factor"] = *options.capacity_factor;
  return json;
}

MoeOptions TakeMoe(JsonFields& fields) {
  MoeOptions options;
  std::string activation_name, routing_name;
  fields.Take("ffn", options.ffn);
  fields.Take("experts", options.experts);
  fields.Take("top_k", options.top_k);
  fields.Take("activation", activation_name);
  fields.Take("gated", options.gated);
  fields.Take("routing", routing_name);
  fields.Take("shared_experts", options.shared_experts);
  fields.Take("balance_loss", options.balance_loss);
  fields.Take("z_loss", options.z_loss);
  fields.Take("bias_update_rate", options.bias_update_rate);
  if (fields.Has("capacity_factor")) fields.Take("capacity_factor", options.capacity_factor.emplace());
  const absl::StatusOr<Activation> activation = ParseActivation(activation_name);
  const absl::StatusOr<Routing> routing = ParseRouting(routing_name);
  fields.Require("activation", activation.ok());
  fields.Require("routing", routing.ok());
  if (activation.ok()) options.activation = *activation;
  if (routing.ok()) options.routing = *routing;
  return options;
}

}  // namespace

std::string ModelText(const MlpOptions& options) {
  nlohmann::json text = {{"type", "mlp"},
                         {"sizes", options.sizes},
                         {"activation", ActivationName(options.activation)},
                         {"bias", options.bias},
                         {"dropout", options.dropout}};
  if (options.moe.has_value()) text["moe"] = MoeJson(*options.moe);
  return JsonText(text, -1);
}

absl::StatusOr<MlpOptions> MlpOptionsOf(const Safetensors& file) {
  const std::string* const text = file.Text(kModelKey);
  if (text == nullptr) {
    return InvalidArgument(file.path(), ": its metadata has no ", kModelKey, ", so the model cannot be built from it");
  }
  JsonFields fields(*text);
  MlpOptions options;
  std::string type, activation_name;
  fields.Take("type", type);
  fields.Take("sizes", options.sizes);
  fields.Take("activation", activation_name);
  fields.Take("bias", options.bias);
  fields.Take("dropout", options.dropout);
  const absl::StatusOr<Activation> activation = ParseActivation(activation_name);
  fields.Require("type", type == "mlp");
  fields.Require("activation", activation.ok());
  if (fields.Has("moe")) {
    JsonFields block = fields.Inside("moe");
    options.moe = TakeMoe(block);
    fields.Require(absl::StrCat("moe: ", block.wrong()).c_str(), block.ok());
  }
  if (!fields.ok()) {
    return InvalidArgument(file.path(), ": ", kModelKey, " in its metadata has no valid ", fields.wrong(), ": ", *text);
  }
  options.activation = *activation;
  return options;
}

absl::StatusOr<Mlp> LoadMlp(const Safetensors& file, Device device) {
  GM_ASSIGN_OR_RETURN(const MlpOptions options, MlpOptionsOf(file));
  absl::StatusOr<Mlp> model = Mlp::Create(options, {.device = device});
  if (!model.ok()) return Annotate(model.status(), file.path(), ": ", kModelKey, ": ");
  GM_RETURN_IF_ERROR(LoadWeights(file, *model));
  return model;
}

}  // namespace gemmill
