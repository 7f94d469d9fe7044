#include "gemmill/examples/run_options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gemmill/runtime/status.h"

namespace gemmill::examples {

void ParseFlags(int argc, char** argv, absl::string_view usage, absl::string_view source) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--") break;
    if (!absl::StartsWith(argument, "--help") && !absl::StartsWith(argument, "-help") && argument != "-h") continue;
    std::cout << usage << "\n\n";
    std::vector<std::pair<std::string, std::string>> lines;
    for (const auto& [name, flag] : absl::GetAllFlags()) {
      if (!absl::EndsWith(flag->Filename(), source)) continue;
      lines.emplace_back(std::string(name), absl::StrCat(flag->Help(), " (default: ", flag->DefaultValue(), ")"));
    }
    std::sort(lines.begin(), lines.end());
    for (const auto& [name, help] : lines) std::cout << "  --" << name << "  " << help << "\n";
    std::exit(0);
  }
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::cerr << "error: unexpected argument \"" << rest[1] << "\"; flags are written --name value (see --help)\n";
    std::exit(1);
  }
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
