#include "gemmill/examples/model_text.h"

#include "gemmill/runtime/json.h"

namespace gemmill::examples {

std::string InputText(const Normalization& input) {
  return JsonText({{"shift", input.shift}, {"scale", input.scale}}, -1);
}

absl::StatusOr<Normalization> InputOf(const Safetensors& file) {
  const auto text = file.metadata().find(kInputKey);
  if (text == file.metadata().end()) return Normalization{};
  const nlohmann::json json = ParseJson(text->second);
  const auto shift = JsonValue<std::vector<double>>(json, "shift");
  const auto scale = JsonValue<std::vector<double>>(json, "scale");
  if (!shift.has_value() || !scale.has_value() || shift->size() != scale->size()) {
    return InvalidArgument(file.path(), ": ", kInputKey, " in its metadata is not understood: ", text->second);
  }
  return Normalization{*shift, *scale};
}

std::string ClassesText(const std::vector<std::string>& names) { return JsonText(names, -1); }

absl::StatusOr<std::vector<std::string>> ClassesOf(const Safetensors& file) {
  const auto text = file.metadata().find(kClassesKey);
  if (text == file.metadata().end()) return std::vector<std::string>{};
  const auto names = JsonAs<std::vector<std::string>>(ParseJson(text->second));
  if (names.has_value()) return *names;
  return InvalidArgument(file.path(), ": ", kClassesKey, " in its metadata is no list of names: ", text->second);
}

}  // namespace gemmill::examples
