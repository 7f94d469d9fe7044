#include "gemmill/runtime/schedule/roofline.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_join.h"
#include "gemmill/runtime/schedule/measure.h"
#include "gemmill/runtime/status.h"
#include "gemmill/runtime/threads.h"

namespace gemmill {
namespace {

struct Gpu {
  const char* name;
  double f32;   // FLOP/s of the CUDA cores: what cuBLAS does with f32 unless TF32 is asked for
  double f64;   // of the tensor cores
  double bf16;  // of the tensor cores, f32 accumulation
  double bytes_per_second;
  int64_t multiprocessors;
};

// SXM boards. NVIDIA's sheets give most tensor core figures with sparsity; these are the dense ones, half of that.
constexpr Gpu kGpus[] = {
    // "NVIDIA A100 Tensor Core GPU" data sheet (2021), 80GB SXM: 19.5 f32, 19.5 f64 TC, 312 bf16 TFLOPS; 2,039 GB/s.
    {"a100", 19.5e12, 19.5e12, 312e12, 2.039e12, 108},
    // "NVIDIA H100 Tensor Core GPU" data sheet (2023), SXM: 67 f32, 67 f64 TC, 1,979 bf16 with sparsity; 3.35 TB/s.
    {"h100", 67e12, 67e12, 989.5e12, 3.35e12, 132},
    // "NVIDIA H200 Tensor Core GPU" data sheet (2024), SXM: arithmetic as the H100's; 4.8 TB/s.
    {"h200", 67e12, 67e12, 989.5e12, 4.8e12, 132},
    // "NVIDIA Blackwell" data sheet (2024), an eighth of HGX B200: 80 f32, 40 f64, 4,500 bf16 with sparsity; 8 TB/s.
    {"b200", 80e12, 40e12, 2250e12, 8e12, 148},
};

// The tiles that run fastest where the matrices are large enough: 256x128 on tensor cores (NVIDIA, "Matrix
// Multiplication Background User's Guide", "Tile Quantization"), 128x128 elsewhere.
Roofline OfGpu(const Gpu& gpu, DType dtype) {
  Roofline roofline{.device = gpu.name,
                    .dtype = dtype,
                    .flops_per_second = gpu.f32,
                    .bytes_per_second = gpu.bytes_per_second,
                    .multiprocessors = gpu.multiprocessors,
                    .tile_long = 128,
                    .tile_short = 128};
  if (dtype == DType::kF64) roofline.flops_per_second = gpu.f64;
  if (dtype == DType::kBf16) {
    roofline.flops_per_second = gpu.bf16;
    roofline.tile_long = 256;
  }
  return roofline;
}

absl::StatusOr<double> MeasureArithmetic(DType dtype) {
  double best = 0;
  // The larger ones only where the smaller ones took little time: plain loops are slow.
  for (const int64_t size : {256, 512, 1024, 2048}) {
    const Spec square{{size, size}, dtype};
    const Spec operands[] = {square, square};
    GM_ASSIGN_OR_RETURN(const Timing timing, MeasureOp(op::MatMul{false, true}, operands, {&square, 1}));
    best = std::max(best, 2.0 * static_cast<double>(size * size * size) / timing.best);
    if (timing.best > 0.02) break;
  }
  return best;
}

// Twice 64 MiB: more than caches hold.
absl::StatusOr<double> MeasureMemory() {
  const Spec spec{{int64_t{16} << 20}, DType::kF32};
  GM_ASSIGN_OR_RETURN(const Timing timing, MeasureOp(op::Unary{UnaryFn::kRelu}, {&spec, 1}, {&spec, 1}));
  return 2.0 * static_cast<double>(spec.bytes()) / timing.best;
}

absl::StatusOr<Roofline> OfThisMachine(DType dtype) {
  static std::mutex mutex;
  static auto* const measured = new std::map<std::pair<DType, int>, Roofline>;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::pair<DType, int> key{dtype, NumThreads()};
  const auto found = measured->find(key);
  if (found != measured->end()) return found->second;
  Roofline roofline{.device = "cpu", .dtype = dtype};
  GM_ASSIGN_OR_RETURN(roofline.flops_per_second, MeasureArithmetic(dtype));
  GM_ASSIGN_OR_RETURN(roofline.bytes_per_second, MeasureMemory());
  measured->emplace(key, roofline);
  return roofline;
}

}  // namespace

std::vector<std::string> RooflineDevices() {
  std::vector<std::string> names{"cpu"};
  for (const Gpu& gpu : kGpus) names.emplace_back(gpu.name);
  return names;
}

absl::Status CheckRooflineDevice(absl::string_view device) {
  const std::vector<std::string> names = RooflineDevices();
  if (std::find(names.begin(), names.end(), device) != names.end()) return absl::OkStatus();
  return InvalidArgument("\"", device, "\" is no device, expected ", absl::StrJoin(names, ", "));
}

absl::StatusOr<Roofline> RooflineOf(absl::string_view device, DType dtype) {
  GM_RETURN_IF_ERROR(CheckRooflineDevice(device));
  if (!IsFloating(dtype)) return InvalidArgument("a roofline is of f32, bf16 or f64, got ", DTypeName(dtype));
  const auto* const gpu =
      std::find_if(std::begin(kGpus), std::end(kGpus), [&](const Gpu& g) { return device == g.name; });
  if (gpu == std::end(kGpus)) return OfThisMachine(dtype);
  return OfGpu(*gpu, dtype);
}

}  // namespace gemmill
