// The scheduler's micro-batch beside every other one, in turn in one run.
//   build/tests/benchmarks/micro_batch [--json FILE] [--rounds N]
// takes steps of three MLPs in micro-batches of `auto` and of each fixed size: those of the ladder, and between each
// two of them one more. It prints a table and writes {"models": [{"name", "global_batch", "chosen", "auto_seconds",
// "best", "best_seconds", "ratio", "seconds": {"SIZE": seconds}}]}: medians over the rounds (7), a ratio of auto to the
// best. Sizes that a first round shows to be 1.5 times as slow as the best are not measured further.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gemmill/runtime/file.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/workload.h"

namespace gemmill {
namespace {

constexpr double kHopeless = 1.5;
constexpr double kSecondsPerRound = 0.25;  // of each size, at least

const std::vector<Workload> kModels = {{{784, 128, 10}, 8192, false, 0},
                                       {{784, 512, 512, 10}, 2048, false, 0},
                                       {{1024, 1024, 1024, 1024}, 1024, false, 0}};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// 0 is auto.
struct Candidate {
  int64_t size;
  std::unique_ptr<Training> training;
  std::vector<double> seconds;  // of a step, one per round

  void Round() {
    const double start = Now();
    int steps = 0;
    do {
      training->Step();
      ++steps;
    } while (Now() - start < kSecondsPerRound);
    seconds.push_back((Now() - start) / steps);
  }
};

nlohmann::json Measure(const Workload& workload, int rounds) {
  Check(SetNumThreads(workload.thread_count()));
  std::set<int64_t> sizes = {0};
  int64_t smaller = 0;
  for (const int64_t size : MicroBatchLadder(workload.batch)) {
    if (smaller > 0) sizes.insert((smaller + size) / 2);
    sizes.insert(size);
    smaller = size;
  }
  std::vector<Candidate> candidates;
  double best_so_far = 1e9;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    const MicroBatch micro_batch = *size == 0 ? MicroBatch::Auto() : MicroBatch(*size);
    candidates.push_back({*size, std::make_unique<Training>(workload, micro_batch), {}});
    Candidate& candidate = candidates.back();
    candidate.training->Step();
    const double start = Now();
    candidate.training->Step();
    const double seconds = Now() - start;
    best_so_far = std::min(best_so_far, seconds);
    if (*size > 0 && seconds > kHopeless * best_so_far) {
      candidates.pop_back();
      continue;
    }
    candidate.training->WarmUp();
  }
  for (int round = 0; round < rounds; ++round) {
    for (Candidate& candidate : candidates) candidate.Round();
  }
  nlohmann::json all = nlohmann::json::object();
  const Candidate* best = nullptr;
  double best_seconds = 0;
  for (const Candidate& candidate : candidates) {
    const double median = Median(candidate.seconds);
    if (candidate.size > 0) all[absl::StrCat(candidate.size)] = median;
    if (candidate.size == 0 || (best != nullptr && median >= best_seconds)) continue;
    best = &candidate;
    best_seconds = median;
  }
  const double auto_seconds = Median(candidates[0].seconds);
  const int64_t chosen = candidates[0].training->micro_batch();
  std::printf("%-26s auto: %5ld, %8.3f ms a step; best: %5ld, %8.3f ms; ratio %.3f\n", workload.name().c_str(),
              static_cast<long>(chosen), auto_seconds * 1e3, static_cast<long>(best->size), best_seconds * 1e3,
              auto_seconds / best_seconds);
  for (const Candidate& candidate : candidates) {
    if (candidate.size > 0) {
      std::printf("%8ld %8.3f ms\n", static_cast<long>(candidate.size), Median(candidate.seconds) * 1e3);
    }
  }
  std::fflush(stdout);
  return {{"name", workload.name()},
          {"global_batch", workload.batch},
          {"chosen", chosen},
          {"auto_seconds", auto_seconds},
          {"best", best->size},
          {"best_seconds", best_seconds},
          {"ratio", auto_seconds / best_seconds},
          {"seconds", std::move(all)}};
}

int Main(int argc, char** argv) {
  std::string json_path;
  int rounds = 7;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 < argc && flag == "--json") {
      json_path = argv[i + 1];
    } else if (i + 1 >= argc || flag != "--rounds" || !absl::SimpleAtoi(argv[i + 1], &rounds) || rounds < 1) {
      std::fprintf(stderr, "usage: micro_batch [--json FILE] [--rounds N]\n");
      return 2;
    }
  }
  nlohmann::json models = nlohmann::json::array();
  for (const Workload& workload : kModels) models.push_back(Measure(workload, rounds));
  if (!json_path.empty()) Check(WriteFile(json_path, nlohmann::json{{"models", models}}.dump(1) + "\n"));
  return 0;
}

}  // namespace
}  // namespace gemmill

int main(int argc, char** argv) {
  // As in step.cc: OpenMP reads it before main.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "active", 1);
    execv("/proc/self/exe", argv);
  }
  return gemmill::Main(argc, argv);
}
