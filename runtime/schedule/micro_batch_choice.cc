#include "gemmill/runtime/schedule/micro_batch_choice.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr int64_t kMostParts = 8;
constexpr double kAsFast = 1.02;

}  // namespace

std::vector<int64_t> MicroBatchLadder(int64_t global_batch) {
  std::set<int64_t> sizes;
  for (int64_t size = 1; size <= global_batch; size *= 2) {
    sizes.insert(size);
    if (size > global_batch / 2) break;
  }
  for (int64_t parts = 1; parts <= std::min(kMostParts, global_batch); ++parts) {
    sizes.insert(global_batch / parts + (global_batch % parts > 0 ? 1 : 0));
  }
  return {sizes.begin(), sizes.end()};
}

MicroBatchChooser::MicroBatchChooser(int64_t global_batch, Predict predict, Predict exact)
    : ladder_(MicroBatchLadder(global_batch)), predict_(std::move(predict)), exact_(std::move(exact)) {}

absl::StatusOr<StepPrediction> MicroBatchChooser::At(int64_t micro_batch) {
  const auto found = known_.find(micro_batch);
  if (found != known_.end()) return found->second;
  GM_ASSIGN_OR_RETURN(const StepPrediction prediction, predict_(micro_batch));
  known_.emplace(micro_batch, prediction);
  return prediction;
}

absl::StatusOr<StepPrediction> MicroBatchChooser::Exactly(int64_t micro_batch) {
  if (exact_ == nullptr) return At(micro_batch);
  auto found = exactly_known_.find(micro_batch);
  if (found == exactly_known_.end()) {
    GM_ASSIGN_OR_RETURN(const StepPrediction prediction, exact_(micro_batch));
    found = exactly_known_.emplace(micro_batch, prediction).first;
  }
  const StepPrediction exact = found->second;
  const auto predicted = known_.find(micro_batch);
  if (predicted != known_.end() && predicted->second.bytes != exact.bytes) {
    predict_ = std::exchange(exact_, nullptr);
    known_ = std::exchange(exactly_known_, {});
  }
  return exact;
}

absl::StatusOr<MicroBatchChoice> MicroBatchChooser::Choose(int64_t usable_bytes, int64_t most) {
  if (asked_ == std::pair(usable_bytes, most)) return answer_;
  while (true) {
    const bool is_exact = exact_ == nullptr;
    GM_ASSIGN_OR_RETURN(answer_, ChooseByPrediction(usable_bytes, most));
    for (const int64_t size : {answer_.micro_batch, answer_.max_micro_batch}) {
      if (size > 0) GM_RETURN_IF_ERROR(Exactly(size).status());
    }
    if (is_exact || exact_ != nullptr) break;
  }
  asked_ = {usable_bytes, most};
  return answer_;
}

absl::StatusOr<MicroBatchChoice> MicroBatchChooser::ChooseByPrediction(int64_t usable_bytes, int64_t most) {
  MicroBatchChoice choice;
  double best = 0;
  std::vector<std::pair<int64_t, StepPrediction>> fitting;
  for (const int64_t size : ladder_) {
    GM_ASSIGN_OR_RETURN(const StepPrediction prediction, At(size));
    if (prediction.bytes > usable_bytes) break;
    choice.max_micro_batch = size;
    if (size > most) continue;
    fitting.emplace_back(size, prediction);
    best = fitting.size() == 1 ? prediction.seconds : std::min(best, prediction.seconds);
  }
  for (const auto& [size, prediction] : fitting) {
    if (prediction.seconds > kAsFast * best) continue;
    choice.micro_batch = size;
    choice.predicted_bytes = prediction.bytes;
  }
  return choice;
}

int64_t MicroBatchChooser::Below(int64_t micro_batch) const {
  const auto at = std::lower_bound(ladder_.begin(), ladder_.end(), micro_batch);
  return at == ladder_.begin() ? 0 : *(at - 1);
}

}  // namespace gemmill
