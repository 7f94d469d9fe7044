// BatchScheduler: the micro-batch of each step, from the budgets that were read before the steps so far. It decides and
// nothing else: who takes the memory is layers/training's matter.
//
// A budget is `usable` up to its reserve (MemoryReserve). Shrinking is immediate: as soon as the present size needs
// more than the whole budget, the best size of what is usable is taken. Growing waits until a larger size was the
// better one under each of kGrowAfter budgets in a row, and takes the best under the smallest of them; after an
// allocation that failed all the same, under each of kGrowAfterFailure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/runtime/schedule/micro_batch_choice.h"

namespace gemmill {

struct BatchDecision {
  int64_t micro_batch = 0;
  int64_t max_micro_batch = 0;  // 0: not asked for, or nothing fits
  int64_t predicted_bytes = 0;
  int64_t budget_bytes = 0;
  std::string reason;
};

struct BatchSchedulerOptions {
  int64_t fixed = 0;      // the user's own size; 0: the scheduler's
  bool refuse = true;     // a fixed size that the first budget does not hold
  bool find_most = true;  // max_micro_batch of a fixed size, too
  int64_t resumed = 0;    // the size to begin with if it fits, as a run before this one had it
  bool tune = false;      // time sizes on the first steps instead of predicting
};

class BatchScheduler {
 public:
  static constexpr int kGrowAfter = 8;
  static constexpr int kGrowAfterFailure = 64;

  BatchScheduler(MicroBatchChooser chooser, const BatchSchedulerOptions& options);

  // Before a step: what changes, the first time in any case. ResourceExhausted if the first budget holds no sample.
  absl::StatusOr<std::optional<BatchDecision>> Next(int64_t budget_bytes);
  // An allocation failed with the present size: the next smaller one; none where there is none or the size is fixed.
  absl::StatusOr<std::optional<BatchDecision>> AfterFailedAllocation();
  // How long a step took, a sample.
  void Took(double seconds_per_sample);

  const BatchDecision& current() const { return current_; }
  MicroBatchChooser& chooser() { return chooser_; }

 private:
  struct Timed {
    int64_t micro_batch;
    double best;  // seconds a sample
    int steps;
  };

  absl::StatusOr<std::optional<BatchDecision>> First(int64_t budget_bytes);
  absl::StatusOr<std::optional<BatchDecision>> Take(int64_t micro_batch, std::string reason);
  // The best size for growing: what was timed fastest, where it fits.
  absl::StatusOr<int64_t> Best(int64_t usable_bytes);
  absl::Status StartTuning(int64_t usable_bytes);
  absl::StatusOr<std::optional<BatchDecision>> NextTimed(int64_t budget_bytes);

  MicroBatchChooser chooser_;
  BatchSchedulerOptions options_;
  BatchDecision current_;
  // Of growing.
  int grow_after_ = kGrowAfter;
  int streak_ = 0;
  int64_t least_usable_ = 0;
  // Of tuning.
  std::vector<Timed> timed_;
  size_t now_timed_ = 0;
  int64_t timed_fastest_ = 0;
};

}  // namespace gemmill
