#include "gemmill/examples/run_options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gemmill/runtime/status.h"

namespace gemmill::examples {
namespace {

// The flag `name` of the program's own `source`, or null.
absl::CommandLineFlag* FindFlag(absl::string_view name, absl::string_view source) {
  absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && absl::EndsWith(flag->Filename(), source) ? flag : nullptr;
}

bool IsHelp(absl::string_view name) {
  return name == "help" || name == "h" || name == "helpfull" || name == "helpshort";
}

// Not absl::ParseCommandLine, which words its errors in another way than ours and ends the program.
absl::Status SetFlags(const std::vector<absl::string_view>& arguments, absl::string_view source, bool& help) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view name = arguments[i];
    if (!absl::ConsumePrefix(&name, "-") || name.empty()) {
      return InvalidArgument("unexpected argument \"", arguments[i], "\"; flags are written --name value (see --help)");
    }
    absl::ConsumePrefix(&name, "-");
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(name, absl::MaxSplits('=', 1));
    std::optional<std::string> value;
    if (parts.first.size() < name.size()) value = std::string(parts.second);
    name = parts.first;
    if (IsHelp(name)) {
      help = true;
      continue;
    }
    absl::CommandLineFlag* flag = FindFlag(name, source);
    if (flag == nullptr && absl::ConsumePrefix(&name, "no") && !value.has_value()) {
      flag = FindFlag(name, source);
      if (flag != nullptr && !flag->IsOfType<bool>()) flag = nullptr;
      value = "false";
    }
    if (flag == nullptr) return InvalidArgument("there is no flag \"", arguments[i], "\" (see --help)");
    if (!value.has_value() && flag->IsOfType<bool>()) value = "true";
    if (!value.has_value()) {
      if (++i == arguments.size()) return InvalidArgument("--", name, " needs a value (see --help)");
      value = std::string(arguments[i]);
    }
    std::string error;
    if (!flag->ParseFrom(*value, &error)) {
      const char* const expected = flag->IsOfType<bool>()     ? "true or false"
                                   : flag->IsOfType<double>() ? "a number"
                                                              : "a whole number of 64 bits";
      return InvalidArgument("--", flag->Name(), " is \"", *value, "\", expected ", expected);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void ParseFlags(int argc, char** argv, absl::string_view usage, absl::string_view source) {
  bool help = false;
  const absl::Status status = SetFlags({argv + 1, argv + argc}, source, help);
  if (!status.ok()) std::exit(ExitCode(status));
  if (!help) return;
  std::cout << usage << "\n\n";
  std::vector<std::pair<std::string, std::string>> lines;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::EndsWith(flag->Filename(), source)) continue;
    lines.emplace_back(std::string(name), absl::StrCat(flag->Help(), " (default: ", flag->DefaultValue(), ")"));
  }
  std::sort(lines.begin(), lines.end());
  for (const auto& [name, text] : lines) std::cout << "  --" << name << "  " << text << "\n";
  std::exit(0);
}

absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view flag, absl::string_view text) {
  std::vector<int64_t> sizes;
  if (text.empty()) return sizes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1) {
      return InvalidArgument("--", flag, " is \"", text, "\": \"", part, "\" is not a size of at least 1");
    }
    sizes.push_back(size);
  }
  return sizes;
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("--", flag, " is ", value, ", expected ", least,
                         most == INT64_MAX ? " or more" : absl::StrCat(" to ", most));
}

absl::Status CheckRange(absl::string_view flag, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("--", flag, " is ", value, ", expected ", least, " to ", most);
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (absl::IsCancelled(status)) {
    std::cerr << std::string(status.message()) << "\n";
    return 130;
  }
  std::cerr << "error: " << std::string(status.message()) << "\n";
  return 1;
}

}  // namespace gemmill::examples
