// Bytes of a device: taking, giving back, and copying to and from the host. The one place where a device's kind chooses
// the code that touches its memory; kernels are chosen in execute.cc.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/runtime/spec.h"

namespace gemmill {

inline constexpr int64_t kAlignment = 64;

// ResourceExhausted if the device cannot have `bytes` more beside what is in use: its system may hand out more than it
// has, and end the process that then uses it.
absl::Status CheckFits(int64_t bytes, Device device);

// At least `bytes` bytes, aligned to kAlignment; ResourceExhausted when there are none. Never null, even for 0 bytes.
absl::StatusOr<void*> AllocateBytes(int64_t bytes, Device device);
void FreeBytes(void* data, int64_t bytes, Device device);
// Addresses of `bytes` zeros that are not counted and take memory only when they are written: to record and plan models
// that this machine could not hold. On the CPU alone.
absl::StatusOr<void*> ReserveBytes(int64_t bytes, Device device);
void UnreserveBytes(void* data, int64_t bytes, Device device);

absl::Status CopyFromHost(const void* host, void* data, int64_t bytes, Device device);
absl::Status CopyToHost(const void* data, void* host, int64_t bytes, Device device);
absl::Status CopyOnDevice(const void* source, void* destination, int64_t bytes, Device device);

// What the device has in all; for the CPU, of memory and swap, what this process may use.
int64_t TotalBytes(Device device);
// What Gemmill's tensors hold on the device now, and the most since the last ResetPeakBytes.
int64_t BytesInUse(Device device);
int64_t PeakBytes(Device device);
void ResetPeakBytes(Device device);

}  // namespace gemmill
