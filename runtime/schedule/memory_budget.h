// MemoryBudget: how many bytes training may use, now. The least of what the device has left and of what the user says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/runtime/spec.h"

namespace gemmill {

class MemoryBudget {
 public:
  // Nothing said: what the device has left.
  MemoryBudget() = default;
  // "80GiB", "512MB", "50%" (of all the memory that the device has), or "@FILE", a file that holds one of these and is
  // read again for every reading; an empty text: nothing said. A file that cannot be read now is an error here.
  static absl::StatusOr<MemoryBudget> Parse(absl::string_view text, Device device = {});
  // From a function that is asked for every reading, on the thread that trains.
  static MemoryBudget From(std::function<absl::StatusOr<int64_t>()> bytes);

  // Whether somebody said something.
  bool stated() const { return ask_ != nullptr; }

  // The budget of an owner that holds `held` bytes already. What the device has left is looked up at most every 100 ms,
  // as that takes longer than a small model's step; what the user says is asked for each time. Of a source that fails
  // the last answer stays. `ranks` processes or threads share what the device has left.
  int64_t Read(Device device, int64_t held, int64_t ranks = 1);

  // Once for each time that the source begins to fail: what is wrong with it; else empty.
  std::string TakeNote();

 private:
  std::function<absl::StatusOr<int64_t>()> ask_;
  int64_t last_ = 0;
  bool failing_ = false;
  std::string note_;
  double looked_at_ = -1;  // seconds
  int64_t available_ = 0;  // beyond what was held then
  int64_t held_then_ = 0;
};

// The share of a budget that plans leave free, for what nobody plans: min(5%, 256 MiB).
int64_t MemoryReserve(int64_t budget_bytes);

}  // namespace gemmill
