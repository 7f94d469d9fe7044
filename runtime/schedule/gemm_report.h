// GemmReport: every GEMM of a Program, what bounds it on a device, and what would help. Of a model of one's own:
//
//   GM_ASSIGN_OR_RETURN(Program program, TrainingProgram(model, loss, {{"x", {{256, 784}}}, ...}));
//   GM_ASSIGN_OR_RETURN(GemmReport report, MakeGemmReport(program, {.device = "h100"}));
//   std::cout << GemmReportString(report);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/runtime/cost.h"
#include "gemmill/runtime/program.h"
#include "gemmill/runtime/schedule/roofline.h"

namespace gemmill {

// Which operand of a layer's GEMMs is called A. M are its rows, N the columns of B, K what both are summed over.
enum class GemmConvention : uint8_t {
  kPytorch,     // the weights, as in Caffe: forward (outputs, batch, inputs), dgrad (inputs, batch, outputs), wgrad
                // (inputs, outputs, batch)
  kTensorflow,  // the activations: M and N change places
};
const char* ConventionName(GemmConvention convention);  // "pytorch", "tensorflow"
absl::StatusOr<GemmConvention> ParseConvention(absl::string_view name);

struct GemmReportOptions {
  std::string device = "cpu";  // of RooflineDevices; "cpu" measures this machine
  GemmConvention convention = GemmConvention::kPytorch;
  bool measure = false;  // runs each GEMM's Step by itself on this machine
  // Rows of each expert, of grouped GEMMs with as many experts; of others they are taken to be even.
  std::vector<int64_t> loads = {};
};

struct GemmRow {
  size_t step = 0;  // of the Program
  Origin origin;    // layer and role among it
  DType dtype = DType::kF32;
  GemmShape shape;    // in the convention; `batch` of them
  int64_t flops = 0;  // 2 m n k batch
  int64_t bytes = 0;  // that the Step reads and writes at least
  bool memory_bound = false;
  double predicted_seconds = 0;  // the roofline's: at least
  std::vector<std::string> advice;
  bool grouped = false;  // one of the GEMMs of a Step, whose layer is "experts.fc1[3]" of expert 3
  // With `measure`, else 0.
  double measured_seconds = 0;
  double peak_share = 0;  // of the best rate of this machine in the dtype

  double intensity() const { return bytes > 0 ? static_cast<double>(flops) / static_cast<double>(bytes) : 0; }
  double flops_per_second() const { return measured_seconds > 0 ? static_cast<double>(flops) / measured_seconds : 0; }
};

struct GemmReport {
  GemmReportOptions options;
  std::vector<GemmRow> gemms;       // in the Program's order
  std::vector<Roofline> rooflines;  // of the device, one per dtype that occurs
};

absl::StatusOr<GemmReport> MakeGemmReport(const Program& program, const GemmReportOptions& options = {});

// A table with totals, and below it the advice.
std::string GemmReportString(const GemmReport& report);

// {"convention", "device", "gemms": [{"layer", "role", "origin", "dtype", "m", "n", "k", "batch", "flops", "bytes",
// "intensity", "bound", "predicted_seconds", "advice"}]}; measured ones have "gflops" and "peak_share" too.
std::string GemmReportJson(const GemmReport& report);

}  // namespace gemmill
