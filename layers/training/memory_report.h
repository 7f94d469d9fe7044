// MemoryReport: does training fit into a device's memory, at which micro-batch, what is live at the peak, and what
// would help. A dry run: nothing is computed and nothing is allocated, and the device need not be there. Of one's own
// model:
//
//   GM_ASSIGN_OR_RETURN(MemoryReport report, MakeMemoryReport(model, loss, AdamW(), {{"x", {{1, 784}}}, ...},
//                                                             {.device = "h100", .global_batch = 65536}));
//   std::cout << MemoryReportString(report);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/layers/module.h"
#include "gemmill/layers/training/evaluation.h"
#include "gemmill/layers/training/micro_batch.h"
#include "gemmill/layers/training/optimizer.h"
#include "gemmill/layers/training/step_memory.h"

namespace gemmill {

struct MemoryReportOptions {
  std::string device = "cpu";  // of RooflineDevices; "cpu" is this machine
  int64_t global_batch = 0;
  int64_t micro_batch = 0;   // 0: the scheduler's choice
  int64_t budget_bytes = 0;  // the least of it and of what the device has; 0: what the device has
  // How many ranks advice about sharding supposes.
  int64_t ranks = 8;
  // The bytes of the same training with bf16 weights, activations and gradients of activations; empty: no such advice.
  std::function<absl::StatusOr<int64_t>(int64_t micro_batch)> bf16_bytes;
};

struct MemoryAdvice {
  std::string change;
  int64_t saved_bytes = 0;
};

struct MemoryReport {
  std::string device;
  bool fits = false;
  int64_t global_batch = 0;
  int64_t micro_batch = 0;      // the one that is told of; of one sample where none fits
  int64_t max_micro_batch = 0;  // 0: none fits
  int64_t predicted_bytes = 0;
  int64_t budget_bytes = 0;
  double predicted_seconds = 0;  // of a step, without the update
  std::vector<MemoryItem> live_at_peak;
  std::vector<MemoryAdvice> advice;  // what saves most first
  double decide_seconds = 0;         // of which making kernels took
  double kernel_seconds = 0;
};

// `fields` of any number of samples.
absl::StatusOr<MemoryReport> MakeMemoryReport(const Module& model, const LossFunction& loss, const Optimizer& optimizer,
                                              absl::Span<const FieldSpec> fields, const MemoryReportOptions& options);

std::string MemoryReportString(const MemoryReport& report);
// {"device", "fits", "global_batch", "micro_batch", "max_micro_batch", "predicted_bytes", "budget_bytes",
// "live_at_peak": [{"name", "role", "bytes"}], "advice": [{"change", "saved_bytes"}]}
std::string MemoryReportJson(const MemoryReport& report);

}  // namespace gemmill
