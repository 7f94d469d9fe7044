// What a user says of micro-batches, and what the scheduler answers.
#pragma once

#include <cstdint>
#include <string>

namespace gemmill {

// Samples per forward and backward pass: a number (0: the whole global batch), or the scheduler's choice.
struct MicroBatch {
  MicroBatch(int64_t number = 0) : samples(number) {}  // NOLINT(google-explicit-constructor)
  // The fastest that fits into memory, before each step anew (runtime/schedule/batch_scheduler.h).
  static MicroBatch Auto() {
    MicroBatch micro_batch;
    micro_batch.automatic = true;
    return micro_batch;
  }
  operator int64_t() const { return samples; }  // NOLINT(google-explicit-constructor)

  int64_t samples = 0;
  bool automatic = false;
};

// After the first step with a micro-batch.
struct PlanEvent {
  int64_t step = 0;
  int64_t micro_batch = 0;
  int64_t predicted_bytes = 0;
  int64_t measured_bytes = 0;  // the most that this trainer's tensors held since the micro-batch was chosen
  int64_t resident_bytes = 0;  // of the process
  int64_t budget_bytes = 0;
  int64_t max_micro_batch = 0;
  std::string reason;
  double decide_seconds = 0;  // tracing, planning and predicting; making kernels among it
};

}  // namespace gemmill
