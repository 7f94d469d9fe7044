#include "gemmill/runtime/profile.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gemmill/runtime/file.h"
#include "gemmill/runtime/json.h"

namespace gemmill {

double Profile::Row::flops_per_second() const {
  return seconds > 0 ? static_cast<double>(cost.flops) * static_cast<double>(count) / seconds : 0;
}

double Profile::Row::bytes_per_second() const {
  return seconds > 0 ? static_cast<double>(cost.bytes) * static_cast<double>(count) / seconds : 0;
}

Replay::Watch Profile::Watch() {
  return [this](const Program& program, size_t step, double seconds) { Add(program, step, seconds); };
}

const std::vector<size_t>& Profile::RowsOf(const Program& program) {
  std::vector<size_t>& rows = by_program_[&program];
  if (rows.size() == program.steps.size()) return rows;
  rows.clear();
  std::map<std::string, int> seen;  // Steps of one Program that are alike stay apart
  std::vector<Spec> in, out;
  for (const Step& step : program.steps) {
    const std::string text = StepString(program, step);
    const auto [found, is_new] = by_text_.emplace(absl::StrCat(text, " #", seen[text]++), rows_.size());
    rows.push_back(found->second);
    if (!is_new) continue;
    rows_.push_back({.name = OpName(step.op), .shapes = SpecsString(program, step), .origin = step.origin});
    rows_.back().cost = Cost(step.op, program.InputSpecs(step, in), program.OutputSpecs(step, out));
  }
  return rows;
}

void Profile::Add(const Program& program, size_t step, double seconds) {
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - made_).count();
  const size_t row = RowsOf(program)[step];
  ++rows_[row].count;
  rows_[row].seconds += seconds;
  if (most_events_ == 0) return;
  if (events_.size() < most_events_) events_.resize(events_.size() + 1);
  events_[next_event_] = {row, std::max(0.0, now - seconds), seconds};
  next_event_ = (next_event_ + 1) % most_events_;
}

std::vector<Profile::Row> Profile::Rows() const {
  std::vector<Row> rows;
  std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(rows), [](const Row& row) { return row.count > 0; });
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

double Profile::seconds() const {
  double sum = 0;
  for (const Row& row : rows_) sum += row.seconds;
  return sum;
}

std::string Profile::Table(size_t most_rows) const {
  const std::vector<Row> rows = Rows();
  std::string text =
      absl::StrFormat("%8s %10s %7s %10s %9s %8s  step\n", "runs", "total ms", "share", "us a run", "GFLOP/s", "GB/s");
  for (size_t i = 0; i < std::min(most_rows, rows.size()); ++i) {
    const Row& row = rows[i];
    absl::StrAppendFormat(&text, "%8d %10.2f %6.1f%% %10.1f %9.1f %8.1f  %s %s, %s\n", row.count, row.seconds * 1e3,
                          100 * row.seconds / std::max(seconds(), 1e-12),
                          row.seconds * 1e6 / static_cast<double>(row.count), row.flops_per_second() * 1e-9,
                          row.bytes_per_second() * 1e-9, row.name, row.shapes, row.origin.ToString());
  }
  if (rows.size() > most_rows) absl::StrAppendFormat(&text, "         and %d more\n", rows.size() - most_rows);
  return text;
}

std::string Profile::TraceJson() const {
  nlohmann::json events = nlohmann::json::array();
  const size_t oldest = events_.size() < most_events_ ? 0 : next_event_;
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[(oldest + i) % events_.size()];
    const Row& row = rows_[event.row];
    events.push_back({{"name", row.name},
                      {"cat", RoleName(row.origin.role)},
                      {"ph", "X"},
                      {"ts", event.start * 1e6},
                      {"dur", event.seconds * 1e6},
                      {"pid", 1},
                      {"tid", 1},
                      {"args",
                       {{"layer", row.origin.layer},
                        {"role", RoleName(row.origin.role)},
                        {"shapes", row.shapes},
                        {"line", row.origin.caller.ToString()}}}});
  }
  return JsonText({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

absl::Status Profile::Write(const std::string& path) const { return WriteFile(path, TraceJson()); }

}  // namespace gemmill
