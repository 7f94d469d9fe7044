#include "gemmill/runtime/schedule/device_memory.h"

#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
// A CUDA context with the kernels of the libraries, about.
constexpr int64_t kContextBytes = 512 * kMib;

struct Gpu {
  const char* name;
  int64_t mib;            // "memory.total" as nvidia-smi reports it
  int64_t workspace_mib;  // cuBLAS documentation, "cublasSetWorkspace": 32 MiB from Hopper on, 4 MiB before
};

// SXM boards: A100 80GB, H100 80GB, H200 141GB, B200.
constexpr Gpu kGpus[] = {{"a100", 81920, 4}, {"h100", 81559, 32}, {"h200", 143771, 32}, {"b200", 183359, 32}};

}  // namespace

absl::StatusOr<DeviceMemory> DeviceMemoryOf(absl::string_view device) {
  for (const Gpu& gpu : kGpus) {
    if (device == gpu.name) return DeviceMemory{gpu.mib * kMib - kContextBytes, gpu.workspace_mib * kMib};
  }
  return InvalidArgument("\"", device, "\" is no GPU of the table");
}

}  // namespace gemmill
