#include "gemmill/examples/explain_memory.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "gemmill/examples/memory_options.h"
#include "gemmill/runtime/byte_size.h"
#include "gemmill/runtime/file.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/schedule/device_memory.h"

namespace gemmill::examples {
namespace {

absl::StatusOr<MemoryReport> Report(const ExplainMemoryOptions& options, DType dtype, MemoryReportOptions report) {
  GM_ASSIGN_OR_RETURN(const ExplainedModel model, options.model(dtype));
  return MakeMemoryReport(*model.module, model.loss, AdamW(), model.fields, report);
}

absl::StatusOr<int64_t> BudgetBytes(const ExplainMemoryOptions& options) {
  if (options.memory_budget.empty()) return 0;
  if (absl::StartsWith(options.memory_budget, "@")) {
    return InvalidArgument("--memory_budget ", options.memory_budget, " is of a run; explain takes a size");
  }
  int64_t total = TotalBytes(Device::Cpu());
  if (options.device != "cpu") {
    GM_ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemoryOf(options.device));
    total = memory.total_bytes;
  }
  absl::StatusOr<int64_t> bytes = ParseByteBudget(options.memory_budget, total);
  if (!bytes.ok()) return Annotate(bytes.status(), "--memory_budget: ");
  return bytes;
}

}  // namespace

absl::Status ExplainMemory(const ExplainMemoryOptions& options) {
  GM_ASSIGN_OR_RETURN(const MemoryOptions memory, ParseMemoryOptions(options.micro_batch, "", false, false));
  MemoryReportOptions report_options{
      .device = options.device, .global_batch = options.global_batch, .micro_batch = memory.micro_batch.samples};
  if (!memory.micro_batch.automatic && report_options.micro_batch == 0) {
    report_options.micro_batch = options.global_batch;
  }
  GM_ASSIGN_OR_RETURN(report_options.budget_bytes, BudgetBytes(options));
  if (options.dtype == DType::kF32) {
    report_options.bf16_bytes = [&](int64_t micro_batch) -> absl::StatusOr<int64_t> {
      GM_ASSIGN_OR_RETURN(const MemoryReport narrow,
                          Report(options, DType::kBf16,
                                 {.device = options.device,
                                  .global_batch = std::min(options.global_batch, 2 * micro_batch),
                                  .micro_batch = micro_batch}));
      return narrow.predicted_bytes;
    };
  }
  GM_ASSIGN_OR_RETURN(const MemoryReport report, Report(options, options.dtype, report_options));
  if (!options.json.empty()) {
    GM_RETURN_IF_ERROR(Annotate(WriteFile(options.json, MemoryReportJson(report)), "--json: "));
  }
  std::cout << MemoryReportString(report);
  return absl::OkStatus();
}

}  // namespace gemmill::examples
