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

// The smaller one of the two sizes that predictions are made from: dimensions of 1 would broadcast.
constexpr int64_t kFewSamples = 2;

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

absl::StatusOr<Program> Recorded(const StepPrograms::OfSamples& record, int64_t samples) {
  GM_ASSIGN_OR_RETURN(Program program, record(samples));
  GM_RETURN_IF_ERROR(Check(program));
  return program;
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
      const bool gemm =
          std::holds_alternative<op::MatMul>(step.op) || std::holds_alternative<op::FusedMatMul>(step.op) ||
          std::holds_alternative<op::GroupedMatMul>(step.op) || std::holds_alternative<op::GroupedMatMulWgrad>(step.op);
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
  GM_ASSIGN_OR_RETURN(const Program first, Recorded(options_.programs.first, micro_batch));
  Sources sources{.first = &first, .tell_live = true};
  Program further, counting;
  if (micro_batch < options_.global_batch) {
    GM_ASSIGN_OR_RETURN(further, Recorded(options_.programs.further, micro_batch));
    sources.further = &further;
    if (options_.programs.counting) {
      GM_ASSIGN_OR_RETURN(counting, Recorded(options_.programs.counting, micro_batch));
      sources.counting = &counting;
    }
  }
  // A loss that only training can compute (one with a Grad of its own) has no evaluation to plan for.
  const absl::StatusOr<Program> evaluation = Recorded(options_.programs.evaluation, micro_batch);
  if (evaluation.ok()) sources.evaluation = &*evaluation;
  return PeakOf(micro_batch, sources);
}

absl::StatusOr<StepMemory::Peak> StepMemory::PeakOf(int64_t micro_batch, const Sources& sources) {
  Peak peak{.micro_batch = micro_batch, .lasting_bytes = Sum(options_.lasting)};
  const auto plan_of = [&](const Program& program) -> absl::StatusOr<Plan> {
    GM_ASSIGN_OR_RETURN(const std::vector<int64_t> workspaces, options_.workspaces(program));
    return CheckedPlan(program, workspaces, sources.tell_live);
  };
  for (const Program* const program : {sources.first, sources.further, sources.counting, sources.evaluation}) {
    if (program == nullptr) continue;
    GM_ASSIGN_OR_RETURN(const Plan plan, plan_of(*program));
    if (plan.arena_bytes > peak.arena_bytes) {
      peak.arena_bytes = plan.arena_bytes;
      if (sources.tell_live) peak.live = LiveItems(plan);
    }
    if (options_.copies_inputs) peak.input_bytes = std::max(peak.input_bytes, plan.input_bytes);
    peak.other_bytes = std::max(peak.other_bytes, ConstantBytes(*program));
  }
  const double parts = static_cast<double>(options_.global_batch) / static_cast<double>(micro_batch);
  peak.seconds = PredictSeconds(*sources.first, options_.calibration);
  if (sources.further != nullptr) peak.seconds += (parts - 1) * PredictSeconds(*sources.further, options_.calibration);
  if (sources.counting != nullptr) peak.seconds += parts * PredictSeconds(*sources.counting, options_.calibration);
  if (norm_arena_bytes_ < 0) {
    GM_ASSIGN_OR_RETURN(const Program norm, options_.programs.norm());
    GM_RETURN_IF_ERROR(Check(norm));
    GM_ASSIGN_OR_RETURN(const Plan plan, plan_of(norm));
    norm_arena_bytes_ = plan.arena_bytes;
  }
  peak.arena_bytes = std::max(peak.arena_bytes, norm_arena_bytes_);
  return peak;
}

absl::StatusOr<StepPrediction> StepMemory::Exactly(int64_t micro_batch) {
  // As it is recorded anyway.
  if (sized_.has_value() && (micro_batch == kFewSamples || micro_batch == options_.global_batch)) {
    return Predict(micro_batch);
  }
  GM_ASSIGN_OR_RETURN(const Peak peak, At(micro_batch));
  arena_bytes_[micro_batch] = peak.arena_bytes;
  return StepPrediction{peak.bytes(), peak.seconds};
}

absl::StatusOr<int64_t> StepMemory::ArenaBytes(int64_t micro_batch) {
  if (arena_bytes_.count(micro_batch) == 0) GM_RETURN_IF_ERROR(Exactly(micro_batch).status());
  return arena_bytes_[micro_batch];
}

absl::StatusOr<std::optional<SizedProgram>> StepMemory::SizedOf(const StepPrograms::OfSamples& program) const {
  GM_ASSIGN_OR_RETURN(Program most, Recorded(program, options_.global_batch));
  GM_ASSIGN_OR_RETURN(const Program few, Recorded(program, kFewSamples));
  return SizedProgram::Between(std::move(most), options_.global_batch, few, kFewSamples);
}

absl::StatusOr<std::optional<StepMemory::Sized>> StepMemory::MakeSized() const {
  GM_ASSIGN_OR_RETURN(std::optional<SizedProgram> first, SizedOf(options_.programs.first));
  GM_ASSIGN_OR_RETURN(std::optional<SizedProgram> further, SizedOf(options_.programs.further));
  if (!first.has_value() || !further.has_value()) return std::nullopt;
  Sized sized{*std::move(first), *std::move(further), std::nullopt, std::nullopt};
  if (options_.programs.counting) {
    GM_ASSIGN_OR_RETURN(sized.counting, SizedOf(options_.programs.counting));
    if (!sized.counting.has_value()) return std::nullopt;
  }
  absl::StatusOr<std::optional<SizedProgram>> evaluation = SizedOf(options_.programs.evaluation);
  if (evaluation.ok() && !evaluation->has_value()) return std::nullopt;
  if (evaluation.ok()) sized.evaluation = **std::move(evaluation);
  return sized;
}

absl::StatusOr<StepPrediction> StepMemory::Predict(int64_t micro_batch) {
  constexpr int64_t kFewSizes = 8;  // of so few samples all sizes are recorded
  if (options_.global_batch < kFewSizes) return Exactly(micro_batch);
  if (!std::exchange(sized_made_, true)) {
    GM_ASSIGN_OR_RETURN(sized_, MakeSized());
  }
  if (!sized_.has_value()) return Exactly(micro_batch);
  Sources sources{.first = &sized_->first.For(micro_batch)};
  if (micro_batch < options_.global_batch) {
    sources.further = &sized_->further.For(micro_batch);
    if (sized_->counting.has_value()) sources.counting = &sized_->counting->For(micro_batch);
  }
  if (sized_->evaluation.has_value()) sources.evaluation = &sized_->evaluation->For(micro_batch);
  GM_ASSIGN_OR_RETURN(const Peak peak, PeakOf(micro_batch, sources));
  arena_bytes_.emplace(micro_batch, peak.arena_bytes);
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
