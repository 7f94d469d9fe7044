// How long a whole training step takes (forward, backward, optimizer), beside its GEMMs alone, measured in turn in one
// run.
//   build/tests/benchmarks/step [--json FILE] [Google Benchmark's flags]
// prints a table and writes {"workloads": [{"name", "seconds", "gemm_seconds", "flops", "ratio"}], "planning":
// {"layers", "steps", "seconds"}}: medians of the repetitions that had the machine to themselves, ratio = gemm_seconds
// / seconds. A workload is named sizes/batch, and sizes/batch/bf16 where Precision is kBf16. "planning" is what comes
// before the first step of a model of 100 layers: recording it, passes and plan.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "gemmill/runtime/cpu/onednn.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/workload.h"

namespace gemmill {
namespace {

constexpr int kRepetitions = 21;

void SetThreads(const Workload& workload) { Check(SetNumThreads(workload.thread_count())); }

// Seconds of a small GEMM on the threads in use: as long as others run on the same cores, a virtual machine's
// neighbours among them, which no counter of ours sees, it takes longer.
double ProbeSeconds();

// How much of the machine others used while it lives: what /proc/stat calls busy or stolen, less this process's own, as
// the counter "others", a share of all CPUs; and the longer of a probe before and one after, as the counter "probe".
class Others {
 public:
  explicit Others(benchmark::State& state)
      : state_(state), probe_(ProbeSeconds()), start_(Clock::now()), before_(Seconds()) {}
  ~Others() {
    state_.counters["probe"] = std::max(probe_, ProbeSeconds());
    state_.counters["threads"] = NumThreads();
    const double wall = std::chrono::duration<double>(Clock::now() - start_).count();
    state_.counters["others"] =
        std::max(0.0, Seconds() - before_) / (wall * static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double Seconds() {
    std::ifstream stat("/proc/stat");
    std::string cpu;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    stat >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    const double busy = (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
    rusage own = {};
    getrusage(RUSAGE_SELF, &own);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return busy - seconds(own.ru_utime) - seconds(own.ru_stime);
  }

  benchmark::State& state_;
  double probe_;
  Clock::time_point start_;
  double before_;
};

void Step(benchmark::State& state, const Workload& workload) {
  SetThreads(workload);
  Training training(workload);
  training.WarmUp();
  const Others others(state);
  for (auto _ : state) benchmark::DoNotOptimize(training.Step());
}

// One GEMM of a step as oneDNN does it best on this machine: with its matrices as they are, or in the layout that the
// library itself would choose for either or both. What packing costs is left out.
class Gemm {
 public:
  Gemm(Precision precision, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k) {
    double best = 0;
    for (const bool pack_a : {false, true}) {
      for (const bool pack_b : {false, true}) {
        const Variant variant(precision, trans_a, trans_b, m, n, k, pack_a, pack_b);
        const double seconds = variant.Seconds();
        if (best > 0 && seconds >= best) continue;
        best = seconds;
        variant_ = variant;
      }
    }
  }
  void Run() const { variant_.Run(); }

  struct Variant {
    Variant() = default;
    Variant(Precision precision, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, bool pack_a,
            bool pack_b) {
      using Dims = dnnl::memory::dims;
      const bool narrow = precision == Precision::kBf16;
      const auto type = narrow ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
      const auto matrix = [type](int64_t rows, int64_t columns, bool transposed, bool any) {
        if (any) return dnnl::memory::desc(Dims{rows, columns}, type, dnnl::memory::format_tag::any);
        return dnnl::memory::desc(Dims{rows, columns}, type, transposed ? Dims{1, rows} : Dims{columns, 1});
      };
      const auto descriptor =
          cpu::onednn::MatMulDescriptor(matrix(m, k, trans_a, pack_a), matrix(k, n, trans_b, pack_b),
                                        matrix(m, n, false, false), cpu::onednn::UserScratchpad());
      primitive = dnnl::matmul(descriptor);
      const auto filled = [&](const dnnl::memory::desc& layout) {
        dnnl::memory memory(layout, cpu::onednn::CpuEngine());
        const auto fill = [&](auto* values) {
          using T = std::remove_pointer_t<decltype(values)>;
          for (size_t i = 0; i < layout.get_size() / sizeof(T); ++i) values[i] = T(static_cast<float>(i % 17) * 0.1f);
        };
        narrow ? fill(static_cast<bf16*>(memory.get_data_handle()))
               : fill(static_cast<float*>(memory.get_data_handle()));
        return memory;
      };
      arguments = {{DNNL_ARG_SRC, filled(descriptor.src_desc())},
                   {DNNL_ARG_WEIGHTS, filled(descriptor.weights_desc())},
                   {DNNL_ARG_DST, filled(descriptor.dst_desc())},
                   {DNNL_ARG_SCRATCHPAD, filled(descriptor.scratchpad_desc())}};
    }
    void Run() const {
      thread_local dnnl::stream stream(cpu::onednn::CpuEngine());
      primitive.execute(stream, arguments);
    }
    // The least of many runs, over at least `time`.
    double Seconds(std::chrono::milliseconds time = std::chrono::milliseconds(20)) const {
      using Clock = std::chrono::steady_clock;
      double best = 1e9;
      const auto start = Clock::now();
      for (int runs = 0; runs < 5 || Clock::now() - start < time; ++runs) {
        const auto before = Clock::now();
        Run();
        best = std::min(best, std::chrono::duration<double>(Clock::now() - before).count());
      }
      return best;
    }
    dnnl::matmul primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };

 private:
  Variant variant_;
};

double ProbeSeconds() {
  static const Gemm::Variant gemm(Precision::kF32, false, false, 256, 256, 256, false, false);
  return gemm.Seconds(std::chrono::milliseconds(1));
}

// forward y = x w^T, wgrad dw = dy^T x, and from the second layer on dgrad dx = dy w.
std::vector<Gemm> GemmsOf(const Workload& workload) {
  std::vector<Gemm> gemms;
  for (size_t i = 0; i + 1 < workload.sizes.size(); ++i) {
    const int64_t batch = workload.batch;
    const int64_t inputs = workload.sizes[i];
    const int64_t outputs = workload.sizes[i + 1];
    gemms.emplace_back(workload.precision, false, true, batch, outputs, inputs);
    gemms.emplace_back(workload.precision, true, false, outputs, inputs, batch);
    if (i > 0) gemms.emplace_back(workload.precision, false, false, batch, inputs, outputs);
  }
  return gemms;
}

void Gemms(benchmark::State& state, const Workload& workload) {
  SetThreads(workload);
  static std::map<std::string, std::vector<Gemm>> all;  // repetitions share the choice of variants
  if (!all.contains(workload.name())) all.emplace(workload.name(), GemmsOf(workload));
  const std::vector<Gemm>& gemms = all.at(workload.name());
  const Others others(state);
  for (auto _ : state) {
    for (const Gemm& gemm : gemms) gemm.Run();
  }
}

int64_t Flops(const Workload& workload) {
  int64_t flops = 0;
  for (size_t i = 0; i + 1 < workload.sizes.size(); ++i) {
    flops += 2 * workload.batch * workload.sizes[i] * workload.sizes[i + 1] * (i > 0 ? 3 : 2);
  }
  return flops;
}

constexpr int kPlannedLayers = 100;

// The first run, which is not counted, makes oneDNN's primitives; they are held.
void Planning(benchmark::State& state) {
  const std::vector<int64_t> sizes(kPlannedLayers + 1, 256);
  const Mlp model = Check(Mlp::Create({.sizes = sizes, .activation = Activation::kGelu}, {.seed = 1}));
  const LossFunction loss = [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); };
  const std::vector<FieldSpec> fields = {{"x", Spec{{256, sizes[0]}}}, {"label", Spec{{256}, DType::kI64}}};
  const auto plan = [&] {
    const Program program = Check(TrainingProgram(model, loss, fields));
    state.counters["steps"] = static_cast<double>(program.steps.size());
    return Check(MakePlan(program)).arena_bytes;
  };
  plan();
  const Others others(state);
  for (auto _ : state) benchmark::DoNotOptimize(plan());
}

// Keeps the seconds of every repetition by benchmark.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        Sample sample{.seconds = run.real_accumulated_time / static_cast<double>(run.iterations)};
        if (const auto others = run.counters.find("others"); others != run.counters.end()) {
          sample.others = others->second.value;
          sample.probe = run.counters.at("probe").value;
          sample.threads = static_cast<int>(run.counters.at("threads").value);
          double& best = best_probes_[sample.threads];
          best = best == 0 ? sample.probe : std::min(best, sample.probe);
        }
        samples_[run.run_name.function_name].push_back(sample);
        if (const auto steps = run.counters.find("steps"); steps != run.counters.end()) steps_ = steps->second.value;
      }
    }
  }
  // Of the samples that had the machine to themselves; where they are fewer than kLeast, of those that were disturbed
  // least.
  double Median(const std::string& name) {
    std::vector<std::pair<double, double>> samples;  // how disturbed, seconds
    for (const Sample& sample : samples_[name]) samples.emplace_back(Disturbance(sample), sample.seconds);
    if (samples.empty()) return 0;
    std::sort(samples.begin(), samples.end());
    size_t kept = 0;
    while (kept < samples.size() && (samples[kept].first <= 1 || kept < kLeast)) ++kept;
    disturbed_ += samples[kept - 1].first > 1 ? 1 : 0;
    std::vector<double> seconds;
    for (size_t i = 0; i < kept; ++i) seconds.push_back(samples[i].second);
    std::sort(seconds.begin(), seconds.end());
    return seconds[kept / 2];
  }
  int disturbed() const { return disturbed_; }
  int64_t steps() const { return static_cast<int64_t>(steps_); }  // of the planned Program

