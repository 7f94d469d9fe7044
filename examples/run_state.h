// What a training run carries from checkpoint to checkpoint beside flags, weights and position, and the hash by which
// two runs can be told to be the same.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

// FNV-1a of 64 bits: the same in every build and on every machine.
inline constexpr uint64_t kHashStart = 0xcbf29ce484222325;
uint64_t Hash(absl::string_view bytes, uint64_t hash = kHashStart);
// Of every field's name, spec and bytes.
absl::StatusOr<uint64_t> HashOf(const Dataset& dataset);
// Of all parameters, on top of `hash`.
absl::StatusOr<uint64_t> HashOf(const Module& model, uint64_t hash);

struct RunState {
  uint64_t data_hash = 0;
  int64_t schedule_first = 0;  // the step at which the schedule began
  int64_t schedule_steps = 0;  // and how many it is made for
  uint64_t loss_hash = kHashStart;

  void AddLoss(double loss) { loss_hash = Hash({reinterpret_cast<const char*>(&loss), sizeof(loss)}, loss_hash); }
  std::string Text() const;
  static absl::StatusOr<RunState> Parse(const std::string& text);
};

}  // namespace gemmill::examples
