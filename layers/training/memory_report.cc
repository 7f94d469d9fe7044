#include "gemmill/layers/training/memory_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gemmill/runtime/json.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/passes/passes.h"
#include "gemmill/runtime/schedule/device_memory.h"
#include "gemmill/runtime/schedule/memory_budget.h"
#include "gemmill/runtime/schedule/roofline.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr size_t kMostRecomputed = 3;  // pieces of advice about layers

std::string Gib(int64_t bytes) {
  return bytes >= int64_t{1} << 30 ? absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30))
                                   : absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / (1 << 20));
}

absl::StatusOr<StepMemoryOptions> PlannerOf(const Module& model, const LossFunction& loss, const Optimizer& optimizer,
                                            absl::Span<const FieldSpec> fields, const MemoryReportOptions& options) {
  const Trained trained{model.trainable(), model.step_sums()};
  if (trained.parameters.empty()) return InvalidArgument("the model has no parameters to train; are all frozen?");
  GM_ASSIGN_OR_RETURN(StepMemoryOptions planner, StepMemoryOf({.all = model.named_parameters(),
                                                               .trained = trained,
                                                               .whole_batch = options.global_batch,
                                                               .loss = loss,
                                                               .evaluation = LossSums(loss),
                                                               .fields = {fields.begin(), fields.end()}},
                                                              optimizer, Caller::Here()));
  planner.global_batch = options.global_batch;
  if (options.device == "cpu") {
    GM_ASSIGN_OR_RETURN(planner.calibration, CalibrationOfThisMachine());
    return planner;
  }
  GM_ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemoryOf(options.device));
  GM_ASSIGN_OR_RETURN(const Roofline roofline, RooflineOf(options.device, trained.parameters[0].value.dtype()));
  planner.calibration = Calibration::Of(roofline);
  planner.workspaces = GpuWorkspaces(memory.gemm_workspace_bytes);
  planner.copies_inputs = true;
  return planner;
}

// Of a layer whose activations are computed again on the way back: what the others leave live at the peak, less the
// largest that it then has to hold again.
void AdviseRecomputing(const StepMemory::Peak& peak, std::vector<MemoryAdvice>& advice) {
  struct Kept {
    int64_t all = 0;
    int64_t largest = 0;
  };
  std::map<std::string, Kept> layers;
  for (const MemoryItem& item : peak.live) {
    if (item.role != "activation" || item.layer.empty()) continue;
    Kept& kept = layers[item.layer];
    kept.all += item.bytes;
    kept.largest = std::max(kept.largest, item.bytes);
  }
  std::vector<MemoryAdvice> recomputing;
  for (const auto& [layer, kept] : layers) {
    if (layers.size() > 1)
      recomputing.push_back({absl::StrCat("recompute layer ", layer, " on the way back"), kept.all});
  }
  std::stable_sort(recomputing.begin(), recomputing.end(),
                   [](const auto& a, const auto& b) { return a.saved_bytes > b.saved_bytes; });
  // Something is always live: the layer that is being computed again.
  if (!recomputing.empty()) recomputing.resize(std::min(kMostRecomputed, recomputing.size() - 1));
  advice.insert(advice.end(), recomputing.begin(), recomputing.end());
}

