// What the training examples share of a command line: help, lists, and errors that name the flag.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmill::examples {

// Sets Abseil's flags of the program's own source file `source`. Unknown flags, malformed values and stray arguments
// end the program with a message and exit code 1; else --help (or -h) prints `usage` and the flags and exits with 0.
void ParseFlags(int argc, char** argv, absl::string_view usage, absl::string_view source);

// "512,256" -> {512, 256}; an empty text gives no sizes. Sizes below 1, and anything else, are an error naming flag and
// text.
absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view flag, absl::string_view text);

// OK if least <= value <= most; else an error that names the flag, the value and the range.
absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most = INT64_MAX);
absl::Status CheckRange(absl::string_view flag, double value, double least, double most);

// Prints "error: <message>" to standard error and returns exit code 1; for OK, 0; for a run that Ctrl-C ended, 130.
int ExitCode(const absl::Status& status);

}  // namespace gemmill::examples
