// libFuzzer on Safetensors::Open: the bytes are a file, which may be anything.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gemmill/runtime/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, static_cast<off_t>(size)) != 0) __builtin_trap();
  if (pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) __builtin_trap();
  const absl::StatusOr<gemmill::Safetensors> opened = gemmill::Safetensors::Open(path);
  if (!opened.ok()) return 0;
  // What is accepted must be whole.
  int64_t bytes = 0;
  for (const gemmill::SafetensorsEntry& entry : opened->entries()) {
    bytes += entry.bytes;
    const absl::StatusOr<gemmill::Tensor> tensor = opened->Read(entry.name);
    if (tensor.ok() != entry.dtype.has_value()) __builtin_trap();
    if (tensor.ok() && (tensor->shape() != entry.shape || tensor->spec().bytes() != entry.bytes)) __builtin_trap();
  }
  if (bytes > static_cast<int64_t>(size)) __builtin_trap();
  return 0;
}
