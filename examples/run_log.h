// What a training run tells: a JSON line per step and event in a file, and its progress on standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/layers/training/trainer.h"

namespace gemmill::examples {

class RunLog {
 public:
  // `path` of the metrics file; empty: none.
  static absl::StatusOr<RunLog> Open(const std::string& path);

  // {"step", "epoch", "loss", "learning_rate", "gradient_norm", "samples_per_s"}, and "skipped" where it was.
  // On a terminal, a line of progress that is written over.
  absl::Status Step(const StepReport& report, int64_t epoch, int64_t steps_in_all);
  // {"event": "plan", "step", "micro_batch", "predicted_bytes", "measured_bytes", "resident_bytes", "budget_bytes",
  // "max_micro_batch", "reason"}, and a line.
  absl::Status Plan(const PlanEvent& event);
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
