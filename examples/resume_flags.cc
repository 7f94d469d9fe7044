#include "gemmill/examples/resume_flags.h"

#include <cstdint>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "gemmill/runtime/json.h"
#include "gemmill/runtime/status.h"

namespace gemmill::examples {

std::set<std::string> GivenFlags(int argc, char** argv) {
  std::set<std::string> given;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--") break;
    if (!absl::ConsumePrefix(&argument, "-")) continue;
    absl::ConsumePrefix(&argument, "-");
    const std::string name(argument.substr(0, argument.find('=')));
    if (absl::FindCommandLineFlag(name) == nullptr && absl::StartsWith(name, "no")) given.insert(name.substr(2));
    given.insert(name);
  }
  return given;
}

std::string FlagsText(std::initializer_list<absl::Span<const char* const>> names) {
  nlohmann::json text = nlohmann::json::object();
  for (const absl::Span<const char* const> some : names) {
    for (const char* name : some) text[name] = absl::FindCommandLineFlag(name)->CurrentValue();
  }
  return JsonText(text, -1);
}

ResumedFlags::ResumedFlags(const std::string& stored, const std::string& path, const std::set<std::string>& given)
    : stored_(ParseJson(stored)), path_(path), given_(given) {}

std::optional<std::string> ResumedFlags::OtherValue(const char* name) {
  std::optional<std::string> value = JsonValue<std::string>(stored_, name);
  absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  std::string error = "it does not say";
  if (!value.has_value() || (given_.count(name) == 0 && !flag->ParseFrom(*value, &error))) {
    faults_.push_back(absl::StrCat("what --", name, " was: ", error));
    return std::nullopt;
  }
  if (flag->CurrentValue() == *value) return std::nullopt;
  differing_.insert(name);
  return value;
}

void ResumedFlags::MustBeTheSame(const char* name) {
  const std::optional<std::string> other = OtherValue(name);
  if (!other.has_value()) return;
  faults_.push_back(
      absl::StrCat("--", name, " is ", absl::FindCommandLineFlag(name)->CurrentValue(), ", was ", *other));
}

void ResumedFlags::MayGrow(const char* name) {
  const std::optional<std::string> other = OtherValue(name);
  if (!other.has_value()) return;
  const std::string value = absl::FindCommandLineFlag(name)->CurrentValue();
  int64_t now = 0, before = 0;
  if (absl::SimpleAtoi(value, &now) && absl::SimpleAtoi(*other, &before) && now > before) return;
  faults_.push_back(absl::StrCat("--", name, " is ", value, ", was ", *other, ", and may only grow"));
}

void ResumedFlags::MayDiffer(const char* name) { OtherValue(name); }

absl::Status ResumedFlags::status() const {
  if (faults_.empty()) return absl::OkStatus();
  return InvalidArgument("--resume: not the training of ", path_, ": ", absl::StrJoin(faults_, "; "));
}

}  // namespace gemmill::examples
