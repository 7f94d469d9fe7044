// Bytes of a device: taking, giving back, and copying to and from the host. The one place where a device's kind chooses
// the code that touches its memory; kernels are chosen in execute.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

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

// What this process could still take on the device without pushing anybody out: of the CPU, the system's available
// memory, or what its cgroup leaves.
int64_t AvailableBytes(Device device);
// What the process holds of the machine's memory now, as its system counts it.
int64_t ResidentBytes();
// Gives blocks that are kept for later allocations back to the system.
void ReleaseKeptBytes(Device device);

// What one owner's Buffers hold, whatever else the process has.
class MemoryAccount {
 public:
  int64_t in_use() const { return in_use_; }
  int64_t peak() const { return peak_; }  // the most since the last ResetPeak
  void ResetPeak() { peak_ = in_use_.load(); }
  void Add(int64_t bytes);
  void Subtract(int64_t bytes) { in_use_ -= bytes; }

 private:
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
};

// While it lives, Buffers that this thread allocates count to `account` until they are freed; with null, to none.
class MemoryAccountScope {
 public:
  explicit MemoryAccountScope(std::shared_ptr<MemoryAccount> account);
  ~MemoryAccountScope();
  MemoryAccountScope(const MemoryAccountScope&) = delete;
  MemoryAccountScope& operator=(const MemoryAccountScope&) = delete;
  static const std::shared_ptr<MemoryAccount>& Current();

 private:
  std::shared_ptr<MemoryAccount> before_;
};

// For tests: asked before each allocation, which fails where it returns false. An empty function: none. Not to be
// called while other threads allocate.
void SetAllocationFilter(std::function<bool(int64_t bytes)> filter);

}  // namespace gemmill
