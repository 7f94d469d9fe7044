// Profile: how long each Step takes, over any number of runs.
//
//   Profile profile;
//   trainer.SetWatch(profile.Watch());
//   ... steps ...
//   std::cout << profile.Table();
//   GM_RETURN_IF_ERROR(profile.Write("profile.json"));  // opens in Perfetto (ui.perfetto.dev) and chrome://tracing
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gemmill/runtime/cost.h"
#include "gemmill/runtime/replay.h"

namespace gemmill {

class Profile {
 public:
  // Keeps the last `most_events` Steps that ran, each by itself, for the trace; the table is of all.
  explicit Profile(size_t most_events = 4096) : most_events_(most_events) {}
  Profile(const Profile&) = delete;  // watches point to it
  Profile& operator=(const Profile&) = delete;

  // For Replay::SetWatch and Trainer::SetWatch. The profile, and the Programs that it watches, must outlive its use.
  Replay::Watch Watch();
  // A Step that has just ended.
  void Add(const Program& program, size_t step, double seconds);

  // A Step; those of several Programs that are alike in op, origin and specs (the first micro-batch and the later ones)
  // are one row.
  struct Row {
    std::string name;    // "MatMul"
    std::string shapes;  // "(f32[64, 784], f32[512, 784]) -> f32[64, 512]"
    Origin origin;
    OpCost cost;  // of one run
    int64_t count = 0;
    double seconds = 0;  // of all runs

    double flops_per_second() const;
    double bytes_per_second() const;
  };
  // Longest in all first.
  std::vector<Row> Rows() const;
  double seconds() const;  // of all rows

  // Rows with their share of the time and rates.
  std::string Table(size_t most_rows = 20) const;
  // Chrome's trace event format: complete events, with layer, role, shapes and line as arguments.
  std::string TraceJson() const;
  absl::Status Write(const std::string& path) const;  // TraceJson

 private:
  struct Event {
    size_t row = 0;
    double start = 0;  // seconds since the profile was made
    double seconds = 0;
  };
  const std::vector<size_t>& RowsOf(const Program& program);

  size_t most_events_;
  std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
  std::vector<Row> rows_;
  std::map<std::string, size_t> by_text_;
  std::map<const Program*, std::vector<size_t>> by_program_;  // the row of each Step
  std::vector<Event> events_;                                 // a ring
  size_t next_event_ = 0;
};

}  // namespace gemmill
