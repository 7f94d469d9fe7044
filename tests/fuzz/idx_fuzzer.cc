// libFuzzer on ParseIdx: no bytes may crash it, or make it take memory that they do not back.
#include <cstddef>
#include <cstdint>

#include "gemmill/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<gemmill::Tensor> tensor = gemmill::ParseIdx(bytes, "fuzz");
  // What is accepted must be whole.
  if (tensor.ok() && (tensor->num_elements() < 1 || !tensor->ToDoubles().ok())) __builtin_trap();
  return 0;
}
