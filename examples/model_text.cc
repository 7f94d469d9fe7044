#include "gemmill/examples/model_text.h"

#include "gemmill/runtime/json.h"

namespace gemmill::examples {

std::string InputText(const Normalization& input) {
  return JsonText({{"shift", input.shift}, {"scale", input.scale}}, -1);
}

absl::StatusOr<Normalization> InputOf(const Safetensors& file) {
  const std::string* const text = file.Text(kInputKey);
  if (text == nullptr) return Normalization{};
  JsonFields fields(*text);
  Normalization input;
  fields.Take("shift", input.shift);
  fields.Take("scale", input.scale);
  fields.Require("scale", input.shift.size() == input.scale.size());
  if (fields.ok()) return input;
  return InvalidArgument(file.path(), ": ", kInputKey, " in its metadata has no valid ", fields.wrong(), ": ", *text);
}

std::string ClassesText(const std::vector<std::string>& names) { return JsonText(names, -1); }

absl::StatusOr<std::vector<std::string>> ClassesOf(const Safetensors& file) {
  const std::string* const text = file.Text(kClassesKey);
  if (text == nullptr) return std::vector<std::string>{};
  const auto names = JsonAs<std::vector<std::string>>(ParseJson(*text));
  if (names.has_value()) return *names;
  return InvalidArgument(file.path(), ": ", kClassesKey, " in its metadata is no list of names: ", *text);
}

}  // namespace gemmill::examples
