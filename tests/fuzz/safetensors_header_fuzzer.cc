// libFuzzer on ParseSafetensorsHeader: JSON alone, so that no length has to be right before a header is reached.
#include <cstddef>
#include <cstdint>

#include "gemmill/runtime/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view json(reinterpret_cast<const char*>(data + 1), size - 1);
  const int64_t data_bytes = data[0];
  const absl::StatusOr<gemmill::SafetensorsHeader> header = gemmill::ParseSafetensorsHeader(json, data_bytes);
  if (!header.ok()) {
    // Neither a file's control characters nor all of its names.
    for (const char c : header.status().message()) {
      if (c < ' ' || c > '~') __builtin_trap();
    }
    if (header.status().message().size() > 2000) __builtin_trap();
    return 0;
  }
  int64_t end = 0;
  for (const gemmill::SafetensorsEntry& entry : header->entries) {
    if (entry.offset != end || entry.bytes < 0) __builtin_trap();
    end += entry.bytes;
    if (entry.dtype.has_value() && gemmill::NumElements(entry.shape) * gemmill::SizeOf(*entry.dtype) != entry.bytes) {
      __builtin_trap();
    }
  }
  if (end != data_bytes) __builtin_trap();
  return 0;
}
