// libFuzzer on ParseByteSize and ParseByteBudget: sizes with units, as flags have them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "gemmill/runtime/byte_size.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<int64_t> bytes = gemmill::ParseByteSize(text);
  // What is accepted is a size that can be written again.
  if (bytes.ok() && (*bytes < 0 || gemmill::ParseByteSize(std::to_string(*bytes)) != bytes)) __builtin_trap();
  const absl::StatusOr<int64_t> budget = gemmill::ParseByteBudget(text, INT64_MAX);
  if (budget.ok() && *budget <= 0) __builtin_trap();
  if (bytes.ok() && *bytes > 0 && budget != bytes) __builtin_trap();
  return 0;
}
