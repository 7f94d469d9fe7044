#include "gemmill/layers/training/step_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/trace.h"
#include "gemmill/layers/training/micro_batch.h"
#include "gemmill/runtime/passes/passes.h"
#include "gemmill/runtime/schedule/cost_model.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

// A seed and a step, the first sample, the gradients' norm.
constexpr int64_t kStepInputBytes = 16 + 8 + 4;

int64_t Sum(absl::Span<const MemoryItem> items) {
  int64_t bytes = 0;
  for (const MemoryItem& item : items) bytes += item.bytes;
  return bytes;
}

void SortLargestFirst(std::vector<MemoryItem>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
}

std::string LayerOf(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

std::string RoleOf(const Plan::Live& live) {
  if (live.name.find("workspace") != std::string::npos) return "workspace";
  if (live.origin.role == GemmRole::kDgrad) return "activation gradient";
  return live.origin.role == GemmRole::kWgrad ? "weight gradient" : "activation";
}

std::vector<MemoryItem> LiveItems(const Plan& plan) {
  std::vector<MemoryItem> items;
  for (const Plan::Live& live : plan.live_at_peak) {
    const std::string what = absl::StrCat(live.name, " ", ShapeString(live.spec.shape));
    items.push_back({live.origin.layer.empty() ? what : absl::StrCat(live.origin.layer, ": ", what), RoleOf(live),
                     live.bytes, live.origin.layer});
  }
  return items;
}

}  // namespace

std::vector<MemoryItem> LastingMemory(absl::Span<const NamedParameter> all, const Trained& trained,
                                      const Optimizer& optimizer) {
  std::vector<MemoryItem> items;
  std::set<const Buffer*> seen;
  for (const NamedParameter& parameter : all) {
    const absl::StatusOr<Tensor> value = parameter.value.Value();
    if (!value.ok() || !seen.insert(value->buffer().get()).second) continue;
    items.push_back({parameter.name, "parameter", value->buffer()->bytes(), LayerOf(parameter.name)});
  }
  const std::vector<Spec> totals = TotalSpecs(trained);
  int64_t step_bytes = kStepInputBytes + Optimizer::kControlBytes;
  for (size_t i = 0; i < totals.size(); ++i) {
    if (i < 2 || i >= 2 + trained.parameters.size()) {
      step_bytes += totals[i].bytes();
      continue;
    }
    const std::string& name = trained.parameters[i - 2].name;
    items.push_back({name, "gradient", totals[i].bytes(), LayerOf(name)});
  }
  for (const Spec& sum : GlobalSpecs(trained)) step_bytes += trained.CountsFirst() ? sum.bytes() : 0;
  for (const Optimizer::StateSpec& state : optimizer.StateSpecs(trained.parameters)) {
    items.push_back({absl::StrCat(state.parameter, " ", state.kind), "optimizer state", state.spec.bytes(),
                     LayerOf(state.parameter)});
  }
  items.push_back({"sums and numbers of the step", "step", step_bytes, ""});
  return items;
}

absl::StatusOr<Program> GradientNormProgram(absl::Span<const Tensor> gradients, Caller caller) {
  const auto norm = [&](const std::vector<Var>&) {
    return std::vector<Var>{Apply1(op::GlobalNorm{}, std::vector<Var>(gradients.begin(), gradients.end()), caller)};
  };
  return Trace(norm, {});
}

WorkspaceModel GpuWorkspaces(int64_t gemm_bytes) {
  return [gemm_bytes](const Program& program) -> absl::StatusOr<std::vector<int64_t>> {
    std::vector<int64_t> bytes;
    for (const Step& step : program.steps) {
      const bool gemm = std::holds_alternative<op::MatMul>(step.op) || std::holds_alternative<op::FusedMatMul>(step.op);
      bytes.push_back(gemm ? gemm_bytes : 0);
    }
    return bytes;
  };
}

absl::StatusOr<StepMemoryOptions> StepMemoryOf(const TrainedModel& model, const Optimizer& optimizer, Caller caller) {
  StepMemoryOptions options;
  const auto reserve = [](const std::vector<Spec>& specs) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> tensors;
    for (const Spec& spec : specs) {
      GM_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Reserve(spec));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  };
  GM_ASSIGN_OR_RETURN(const std::vector<Tensor> totals, reserve(TotalSpecs(model.trained)));
  std::vector<Tensor> global;
  if (model.trained.CountsFirst()) {
    GM_ASSIGN_OR_RETURN(global, reserve(GlobalSpecs(model.trained)));
  }
  options.totals = totals;
  options.totals.insert(options.totals.end(), global.begin(), global.end());
  const auto sized = [fields = model.fields](int64_t samples) {
    std::vector<FieldSpec> result = fields;
    for (FieldSpec& field : result) field.spec.shape[0] = samples;
    return result;
  };
  const auto micro_batch = [=, loss = model.loss, trained = model.trained, passes = model.passes,
                            whole = model.whole_batch](int64_t samples, Pass pass) -> absl::StatusOr<Program> {
    pass.part = !pass.counting && trained.CountsFirst() && samples < whole;
    GM_ASSIGN_OR_RETURN(Program program,
                        TraceMicroBatch(loss, sized(samples), samples, trained, pass, totals, global, caller));
    return passes ? passes::Default(program) : std::move(program);
  };
  options.programs = {
      .first = [=](int64_t samples) { return micro_batch(samples, {}); },
      .further = [=](int64_t samples) { return micro_batch(samples, {.first = false}); },
      .evaluation =
          [=, sums = model.evaluation](int64_t samples) { return EvaluationProgram(sums, sized(samples), samples); },
      .norm = [=, trained = model.trained] { return GradientNormProgram(GradientsOf(trained, totals), caller); }};
  if (model.trained.CountsFirst()) {
    options.programs.counting = [=](int64_t samples) {
      return micro_batch(samples, {.first = false, .counting = true});
    };
  }
  options.lasting = LastingMemory(model.all, model.trained, optimizer);
  options.parameters = model.all;
  return options;
}

