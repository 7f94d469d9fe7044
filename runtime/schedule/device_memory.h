// What memory GPUs have, for plans on machines without them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmill {

struct DeviceMemory {
  int64_t total_bytes = 0;           // less what the driver and a context take
  int64_t gemm_workspace_bytes = 0;  // what a GEMM of the vendor's library may ask for
};

// Of the GPUs that RooflineDevices names; "cpu" is none of them.
absl::StatusOr<DeviceMemory> DeviceMemoryOf(absl::string_view device);

}  // namespace gemmill
