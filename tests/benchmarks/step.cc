// How long a whole training step takes (forward, backward, optimizer), beside its GEMMs alone, measured in turn in one
// run.
//   build/tests/benchmarks/step [--json FILE] [Google Benchmark's flags]
// prints a table and writes {"workloads": [{"name", "seconds", "gemm_seconds", "flops", "ratio"}]}: medians of the
// repetitions, ratio = gemm_seconds / seconds. A workload is named sizes/batch.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "benchmark/benchmark.h"
#include "gemmill/gemmill.h"
#include "nlohmann/json.hpp"

namespace gemmill {
namespace {

constexpr int kRepetitions = 9;

struct Workload {
  std::vector<int64_t> sizes;
  int64_t batch;
  bool sgd;     // else AdamW
  int threads;  // 0: the default

  std::string name() const { return absl::StrCat(absl::StrJoin(sizes, "-"), "/", batch); }
};

const std::vector<Workload> kWorkloads = {
    {{784, 512, 512, 10}, 64, false, 0},   {{784, 512, 512, 10}, 256, false, 0},
    {{784, 512, 512, 10}, 1024, false, 0}, {{1024, 1024, 1024, 1024}, 1024, false, 0},
    {{8, 8, 8, 8, 8}, 8, true, 1},
};

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Check(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

Tensor Normal(const Shape& shape, uint64_t seed) {
  return Check(Check(MakeParameter(shape, Initializer::kNormal, {.seed = seed}, 0.1)).Value());
}

void SetThreads(const Workload& workload) {
  Check(SetNumThreads(workload.threads > 0 ? workload.threads : DefaultNumThreads()));
}

// A step as a user's loop takes it: everything but reading the data.
void Step(benchmark::State& state, const Workload& workload) {
  SetThreads(workload);
  const Mlp model = Check(Mlp::Create({.sizes = workload.sizes, .activation = Activation::kRelu}, {.seed = 1}));
  std::vector<int64_t> classes(static_cast<size_t>(workload.batch));
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int64_t>(i) % workload.sizes.back();
  Batch batch;
  batch.samples = workload.batch;
  batch.fields = {{"x", Normal({workload.batch, workload.sizes[0]}, 2)},
                  {"label", Check(Tensor::From(classes, {workload.batch}))}};
  std::shared_ptr<Optimizer> optimizer = std::make_shared<AdamW>();
  if (workload.sgd) optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 1e-3});
  Trainer trainer =
      Check(Trainer::Make(model, optimizer, [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); },
                          {.global_batch = workload.batch}));
  for (auto _ : state) benchmark::DoNotOptimize(Check(trainer.Step(batch)).loss);
}

// One GEMM of a step, prepared.
struct Gemm {
  Kernel kernel;
  std::vector<Tensor> tensors;  // a, b, c
  Tensor workspace;

  Gemm(const op::MatMul& op, const Shape& a, const Shape& b) {
    tensors = {Normal(a, 3), Normal(b, 4)};
    const std::vector<Spec> in = {tensors[0].spec(), tensors[1].spec()};
    const std::vector<Spec> out = Check(Infer(op, in));
    tensors.push_back(Check(Tensor::Empty(out[0])));
    kernel = Check(Prepare(op, in, out));
    workspace = Check(Tensor::Empty(Spec{{std::max<int64_t>(kernel.workspace_bytes, 1)}, DType::kU8, {}}));
  }

  void Run() const {
    const void* in[] = {tensors[0].data(), tensors[1].data()};
    void* out[] = {tensors[2].data()};
    Check(kernel.run({in, out, workspace.data()}, Stream::Default(Device::Cpu())));
  }
};

// forward y = x w^T, wgrad dw = dy^T x, and from the second layer on dgrad dx = dy w.
std::vector<Gemm> GemmsOf(const Workload& workload) {
  std::vector<Gemm> gemms;
  for (size_t i = 0; i + 1 < workload.sizes.size(); ++i) {
    const int64_t n = workload.batch;
    const int64_t inputs = workload.sizes[i];
    const int64_t outputs = workload.sizes[i + 1];
    gemms.emplace_back(op::MatMul{false, true}, Shape{n, inputs}, Shape{outputs, inputs});
    gemms.emplace_back(op::MatMul{true, false}, Shape{n, outputs}, Shape{n, inputs});
    if (i > 0) gemms.emplace_back(op::MatMul{false, false}, Shape{n, outputs}, Shape{outputs, inputs});
  }
  return gemms;
}

void Gemms(benchmark::State& state, const Workload& workload) {
  SetThreads(workload);
  const std::vector<Gemm> gemms = GemmsOf(workload);
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

// Keeps the seconds of every repetition by benchmark.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        seconds_[run.run_name.function_name].push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
      }
    }
  }
  double Median(const std::string& name) {
    std::vector<double>& values = seconds_[name];
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;
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
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);

  nlohmann::json workloads = nlohmann::json::array();
  std::printf("%-26s %8s %12s %12s %8s %10s\n", "workload", "threads", "step ms", "GEMMs ms", "ratio", "GFLOP/s");
  for (const Workload& workload : kWorkloads) {
    const double seconds = collector.Median("step/" + workload.name());
    const double gemm_seconds = collector.Median("gemms/" + workload.name());
    if (seconds == 0 || gemm_seconds == 0) continue;  // filtered out
    std::printf("%-26s %8d %12.4f %12.4f %8.3f %10.1f\n", workload.name().c_str(),
                workload.threads > 0 ? workload.threads : DefaultNumThreads(), seconds * 1e3, gemm_seconds * 1e3,
                gemm_seconds / seconds, static_cast<double>(Flops(workload)) / seconds * 1e-9);
    workloads.push_back({{"name", workload.name()},
                         {"seconds", seconds},
                         {"gemm_seconds", gemm_seconds},
                         {"flops", Flops(workload)},
                         {"ratio", gemm_seconds / seconds}});
  }
  if (json_path.empty()) return 0;
  std::ofstream file(json_path);
  file << nlohmann::json{{"workloads", workloads}}.dump(1) << "\n";
  if (!file.flush()) {
    std::fprintf(stderr, "error: cannot write %s\n", json_path.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace gemmill

int main(int argc, char** argv) { return gemmill::Main(argc, argv); }
