#include "gemmill/runtime/stream.h"

namespace gemmill {

Stream& Stream::Default(Device device) {
  thread_local Stream cpu(Device::Cpu());
  if (device.kind == Device::Kind::kCpu) return cpu;
  thread_local Stream cuda(device);
  cuda.device_ = device;
  return cuda;
}

absl::Status Stream::Synchronize() { return absl::OkStatus(); }

}  // namespace gemmill