 private:
  struct Sample {
    double seconds = 0;
    double others = 0;
    double probe = 0;
    int threads = 0;
  };
  // Above 1, a sample does not count.
  double Disturbance(const Sample& sample) {
    const double best = best_probes_[sample.threads];
    const double slowed = best > 0 ? sample.probe / best - 1 : 0;
    return std::max(sample.others / kMostOthers, slowed / kMostSlowed);
  }

  static constexpr double kMostOthers = 0.05;  // of the machine
  static constexpr double kMostSlowed = 0.15;  // the probe, beside its best
  static constexpr size_t kLeast = 7;

  std::map<std::string, std::vector<Sample>> samples_;
  std::map<int, double> best_probes_;  // by number of threads
  int disturbed_ = 0;
  double steps_ = 0;
};

int Main(int argc, char** argv) {
  std::string json_path;
  std::vector<char*> rest;
  // In turn, in random order, so that a slow moment of the machine meets both sides of a ratio.
  std::string interleaving = "--benchmark_enable_random_interleaving=true";
  for (int i = 0; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  rest.push_back(interleaving.data());
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  for (const Workload& workload : kWorkloads) {
    const auto add = [&](const std::string& kind, void (*function)(benchmark::State&, const Workload&)) {
      benchmark::RegisterBenchmark((kind + workload.name()).c_str(), function, workload)
          ->Repetitions(kRepetitions)
          ->MinTime(0.1)
          ->UseRealTime();
    };
    add("step/", Step);
    add("gemms/", Gemms);
  }
  benchmark::RegisterBenchmark("planning", Planning)->Repetitions(kRepetitions)->MinTime(0.05)->UseRealTime();
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);

  nlohmann::json workloads = nlohmann::json::array();
  std::printf("%-30s %8s %12s %12s %8s %10s\n", "workload", "threads", "step ms", "GEMMs ms", "ratio", "GFLOP/s");
  for (const Workload& workload : kWorkloads) {
    const double seconds = collector.Median("step/" + workload.name());
    const double gemm_seconds = collector.Median("gemms/" + workload.name());
    if (seconds == 0 || gemm_seconds == 0) continue;  // filtered out
    std::printf("%-30s %8d %12.4f %12.4f %8.3f %10.1f\n", workload.name().c_str(), workload.thread_count(),
                seconds * 1e3, gemm_seconds * 1e3, gemm_seconds / seconds,
                static_cast<double>(Flops(workload)) / seconds * 1e-9);
    workloads.push_back({{"name", workload.name()},
                         {"seconds", seconds},
                         {"gemm_seconds", gemm_seconds},
                         {"flops", Flops(workload)},
                         {"ratio", gemm_seconds / seconds}});
  }
  nlohmann::json report = {{"workloads", workloads}};
  if (const double seconds = collector.Median("planning"); seconds > 0) {
    std::printf("recording, passes and plan of %d layers (%d Steps): %.2f ms\n", kPlannedLayers,
                static_cast<int>(collector.steps()), seconds * 1e3);
    report["planning"] = {{"layers", kPlannedLayers}, {"steps", collector.steps()}, {"seconds", seconds}};
  }
  if (collector.disturbed() > 0)
    std::printf("%d medians are of a machine that did other work\n", collector.disturbed());
  if (json_path.empty()) return 0;
  std::ofstream file(json_path);
  file << report.dump(1) << "\n";
  if (!file.flush()) {
    std::fprintf(stderr, "error: cannot write %s\n", json_path.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace gemmill

int main(int argc, char** argv) {
  // OpenMP reads it before main. With its default, threads that wait for the next parallel loop go to sleep in some
  // runs and not in others, and waking them takes as long as a small GEMM.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "active", 1);
    execv("/proc/self/exe", argv);
  }
  return gemmill::Main(argc, argv);
}
