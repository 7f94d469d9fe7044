#include "gemmill/examples/run_log.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_format.h"
#include "gemmill/runtime/status.h"
#include "nlohmann/json.hpp"

namespace gemmill::examples {

std::string Count(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

namespace {

// Removes what a killed run left of its last line.
void DropHalfLine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty() || text.back() == '\n') return;
  std::error_code ignored;
  std::filesystem::resize_file(path, text.rfind('\n') + 1, ignored);
}

}  // namespace

absl::StatusOr<RunLog> RunLog::Open(const std::string& path, bool append) {
  RunLog log;
  log.path_ = path;
  log.terminal_ = isatty(STDOUT_FILENO) == 1;
  if (!path.empty()) {
    if (append && std::filesystem::is_regular_file(path)) DropHalfLine(path);
    log.file_.open(path, append ? std::ios::app : std::ios::out);
    if (!log.file_) return InvalidArgument("--metrics: cannot write ", path);
  }
  return log;
}

absl::Status RunLog::WriteLine(const std::string& line) {
  if (path_.empty()) return absl::OkStatus();
  file_ << line << "\n" << std::flush;
  if (!file_) return absl::DataLossError(absl::StrCat("cannot write ", path_, "; is the disk full?"));
  return absl::OkStatus();
}

absl::Status RunLog::Step(const StepReport& report, int64_t epoch, int64_t steps_in_all) {
  if (!report.note.empty()) absl::PrintF("%s\n", report.note);
  if (report.skipped) absl::PrintF("step after %d skipped: its loss or gradients were not finite\n", report.step);
  const auto now = std::chrono::steady_clock::now();
  if (terminal_ && now - last_drawn_ > std::chrono::milliseconds(100)) {
    last_drawn_ = now;
    absl::PrintF("\r\033[Kstep %d/%d  epoch %d  loss %.4f  %.0f samples/s", report.step, steps_in_all, epoch,
                 report.loss, report.samples_per_second);
    std::fflush(stdout);
  }
  nlohmann::json line = {{"step", report.step},
                         {"epoch", epoch},
                         {"loss", report.loss},
                         {"learning_rate", report.learning_rate},
                         {"gradient_norm", report.gradient_norm},
                         {"samples_per_s", report.samples_per_second}};
  if (report.skipped) line["skipped"] = true;
  return WriteLine(line.dump());
}

absl::Status RunLog::Plan(const PlanEvent& event) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  absl::PrintF(
      "%sstep %d  micro-batch %d: %s; memory predicted %.2f MiB, measured %.2f, budget %.1f; up to %d would fit; "
      "decided "
      "in %.1f ms\n",
      terminal_ ? "\r\033[K" : "", event.step, event.micro_batch, event.reason, mib(event.predicted_bytes),
      mib(event.measured_bytes), mib(event.budget_bytes), event.max_micro_batch, event.decide_seconds * 1e3);
  std::fflush(stdout);
  const nlohmann::json line = {{"event", "plan"},
                               {"step", event.step},
                               {"micro_batch", event.micro_batch},
                               {"predicted_bytes", event.predicted_bytes},
                               {"measured_bytes", event.measured_bytes},
                               {"resident_bytes", event.resident_bytes},
                               {"budget_bytes", event.budget_bytes},
                               {"max_micro_batch", event.max_micro_batch},
                               {"reason", event.reason}};
  return WriteLine(line.dump());
}

absl::Status RunLog::Experts(const std::vector<MoeStatistics>& layers, int64_t step) {
  nlohmann::json line = {{"event", "experts"}, {"step", step}};
  for (const MoeStatistics& layer : layers) {
    line["tokens"].push_back(layer.tokens);
    line["tokens_per_expert"].push_back(layer.tokens_per_expert);
    line["kept_per_expert"].push_back(layer.kept_per_expert);
    line["max_violation"].push_back(layer.max_violation);
    line["load_entropy"].push_back(layer.load_entropy);
    line["dead_experts"].push_back(layer.dead_experts);
    line["dropped_share"].push_back(layer.dropped_share);
    line["router_entropy"].push_back(layer.router_entropy);
    line["balance_loss"].push_back(layer.balance_loss);
    line["scaled_balance_loss"].push_back(layer.scaled_balance_loss);
    line["z_loss"].push_back(layer.z_loss);
    line["scaled_z_loss"].push_back(layer.scaled_z_loss);
  }
  return WriteLine(line.dump());
}

absl::Status RunLog::Evaluated(const Evaluation& evaluation, int64_t step, int64_t epoch, int64_t epochs,
                               double train_loss, double samples_per_second) {
  absl::PrintF("%sepoch %d/%d  step %d  train loss %.4f  test loss %.4f  accuracy %.4f  %.0f samples/s\n",
               terminal_ ? "\r\033[K" : "", epoch, epochs, step, train_loss, evaluation.loss,
               evaluation.accuracy.value_or(0), samples_per_second);
  std::fflush(stdout);
  const nlohmann::json line = {{"event", "evaluation"},
                               {"step", step},
                               {"epoch", epoch},
                               {"loss", evaluation.loss},
                               {"accuracy", evaluation.accuracy.value_or(0)},
                               {"samples", evaluation.samples}};
  return WriteLine(line.dump());
}

}  // namespace gemmill::examples
