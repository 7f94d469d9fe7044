// Stream: the order in which a device executes. Work given to one stream runs in the order given; nothing is promised
// to be done before Synchronize returns. On the CPU each op is done when Execute returns, and Synchronize has nothing
// left to do.
#pragma once

#include "absl/status/status.h"
#include "gemmill/runtime/spec.h"

namespace gemmill {

class Stream {
 public:
  explicit Stream(Device device = {}) : device_(device) {}

  // This thread's stream of `device`.
  static Stream& Default(Device device);

  Device device() const { return device_; }
  // Waits for all work given so far. An error of that work sticks to the stream and is returned here.
  absl::Status Synchronize();

 private:
  Device device_;
};

}  // namespace gemmill
