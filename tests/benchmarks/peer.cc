// The Gemmill side of compare_pytorch.py: a workload's steps on demand, so that both sides take turns in one run.
//   build/tests/benchmarks/peer --list   prints the workloads' names
//   build/tests/benchmarks/peer NAME     reads commands from stdin, a line each, and answers each with a line of JSON:
//     dump DIR   writes initial weights and data (NAME.f32, NAME.i64: little-endian values) and workload.json
//     losses N   {"losses": [...]}: of N steps from the initial weights
//     time N     {"seconds": wall, "cpu_seconds": of all threads}: N steps after those taken so far
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/benchmarks/workload.h"

namespace gemmill {
namespace {

void Fail(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
void WriteValues(const std::string& path, const Tensor& tensor) {
  const std::vector<T> values = Check(tensor.ToVector<T>());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!file.flush()) Fail(absl::StrCat("cannot write ", path));
}

float DecayOf(const std::string& name, float weight_decay, const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    if (group.matches(name)) return group.weight_decay;
  }
  return weight_decay;
}

nlohmann::json Dump(const Workload& workload, const std::string& directory) {
  const AdamWOptions adamw = AdamWSettings();
  const SgdOptions sgd = SgdSettings();
  const Training training(workload);
  nlohmann::json parameters = nlohmann::json::array();
  for (const auto& [name, value] : training.model().named_parameters()) {
    WriteValues<float>(absl::StrCat(directory, "/", name, ".f32"), Check(value.Value()));
    const float decay =
        workload.sgd ? DecayOf(name, sgd.weight_decay, sgd.groups) : DecayOf(name, adamw.weight_decay, adamw.groups);
    parameters.push_back({{"name", name}, {"weight_decay", decay}});
  }
  WriteValues<float>(absl::StrCat(directory, "/x.f32"), Check(training.batch()["x"]));
  WriteValues<int64_t>(absl::StrCat(directory, "/label.i64"), Check(training.batch()["label"]));
  nlohmann::json optimizer = {{"name", "sgd"}, {"learning_rate", sgd.learning_rate}};
  if (!workload.sgd) {
    optimizer = {{"name", "adamw"},
                 {"learning_rate", adamw.learning_rate},
                 {"betas", {adamw.beta1, adamw.beta2}},
                 {"epsilon", adamw.epsilon}};
  }
  nlohmann::json description = {{"name", workload.name()},  {"sizes", workload.sizes},
                                {"batch", workload.batch},  {"threads", workload.thread_count()},
                                {"parameters", parameters}, {"optimizer", optimizer}};
  std::ofstream file(directory + "/workload.json");
  file << description.dump(1) << "\n";
  if (!file.flush()) Fail(absl::StrCat("cannot write ", directory, "/workload.json"));
  return description;
}

double CpuSeconds() {
  rusage own = {};
  getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(own.ru_utime) + seconds(own.ru_stime);
}

nlohmann::json Time(Training& training, int64_t steps) {
  using Clock = std::chrono::steady_clock;
  const double cpu = CpuSeconds();
  const auto start = Clock::now();
  for (int64_t i = 0; i < steps; ++i) training.Step();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return {{"seconds", seconds}, {"cpu_seconds", CpuSeconds() - cpu}};
}

int Serve(const Workload& workload) {
  Check(SetNumThreads(workload.thread_count()));
  std::unique_ptr<Training> timed;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    std::string directory;
    int64_t steps = 0;
    words >> command;
    nlohmann::json answer;
    if (command == "dump" && std::getline(words >> std::ws, directory)) {
      answer = Dump(workload, directory);
    } else if (command == "losses" && words >> steps) {
      Training training(workload);
      std::vector<double> losses;
      for (int64_t i = 0; i < steps; ++i) losses.push_back(training.Step());
      answer = {{"losses", losses}};
    } else if (command == "time" && words >> steps) {
      if (timed == nullptr) {
        timed = std::make_unique<Training>(workload);
        timed->WarmUp();
      }
      answer = Time(*timed, steps);
    } else {
      Fail(absl::StrCat("command is \"", line, "\", expected \"dump DIR\", \"losses N\" or \"time N\""));
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

int Main(int argc, char** argv) {
  const std::string name = argc == 2 ? argv[1] : "";
  std::vector<std::string> names;
  for (const Workload& workload : kWorkloads) {
    if (workload.precision != Precision::kF32) continue;  // the other side trains in f32
    if (workload.name() == name) return Serve(workload);
    names.push_back(workload.name());
  }
  if (name == "--list") {
    std::cout << nlohmann::json(names).dump() << "\n";
    return 0;
  }
  Fail(absl::StrCat("workload is \"", name, "\", expected --list or one of ", absl::StrJoin(names, ", ")));
  return 1;
}

}  // namespace
}  // namespace gemmill

int main(int argc, char** argv) { return gemmill::Main(argc, argv); }
