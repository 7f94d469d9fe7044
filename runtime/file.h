// Files that are whole or not there.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmill {

// Writes a temporary file beside `path`, syncs it and renames it: whoever reads `path` sees the old bytes or all of the
// new ones. What is no regular file (/dev/stdout, a pipe) is written as it is.
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

}  // namespace gemmill
