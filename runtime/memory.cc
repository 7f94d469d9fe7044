#include "gemmill/runtime/memory.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "gemmill/runtime/cpu/memory.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr int kDevices = 17;  // the CPU and up to 16 GPUs of one process
std::atomic<int64_t> in_use[kDevices];
std::atomic<int64_t> peak[kDevices];
thread_local std::shared_ptr<MemoryAccount> current_account;

std::function<bool(int64_t)>& AllocationFilter() {
  static auto& filter = *new std::function<bool(int64_t)>;
  return filter;
}

void RaiseTo(std::atomic<int64_t>& most, int64_t now) {
  int64_t before = most.load();
  while (before < now && !most.compare_exchange_weak(before, now)) {
  }
}

size_t Slot(Device device) {
  return device.kind == Device::Kind::kCpu ? 0 : static_cast<size_t>(std::min(device.index + 1, kDevices - 1));
}

absl::Status NoMemory(Device device) {
  return absl::UnimplementedError(absl::StrCat("device ", device.ToString(), " has no memory in this build"));
}

absl::Status Exhausted(int64_t bytes, Device device) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes on ", device.ToString(),
                                                   ", which has ", TotalBytes(device), " in all, ", BytesInUse(device),
                                                   " of them in use"));
}

}  // namespace

absl::Status CheckFits(int64_t bytes, Device device) {
  if (bytes <= TotalBytes(device) - BytesInUse(device)) return absl::OkStatus();
  return Exhausted(bytes, device);
}

absl::StatusOr<void*> AllocateBytes(int64_t bytes, Device device) {
  if (device.kind != Device::Kind::kCpu) return NoMemory(device);
  GM_RETURN_IF_ERROR(CheckFits(bytes, device));
  if (AllocationFilter() && !AllocationFilter()(bytes)) return Exhausted(bytes, device);
  void* data = cpu::Allocate(bytes);
  if (data == nullptr) return Exhausted(bytes, device);
  const size_t slot = Slot(device);
  RaiseTo(peak[slot], in_use[slot].fetch_add(bytes) + bytes);
  return data;
}

void FreeBytes(void* data, int64_t bytes, Device device) {
  if (data == nullptr) return;
  in_use[Slot(device)] -= bytes;
  if (device.kind == Device::Kind::kCpu) cpu::Free(data, bytes);
}

absl::StatusOr<void*> ReserveBytes(int64_t bytes, Device device) {
  if (device.kind != Device::Kind::kCpu) return NoMemory(device);
  void* data = cpu::Reserve(bytes);
  if (data != nullptr) return data;
  return absl::ResourceExhaustedError(absl::StrCat("no addresses for ", bytes, " bytes on ", device.ToString()));
}

void UnreserveBytes(void* data, int64_t bytes, Device device) {
  if (device.kind == Device::Kind::kCpu) cpu::Unreserve(data, bytes);
}

absl::Status CopyFromHost(const void* host, void* data, int64_t bytes, Device device) {
  if (device.kind != Device::Kind::kCpu) return NoMemory(device);
  cpu::Copy(host, data, bytes);
  return absl::OkStatus();
}

absl::Status CopyToHost(const void* data, void* host, int64_t bytes, Device device) {
  if (device.kind != Device::Kind::kCpu) return NoMemory(device);
  cpu::Copy(data, host, bytes);
  return absl::OkStatus();
}

absl::Status CopyOnDevice(const void* source, void* destination, int64_t bytes, Device device) {
  if (device.kind != Device::Kind::kCpu) return NoMemory(device);
  cpu::Copy(source, destination, bytes);
  return absl::OkStatus();
}

int64_t TotalBytes(Device device) {
  return device.kind == Device::Kind::kCpu ? cpu::TotalBytes() : std::numeric_limits<int64_t>::max();
}
int64_t BytesInUse(Device device) { return in_use[Slot(device)]; }
int64_t PeakBytes(Device device) { return peak[Slot(device)]; }
void ResetPeakBytes(Device device) { peak[Slot(device)] = in_use[Slot(device)].load(); }

int64_t AvailableBytes(Device device) {
  return device.kind == Device::Kind::kCpu ? cpu::AvailableBytes() : std::numeric_limits<int64_t>::max();
}
int64_t ResidentBytes() { return cpu::ResidentBytes(); }
void ReleaseKeptBytes(Device device) {
  if (device.kind == Device::Kind::kCpu) cpu::ReleaseKept();
}

void MemoryAccount::Add(int64_t bytes) { RaiseTo(peak_, in_use_.fetch_add(bytes) + bytes); }

MemoryAccountScope::MemoryAccountScope(std::shared_ptr<MemoryAccount> account)
    : before_(std::exchange(current_account, std::move(account))) {}
MemoryAccountScope::~MemoryAccountScope() { current_account = std::move(before_); }
const std::shared_ptr<MemoryAccount>& MemoryAccountScope::Current() { return current_account; }

void SetAllocationFilter(std::function<bool(int64_t bytes)> filter) { AllocationFilter() = std::move(filter); }

}  // namespace gemmill
