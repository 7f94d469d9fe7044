// Bytes of a device: taking, giving back, and copying to and from the host. The one place where a device's kind chooses
// the code that touches its memory; kernels are chosen in execute.cc.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/runtime/spec.h"

namespace gemmill {

inline constexpr int64_t kAlignment = 64;

// At least `bytes` bytes, aligned to kAlignment; ResourceExhausted when there are none. Never null, even for 0 bytes.
absl::StatusOr<void*> AllocateBytes(int64_t bytes, Device device);
void FreeBytes(void* data, int64_t bytes, Device device);

absl::Status CopyFromHost(const void* host, void* data, int64_t bytes, Device device);
absl::Status CopyToHost(const void* data, void* host, int64_t bytes, Device device);
absl::Status CopyOnDevice(const void* source, void* destination, int64_t bytes, Device device);

// What Gemmill's tensors hold on the device now, and the most since the last ResetPeakBytes.
int64_t BytesInUse(Device device);
int64_t PeakBytes(Device device);
void ResetPeakBytes(Device device);

}  // namespace gemmill
