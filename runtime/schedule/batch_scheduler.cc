#include "gemmill/runtime/schedule/batch_scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "gemmill/runtime/schedule/memory_budget.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr int kTimedSteps = 4;        // of each size; the first makes what the size needs and does not count
constexpr size_t kMostTimed = 6;      // sizes
constexpr double kWorthTiming = 1.5;  // times the best prediction
constexpr double kAsFast = 1.02;

std::string Mib(int64_t bytes) { return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

BatchScheduler::BatchScheduler(MicroBatchChooser chooser, const BatchSchedulerOptions& options)
    : chooser_(std::move(chooser)), options_(options) {}

absl::StatusOr<std::optional<BatchDecision>> BatchScheduler::Take(int64_t micro_batch, std::string reason) {
  GM_ASSIGN_OR_RETURN(const StepPrediction prediction, chooser_.Exactly(micro_batch));
  current_.micro_batch = micro_batch;
  current_.predicted_bytes = prediction.bytes;
  current_.reason = std::move(reason);
  streak_ = 0;
  return current_;
}

absl::StatusOr<std::optional<BatchDecision>> BatchScheduler::First(int64_t budget_bytes) {
  const int64_t usable = budget_bytes - MemoryReserve(budget_bytes);
  const bool fixed = options_.fixed > 0;
  MicroBatchChoice choice;
  if (!fixed || options_.find_most) {
    GM_ASSIGN_OR_RETURN(choice, chooser_.Choose(usable));
  }
  current_.max_micro_batch = choice.max_micro_batch;
  if (fixed) {
    GM_ASSIGN_OR_RETURN(const StepPrediction prediction, chooser_.Exactly(options_.fixed));
    if (options_.refuse && prediction.bytes > budget_bytes) {
      GM_ASSIGN_OR_RETURN(choice, chooser_.Choose(usable));
      return absl::ResourceExhaustedError(absl::StrCat(
          "a micro-batch of ", options_.fixed, " needs ", prediction.bytes, " bytes of memory, and the budget is ",
          budget_bytes, ". ",
          choice.max_micro_batch > 0 ? absl::StrCat("A micro-batch of ", choice.max_micro_batch, " fits, or auto")
                                     : "No micro-batch fits; raise the budget"));
    }
    return Take(options_.fixed, "as asked for");
  }
  if (choice.micro_batch == 0) {
    GM_ASSIGN_OR_RETURN(const StepPrediction one, chooser_.Exactly(1));
    return absl::ResourceExhaustedError(absl::StrCat("not even a micro-batch of one sample fits into memory: it needs ",
                                                     one.bytes, " bytes, and of the budget of ", budget_bytes,
                                                     " there are ", usable, " beside the reserve"));
  }
  if (options_.resumed > 0) {
    GM_ASSIGN_OR_RETURN(const StepPrediction resumed, chooser_.Exactly(options_.resumed));
    if (resumed.bytes <= budget_bytes) return Take(options_.resumed, "as in the run that is resumed");
  }
  if (options_.tune) {
    GM_RETURN_IF_ERROR(StartTuning(usable));
    if (timed_.size() > 1) return NextTimed(budget_bytes);
  }
  return Take(choice.micro_batch, absl::StrFormat("predicted fastest of those that fit into %s", Mib(usable)));
}

absl::StatusOr<std::optional<BatchDecision>> BatchScheduler::Next(int64_t budget_bytes) {
  const bool first = current_.micro_batch == 0;
  current_.budget_bytes = budget_bytes;
  if (first) return First(budget_bytes);
  if (options_.fixed > 0) return std::nullopt;
  const int64_t usable = budget_bytes - MemoryReserve(budget_bytes);
  if (current_.predicted_bytes > budget_bytes) {
    timed_.clear();
    GM_ASSIGN_OR_RETURN(const MicroBatchChoice choice, chooser_.Choose(usable, current_.micro_batch));
    current_.max_micro_batch = choice.max_micro_batch;
    streak_ = 0;
    const int64_t smallest = chooser_.ladder().front();
    if (choice.micro_batch == 0 && current_.micro_batch == smallest) return std::nullopt;
    if (choice.micro_batch == 0) {
      return Take(smallest, absl::StrFormat("the budget fell to %s, less than any size needs: the smallest goes on",
                                            Mib(budget_bytes)));
    }
    return Take(choice.micro_batch, absl::StrFormat("shrunk: the budget fell to %s", Mib(budget_bytes)));
  }
  if (!timed_.empty()) return NextTimed(budget_bytes);
  GM_ASSIGN_OR_RETURN(const MicroBatchChoice choice, chooser_.Choose(usable));
  current_.max_micro_batch = choice.max_micro_batch;
  GM_ASSIGN_OR_RETURN(const int64_t best, Best(usable));
  if (best <= current_.micro_batch) {
    streak_ = 0;
    return std::nullopt;
  }
  least_usable_ = streak_ == 0 ? usable : std::min(least_usable_, usable);
  if (++streak_ < grow_after_) return std::nullopt;
  const int steps = std::exchange(grow_after_, kGrowAfter);
  GM_ASSIGN_OR_RETURN(const int64_t larger, Best(least_usable_));
  return Take(larger, absl::StrFormat("grown: for %d steps there was room, %s or more", steps, Mib(least_usable_)));
}

absl::StatusOr<int64_t> BatchScheduler::Best(int64_t usable_bytes) {
  if (timed_fastest_ > 0) {
    GM_ASSIGN_OR_RETURN(const StepPrediction timed, chooser_.At(timed_fastest_));
    if (timed.bytes <= usable_bytes) return timed_fastest_;
  }
  GM_ASSIGN_OR_RETURN(const MicroBatchChoice choice,
                      chooser_.Choose(usable_bytes, timed_fastest_ > 0 ? timed_fastest_ : INT64_MAX));
  return choice.micro_batch;
}

absl::StatusOr<std::optional<BatchDecision>> BatchScheduler::AfterFailedAllocation() {
  const int64_t smaller = options_.fixed > 0 ? 0 : chooser_.Below(current_.micro_batch);
  if (smaller == 0) return std::nullopt;
  timed_.clear();
  grow_after_ = kGrowAfterFailure;
  return Take(smaller,
              absl::StrFormat("shrunk: memory for a micro-batch of %d could not be had", current_.micro_batch));
}

absl::Status BatchScheduler::StartTuning(int64_t usable_bytes) {
  std::vector<std::pair<double, int64_t>> fastest;
  for (const int64_t size : chooser_.ladder()) {
    GM_ASSIGN_OR_RETURN(const StepPrediction prediction, chooser_.At(size));
    if (prediction.bytes > usable_bytes) break;
    fastest.emplace_back(prediction.seconds, -size);  // of equal ones the larger first
  }
  std::sort(fastest.begin(), fastest.end());
  for (const auto& [seconds, minus_size] : fastest) {
    if (timed_.size() == kMostTimed || seconds > kWorthTiming * fastest.front().first) break;
    timed_.push_back({-minus_size, std::numeric_limits<double>::infinity(), 0});
  }
  now_timed_ = timed_.size() - 1;
  return absl::OkStatus();
}

// Around the sizes, a step each, so that what else the machine does meets all of them alike.
absl::StatusOr<std::optional<BatchDecision>> BatchScheduler::NextTimed(int64_t budget_bytes) {
  for (size_t tried = 0; tried < timed_.size(); ++tried) {
    now_timed_ = (now_timed_ + 1) % timed_.size();
    const Timed& next = timed_[now_timed_];
    GM_ASSIGN_OR_RETURN(const StepPrediction prediction, chooser_.At(next.micro_batch));
    if (next.steps >= kTimedSteps || prediction.bytes > budget_bytes) continue;
    return Take(next.micro_batch, absl::StrFormat("timing %d sizes on real steps", timed_.size()));
  }
  double best = std::numeric_limits<double>::infinity();
  for (const Timed& size : timed_) best = std::min(best, size.best);
  int64_t chosen = 0;
  for (const Timed& size : timed_) {
    if (size.steps > 1 && size.best <= kAsFast * best) chosen = std::max(chosen, size.micro_batch);
  }
  if (chosen == 0) chosen = current_.micro_batch;
  std::string times;
  for (const Timed& size : timed_) {
    absl::StrAppendFormat(&times, "%s%d %.0f", times.empty() ? "" : ", ", size.micro_batch, 1 / size.best);
  }
  timed_.clear();
  options_.tune = false;
  timed_fastest_ = chosen;
  return Take(chosen, absl::StrCat("timed fastest; samples/s by size: ", times));
}

void BatchScheduler::Took(double seconds_per_sample) {
  if (timed_.empty()) return;
  Timed& size = timed_[now_timed_];
  if (size.micro_batch != current_.micro_batch) return;
  if (size.steps++ > 0) size.best = std::min(size.best, seconds_per_sample);
}

}  // namespace gemmill
