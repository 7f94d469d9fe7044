// MicroBatchChoice: which micro-batch a step runs with, from what each would need and take.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmill {

// The sizes that are considered for global batches of `global_batch` samples, ascending: powers of two, and the global
// batch divided by 1 to 8 (rounded up), so that Programs and primitives stay few. The global batch is the last.
std::vector<int64_t> MicroBatchLadder(int64_t global_batch);

// Of a step in micro-batches of one size.
struct StepPrediction {
  int64_t bytes = 0;   // all that it needs at its peak
  double seconds = 0;  // by the cost model
};

struct MicroBatchChoice {
  int64_t micro_batch = 0;
  int64_t max_micro_batch = 0;  // the largest of the ladder such that it and all smaller ones fit
  int64_t predicted_bytes = 0;  // of micro_batch
};

// Deterministic: of the sizes that fit, the one predicted fastest, and of those within 2% of it the largest.
class MicroBatchChooser {
 public:
  // Asked once for each size.
  using Predict = std::function<absl::StatusOr<StepPrediction>(int64_t micro_batch)>;

  // `exact` is asked for what is chosen and for the largest that fits, where `predict`, for all of the ladder, is a
  // faster way that could err; as soon as it is found to, `exact` takes its place.
  MicroBatchChooser(int64_t global_batch, Predict predict, Predict exact = nullptr);

  const std::vector<int64_t>& ladder() const { return ladder_; }
  absl::StatusOr<StepPrediction> At(int64_t micro_batch);
  absl::StatusOr<StepPrediction> Exactly(int64_t micro_batch);

  // With sizes up to `most`; micro_batch is 0 where none fits into `usable_bytes`.
  absl::StatusOr<MicroBatchChoice> Choose(int64_t usable_bytes, int64_t most = INT64_MAX);
  // The next smaller size of the ladder; 0 where there is none.
  int64_t Below(int64_t micro_batch) const;

 private:
  absl::StatusOr<MicroBatchChoice> ChooseByPrediction(int64_t usable_bytes, int64_t most);

  std::vector<int64_t> ladder_;
  Predict predict_;
  Predict exact_;  // empty: what `predict_` says is exact
  std::map<int64_t, StepPrediction> known_;
  std::map<int64_t, StepPrediction> exactly_known_;
  // The last answer: budgets seldom change.
  std::pair<int64_t, int64_t> asked_ = {-1, -1};
  MicroBatchChoice answer_;
};

}  // namespace gemmill
