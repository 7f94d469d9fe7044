// What a training run tells: a JSON line per step and event in a file, and its progress on standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/layers/moe.h"
#include "gemmill/layers/training/trainer.h"

namespace gemmill::examples {

// "1 step", "2 steps".
std::string Count(int64_t count, absl::string_view what);

// A sum over what it is of: a mean, or a rate.
struct Average {
  double sum = 0;
  double weight = 0;

  void Add(double value, double by) {
    sum += value;
    weight += by;
  }
  double value() const { return weight > 0 ? sum / weight : 0; }
};

class RunLog {
 public:
  // `path` of the metrics file; empty: none. With `append`, after the whole lines that are there.
  static absl::StatusOr<RunLog> Open(const std::string& path, bool append = false);

  // {"step", "epoch", "loss", "learning_rate", "gradient_norm", "samples_per_s"}, and "skipped" where it was.
  // On a terminal, a line of progress that is written over.
  absl::Status Step(const StepReport& report, int64_t epoch, int64_t steps_in_all);
  // {"event": "plan", "step", "micro_batch", "predicted_bytes", "measured_bytes", "resident_bytes", "budget_bytes",
  // "max_micro_batch", "reason"}, and a line.
  absl::Status Plan(const PlanEvent& event);
  // {"event": "experts", "step", "tokens_per_expert", "kept_per_expert", "max_violation", "load_entropy",
  // "dead_experts", "dropped_share", "router_entropy", "balance_loss", "scaled_balance_loss", "z_loss",
  // "scaled_z_loss"}, each a list with an entry per layer (MoeStatistics).
  absl::Status Experts(const std::vector<MoeStatistics>& layers, int64_t step);
  // {"event": "evaluation", "step", "epoch", "loss", "accuracy", "samples"}, and a line.
  absl::Status Evaluated(const Evaluation& evaluation, int64_t step, int64_t epoch, int64_t epochs, double train_loss,
                         double samples_per_second);

 private:
  RunLog() = default;
  absl::Status WriteLine(const std::string& line);

  std::string path_;
  std::ofstream file_;
  bool terminal_ = false;
  std::chrono::steady_clock::time_point last_drawn_;
};

}  // namespace gemmill::examples