absl::Status Advise(StepMemory& memory, const StepMemory::Peak& peak, const MemoryReportOptions& options,
                    std::vector<MemoryAdvice>& advice) {
  if (peak.micro_batch > 1) {
    GM_ASSIGN_OR_RETURN(const StepMemory::Peak half, memory.At(peak.micro_batch / 2));
    advice.push_back({absl::StrCat("a micro-batch of ", half.micro_batch, " instead of ", peak.micro_batch),
                      peak.bytes() - half.bytes()});
  }
  if (options.bf16_bytes != nullptr) {
    GM_ASSIGN_OR_RETURN(const int64_t bytes, options.bf16_bytes(peak.micro_batch));
    advice.push_back({"bf16 weights and activations, with f32 master weights", peak.bytes() - bytes});
  }
  AdviseRecomputing(peak, advice);
  int64_t state = 0;
  for (const MemoryItem& item : memory.options().lasting) state += item.role == "optimizer state" ? item.bytes : 0;
  if (state > 0 && options.ranks > 1) {
    advice.push_back(
        {absl::StrCat("optimizer state divided over ", options.ranks, " ranks"), state - state / options.ranks});
  }
  std::erase_if(advice, [](const MemoryAdvice& piece) { return piece.saved_bytes <= 0; });
  std::stable_sort(advice.begin(), advice.end(),
                   [](const auto& a, const auto& b) { return a.saved_bytes > b.saved_bytes; });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MemoryReport> MakeMemoryReport(const Module& model, const LossFunction& loss, const Optimizer& optimizer,
                                              absl::Span<const FieldSpec> fields, const MemoryReportOptions& options) {
  if (options.global_batch < 1)
    return InvalidArgument("global_batch is ", options.global_batch, ", expected 1 or more");
  if (options.micro_batch < 0 || options.micro_batch > options.global_batch) {
    return InvalidArgument("micro_batch is ", options.micro_batch, ", expected 1 to the global_batch of ",
                           options.global_batch);
  }
  GM_ASSIGN_OR_RETURN(StepMemoryOptions planner, PlannerOf(model, loss, optimizer, fields, options));
  MemoryReport report{.device = options.device, .global_batch = options.global_batch};
  int64_t device_bytes = 0;
  if (options.device == "cpu") {
    device_bytes = AvailableBytes(Device::Cpu());
  } else {
    GM_ASSIGN_OR_RETURN(const DeviceMemory device, DeviceMemoryOf(options.device));
    device_bytes = device.total_bytes;
  }
  report.budget_bytes = options.budget_bytes > 0 ? std::min(options.budget_bytes, device_bytes) : device_bytes;
  const int64_t usable = report.budget_bytes - MemoryReserve(report.budget_bytes);

  planner.workspaces = [&report, of = std::move(planner.workspaces)](const Program& program) {
    const Stopwatch watch;
    auto bytes = of(program);
    report.kernel_seconds += watch.Seconds();
    return bytes;
  };
  const Stopwatch watch;
  StepMemory memory(std::move(planner));
  MicroBatchChooser chooser(
      options.global_batch, [&](int64_t samples) { return memory.Predict(samples); },
      [&](int64_t samples) { return memory.Exactly(samples); });
  GM_ASSIGN_OR_RETURN(const MicroBatchChoice choice, chooser.Choose(usable));
  report.decide_seconds = watch.Seconds();
  report.max_micro_batch = choice.max_micro_batch;
  report.micro_batch = options.micro_batch > 0 ? options.micro_batch : std::max<int64_t>(choice.micro_batch, 1);
  GM_ASSIGN_OR_RETURN(const StepMemory::Peak peak, memory.At(report.micro_batch));
  report.predicted_bytes = peak.bytes();
  report.predicted_seconds = peak.seconds;
  report.fits = report.predicted_bytes <= usable;
  report.live_at_peak = memory.LiveAtPeak(peak);
  GM_RETURN_IF_ERROR(Advise(memory, peak, options, report.advice));
  return report;
}

std::string MemoryReportString(const MemoryReport& report) {
  std::string text =
      absl::StrFormat("training in micro-batches of %d (of a global batch of %d) on %s: %s, of a budget of %s: %s\n",
                      report.micro_batch, report.global_batch, report.device, Gib(report.predicted_bytes),
                      Gib(report.budget_bytes), report.fits ? "fits" : "does not fit");
  if (report.max_micro_batch > 0) {
    absl::StrAppendFormat(&text, "largest micro-batch that fits: %d\n", report.max_micro_batch);
  } else {
    absl::StrAppend(&text, "not even one sample fits\n");
  }
  absl::StrAppendFormat(&text,
                        "a step takes %.3g s at least, update apart; decided in %.1f ms, of which kernels %.1f ms\n",
                        report.predicted_seconds, report.decide_seconds * 1e3, report.kernel_seconds * 1e3);
  absl::StrAppend(&text, "\nlive at the peak, in bytes:\n", MemoryTable(report.live_at_peak, 16));
  if (!report.advice.empty()) absl::StrAppend(&text, "\nwhat would save memory:\n");
  for (const MemoryAdvice& piece : report.advice) {
    absl::StrAppendFormat(&text, "%16d  %s\n", piece.saved_bytes, piece.change);
  }
  return text;
}

std::string MemoryReportJson(const MemoryReport& report) {
  nlohmann::json live = nlohmann::json::array();
  for (const MemoryItem& item : report.live_at_peak) {
    live.push_back({{"name", item.name}, {"role", item.role}, {"bytes", item.bytes}});
  }
  nlohmann::json advice = nlohmann::json::array();
  for (const MemoryAdvice& piece : report.advice) {
    advice.push_back({{"change", piece.change}, {"saved_bytes", piece.saved_bytes}});
  }
  return JsonText({{"device", report.device},
                   {"fits", report.fits},
                   {"global_batch", report.global_batch},
                   {"micro_batch", report.micro_batch},
                   {"max_micro_batch", report.max_micro_batch},
                   {"predicted_bytes", report.predicted_bytes},
                   {"budget_bytes", report.budget_bytes},
                   {"live_at_peak", std::move(live)},
                   {"advice", std::move(advice)}});
}

}  // namespace gemmill
