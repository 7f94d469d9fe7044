// How long the forward and backward pass of a Mixture-of-Experts block takes, beside the least that this machine could
// do it in.
//   build/tests/benchmarks/moe [--json FILE] [--rounds N]
// prints a table and writes {"workloads": [{"name", "seconds", "bound_seconds", "ratio", "tokens_per_second"}],
// "gemm_flops_per_second", "bytes_per_second"}: ratio = bound_seconds / seconds, bound_seconds the larger of FLOPs over
// the rate of the block's GEMMs where one expert has all rows, and of bytes over the bandwidth. FLOPs are those of the
// experts' and the router's GEMMs; bytes, weights read twice and written once (their gradients), and what comes and
// goes. Blocks, GEMMs and bandwidth are measured in turn, round by round, and medians taken.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gemmill/runtime/cpu/parallel.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/moe_block.h"

namespace gemmill {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsOf(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

const std::vector<MoeWorkload> kMoeWorkloads = {
    {.name = "experts-8", .experts = 8},
    {.name = "experts-16", .experts = 16},
    {.name = "experts-32", .experts = 32},
    {.name = "experts-64", .experts = 64},
    {.name = "experts-128", .experts = 128},
    {.name = "experts-16-skewed", .experts = 16, .skewed = true},
    // 256 rows for each expert.
    {.name = "experts-8-rows-256", .experts = 8, .tokens = 1024},
    {.name = "experts-128-rows-256", .experts = 128, .tokens = 16384},
};

double FlopsOf(const MoeWorkload& workload) {
  const double experts = static_cast<double>(workload.rows() * 3 * workload.ffn * workload.hidden);
  const double router = static_cast<double>(workload.tokens * workload.experts * workload.hidden);
  return 3 * 2 * (experts + router);
}

double BytesOf(const MoeWorkload& workload) {
  const double weights = static_cast<double>(workload.experts * 3 * workload.ffn * workload.hidden);
  const double tokens = static_cast<double>(workload.tokens * workload.hidden);
  return sizeof(float) * (3 * weights + 4 * tokens);
}

// A GEMM of the block as if one expert had all rows, through the library's own MatMul.
class DenseGemm {
 public:
  DenseGemm(op::MatMul op, const Shape& a, const Shape& b) {
    inputs_ = {Filled(a), Filled(b)};
    const std::vector<Spec> specs{inputs_[0].spec(), inputs_[1].spec()};
    const std::vector<Spec> out = Check(Infer(op, specs));
    outputs_ = {Filled(out[0].shape)};
    kernel_ = Check(Prepare(op, specs, out));
    workspace_ = Filled({kernel_.workspace_bytes / 4 + 16});
    flops_ = static_cast<double>(Cost(op, specs, out).flops);
  }
  double Rate() {
    const void* const in[] = {inputs_[0].data(), inputs_[1].data()};
    void* const out[] = {outputs_[0].data()};
    return flops_ / SecondsOf([&] {
             Check(RunKernel(kernel_, {in, out, workspace_.data()}, Stream::Default(Device::Cpu())));
           });
  }

 private:
  static Tensor Filled(const Shape& shape) { return Check(Fill(shape, 0.5).Value()); }
  std::vector<Tensor> inputs_, outputs_;
  Tensor workspace_;
  Kernel kernel_;
  double flops_ = 0;
};

// Forward, dgrad and wgrad of both layers.
std::vector<DenseGemm> DenseGemms(const MoeWorkload& workload) {
  std::vector<DenseGemm> gemms;
  const int64_t rows = workload.rows();
  for (const auto& [outputs, inputs] :
       {std::pair(2 * workload.ffn, workload.hidden), std::pair(workload.hidden, workload.ffn)}) {
    gemms.emplace_back(op::MatMul{.trans_b = true}, Shape{rows, inputs}, Shape{outputs, inputs});
    gemms.emplace_back(op::MatMul{}, Shape{rows, outputs}, Shape{outputs, inputs});
    gemms.emplace_back(op::MatMul{.trans_a = true}, Shape{rows, outputs}, Shape{rows, inputs});
  }
  return gemms;
}

// Two parts read to one part written, as of weights and their gradients.
class Bandwidth {
 public:
  double Rate() {
    const double seconds = SecondsOf([&] {
      cpu::ParallelFor(kFloats, 1 << 16, [&](int64_t begin, int64_t end) {
        const float* const a = first_.data();
        const float* const b = second_.data();
        float* const c = sum_.data();
        for (int64_t i = begin; i < end; ++i) c[i] = a[i] + b[i];
      });
    });
    return 3 * sizeof(float) * static_cast<double>(kFloats) / seconds;
  }

 private:
  static constexpr int64_t kFloats = 24 << 20;  // far beyond the caches
  std::vector<float> first_ = std::vector<float>(kFloats, 1);
  std::vector<float> second_ = std::vector<float>(kFloats, 2);
  std::vector<float> sum_ = std::vector<float>(kFloats);
};

int Main(int argc, char** argv) {
  std::string json_path;
  int rounds = 21;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (argument == "--rounds" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "error: \"%s\", expected [--json FILE] [--rounds N]\n", argument.c_str());
      return 1;
    }
  }
  std::vector<std::unique_ptr<MoeBlock>> blocks;
  for (const MoeWorkload& workload : kMoeWorkloads) {
    blocks.push_back(std::make_unique<MoeBlock>(workload));
    for (int i = 0; i < 2; ++i) blocks.back()->Run();
  }
  std::vector<DenseGemm> gemms = DenseGemms(kMoeWorkloads[0]);
  Bandwidth bandwidth;
  std::vector<std::vector<double>> seconds(blocks.size());
  std::vector<double> gemm_rates, byte_rates;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      blocks[i]->Run();  // what the others left in the caches is gone
      seconds[i].push_back(SecondsOf([&] { blocks[i]->Run(); }));
    }
    double best = 0;
    for (DenseGemm& gemm : gemms) best = std::max({best, gemm.Rate(), gemm.Rate()});
    gemm_rates.push_back(best);
    byte_rates.push_back(std::max(bandwidth.Rate(), bandwidth.Rate()));
  }
  const double gemm_rate = Median(gemm_rates);
  const double byte_rate = Median(byte_rates);
  std::printf("%d threads, GEMMs at %.1f GFLOP/s, memory at %.1f GB/s\n", NumThreads(), gemm_rate * 1e-9,
              byte_rate * 1e-9);
  std::printf("%-22s %10s %10s %8s %12s %10s\n", "block", "ms", "bound ms", "ratio", "tokens/s", "GFLOP/s");
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const MoeWorkload& workload = kMoeWorkloads[i];
    const double taken = Median(seconds[i]);
    const double bound = std::max(FlopsOf(workload) / gemm_rate, BytesOf(workload) / byte_rate);
    const double rate = static_cast<double>(workload.tokens) / taken;
    std::printf("%-22s %10.3f %10.3f %8.3f %12.0f %10.1f\n", workload.name.c_str(), taken * 1e3, bound * 1e3,
                bound / taken, rate, FlopsOf(workload) / taken * 1e-9);
    rows.push_back({{"name", workload.name},
                    {"seconds", taken},
                    {"bound_seconds", bound},
                    {"ratio", bound / taken},
                    {"tokens_per_second", rate}});
  }
  if (json_path.empty()) return 0;
  std::ofstream file(json_path);
  const nlohmann::json report = {
      {"workloads", rows}, {"gemm_flops_per_second", gemm_rate}, {"bytes_per_second", byte_rate}};
  file << report.dump(1) << "\n";
  if (file.flush()) return 0;
  std::fprintf(stderr, "error: cannot write %s\n", json_path.c_str());
  return 1;
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