StepMemory::StepMemory(StepMemoryOptions options) : options_(std::move(options)) {
  for (const NamedParameter& parameter : options_.parameters) {
    const absl::StatusOr<Tensor> value = parameter.value.Value();
    if (value.ok()) known_.insert(value->buffer().get());
  }
  for (const Tensor& total : options_.totals) known_.insert(total.buffer().get());
}

// Of tensors from outside beside parameters and totals: constants of the user's own, each once.
int64_t StepMemory::ConstantBytes(const Program& program) const {
  int64_t bytes = 0;
  std::set<const Buffer*> seen;
  for (const Value& value : program.values) {
    if (value.storage != Storage::kBound) continue;
    const Buffer* const buffer = value.bound.buffer().get();
    if (known_.count(buffer) == 0 && seen.insert(buffer).second) bytes += buffer->bytes();
  }
  return bytes;
}

absl::StatusOr<StepMemory::Peak> StepMemory::At(int64_t micro_batch) {
  Peak peak{.micro_batch = micro_batch, .lasting_bytes = Sum(options_.lasting)};
  const auto plan_of = [&](const Program& program) -> absl::StatusOr<Plan> {
    GM_ASSIGN_OR_RETURN(const std::vector<int64_t> workspaces, options_.workspaces(program));
    return MakePlan(program, workspaces);
  };
  const auto add = [&](const Program& program) -> absl::Status {
    GM_ASSIGN_OR_RETURN(const Plan plan, plan_of(program));
    if (plan.arena_bytes > peak.arena_bytes) {
      peak.arena_bytes = plan.arena_bytes;
      peak.live = LiveItems(plan);
    }
    if (options_.copies_inputs) peak.input_bytes = std::max(peak.input_bytes, plan.input_bytes);
    peak.other_bytes = std::max(peak.other_bytes, ConstantBytes(program));
    return absl::OkStatus();
  };
  GM_ASSIGN_OR_RETURN(const Program first, options_.programs.first(micro_batch));
  GM_RETURN_IF_ERROR(add(first));
  const double parts = static_cast<double>(options_.global_batch) / static_cast<double>(micro_batch);
  peak.seconds = PredictSeconds(first, options_.calibration);
  if (micro_batch < options_.global_batch) {
    GM_ASSIGN_OR_RETURN(const Program further, options_.programs.further(micro_batch));
    GM_RETURN_IF_ERROR(add(further));
    peak.seconds += (parts - 1) * PredictSeconds(further, options_.calibration);
    if (options_.programs.counting) {
      GM_ASSIGN_OR_RETURN(const Program counting, options_.programs.counting(micro_batch));
      GM_RETURN_IF_ERROR(add(counting));
      peak.seconds += parts * PredictSeconds(counting, options_.calibration);
    }
  }
  // A loss that only training can compute (one with a Grad of its own) has no evaluation to plan for.
  const absl::StatusOr<Program> evaluation = options_.programs.evaluation(micro_batch);
  if (evaluation.ok()) GM_RETURN_IF_ERROR(add(*evaluation));
  if (norm_arena_bytes_ < 0) {
    GM_ASSIGN_OR_RETURN(const Program norm, options_.programs.norm());
    GM_ASSIGN_OR_RETURN(const Plan plan, plan_of(norm));
    norm_arena_bytes_ = plan.arena_bytes;
  }
  peak.arena_bytes = std::max(peak.arena_bytes, norm_arena_bytes_);
  return peak;
}

absl::StatusOr<int64_t> StepMemory::ArenaBytes(int64_t micro_batch) {
  if (arena_bytes_.count(micro_batch) == 0) GM_RETURN_IF_ERROR(Predict(micro_batch).status());
  return arena_bytes_[micro_batch];
}

absl::StatusOr<StepPrediction> StepMemory::Predict(int64_t micro_batch) {
  GM_ASSIGN_OR_RETURN(const Peak peak, At(micro_batch));
  arena_bytes_[micro_batch] = peak.arena_bytes;
  return StepPrediction{peak.bytes(), peak.seconds};
}

std::vector<MemoryItem> StepMemory::LiveAtPeak(const Peak& peak) const {
  std::vector<MemoryItem> items = options_.lasting;
  items.insert(items.end(), peak.live.begin(), peak.live.end());
  if (peak.input_bytes > 0) items.push_back({"inputs of a micro-batch", "input", peak.input_bytes, ""});
  if (peak.other_bytes > 0) items.push_back({"constants", "constant", peak.other_bytes, ""});
  int64_t live = 0;
  for (const MemoryItem& item : peak.live) live += item.bytes;
  // What alignment and the places between blocks take.
  if (peak.arena_bytes > live) items.push_back({"between tensors", "unused", peak.arena_bytes - live, ""});
  SortLargestFirst(items);
  return items;
}

std::string MemoryTable(absl::Span<const MemoryItem> items, size_t most_rows) {
  std::string text;
  for (size_t i = 0; i < std::min(most_rows, items.size()); ++i) {
    absl::StrAppendFormat(&text, "%16d  %-19s %s\n", items[i].bytes, items[i].role, items[i].name);
  }
  if (items.size() > most_rows) absl::StrAppendFormat(&text, "%16s  and %d more\n", "", items.size() - most_rows);
  return text;
}

}  // namespace gemmill
