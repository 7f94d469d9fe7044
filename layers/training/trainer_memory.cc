// How Trainer plans its steps' memory and takes it: everything at once before a step runs, nothing while it does.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/layers/training/step_memory.h"
#include "gemmill/layers/training/trainer.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/passes/passes.h"
#include "gemmill/runtime/schedule/batch_scheduler.h"

namespace gemmill {
namespace {

// The smallest budget of which `bytes` remain beside the reserve.
int64_t BudgetFor(int64_t bytes) {
  int64_t budget = bytes + std::min(bytes / 19 + 2, int64_t{256} << 20);
  while (budget - 1 - MemoryReserve(budget - 1) >= bytes) --budget;
  return budget;
}

}  // namespace

struct Trainer::Planned {
  std::shared_ptr<StepMemory> memory;
  BatchScheduler scheduler;
  RecordedSums evaluation;
  int64_t parameter_bytes = 0;
  bool decided = false;
  bool resize = false;   // the arena is to become as large as the plan's
  bool pending = false;  // the plan has not been told of
  double decide_seconds = 0;
  std::string note;
};

absl::Status Trainer::MakePlanner(absl::Span<const Field> fields, Caller caller) {
  std::vector<FieldSpec> specs;
  for (const Field& field : fields) {
    specs.push_back({field.name, field.values.spec()});
    specs.back().spec.device = device_;
  }
  const BatchSums sums = options_.evaluation != nullptr ? options_.evaluation : LossSums(loss_, caller);
  // A rank sees a part of every global batch.
  const int64_t whole = options_.communicator != nullptr ? std::numeric_limits<int64_t>::max() : MostSamples();
  GM_ASSIGN_OR_RETURN(StepMemoryOptions options, StepMemoryOf({.all = all_parameters_,
                                                               .trained = trained_,
                                                               .whole_batch = whole,
                                                               .loss = loss_,
                                                               .evaluation = sums,
                                                               .fields = std::move(specs),
                                                               .passes = options_.passes},
                                                              *optimizer_, caller));
  options.copies_inputs = device_ != Device::Cpu();
  options.global_batch = MostSamples();
  // What is predicted of a size of the user's own is compared with nothing.
  options.calibration = Calibration::Of({.flops_per_second = 1e11, .bytes_per_second = 1e10});
  std::string note;
  if (options_.micro_batch.automatic) {
    const MemoryAccountScope measured_elsewhere(nullptr);
    const absl::StatusOr<Calibration> calibration = CalibrationOfThisMachine(&note);
    if (calibration.ok()) options.calibration = *calibration;
  }
  int64_t parameter_bytes = 0;
  for (const MemoryItem& item : options.lasting) parameter_bytes += item.role == "parameter" ? item.bytes : 0;
  const auto memory = std::make_shared<StepMemory>(std::move(options));
  if (arena_ == nullptr) arena_ = std::make_shared<Arena>(device_);
  BatchScheduler scheduler(MicroBatchChooser(
                               MostSamples(), [memory](int64_t samples) { return memory->Predict(samples); },
                               [memory](int64_t samples) { return memory->Exactly(samples); }),
                           {.fixed = options_.micro_batch.automatic ? 0 : options_.micro_batch.samples,
                            .refuse = options_.memory_budget.stated(),
                            .find_most = options_.on_plan != nullptr,
                            .resumed = std::min(resumed_micro_batch_, MostSamples()),
                            .tune = options_.tune_micro_batch});
  planned_ = std::make_shared<Planned>(Planned{.memory = memory,
                                               .scheduler = std::move(scheduler),
                                               .evaluation = RecordedSums(sums, arena_, /*grow=*/false),
                                               .parameter_bytes = parameter_bytes,
                                               .note = std::move(note)});
  return absl::OkStatus();
}

absl::Status Trainer::PlanStep(absl::Span<const Field> fields, Caller caller) {
  const Stopwatch watch;
  if (planned_ == nullptr) GM_RETURN_IF_ERROR(MakePlanner(fields, caller));
  Planned& planned = *planned_;
  if (planned.decided && !options_.micro_batch.automatic) return absl::OkStatus();
  const int64_t ranks = options_.communicator != nullptr ? options_.communicator->ranks_on_host() : 1;
  const int64_t budget = options_.memory_budget.Read(device_, account_->in_use() + planned.parameter_bytes, ranks);
  const absl::StatusOr<std::optional<BatchDecision>> decision = planned.scheduler.Next(budget);
  if (!decision.ok()) {
    absl::Status error = decision.status();
    if (error.code() == absl::StatusCode::kResourceExhausted) error = ExplainTooLittle(error);
    planned_ = nullptr;
    return error;
  }
  if (!decision->has_value()) return absl::OkStatus();
  Adopt(**decision);
  planned.decide_seconds = watch.Seconds();
  return absl::OkStatus();
}

void Trainer::Adopt(const BatchDecision& decision) {
  options_.micro_batch.samples = decision.micro_batch;
  planned_->decided = true;
  planned_->resize = true;
  planned_->pending = true;
}

absl::Status Trainer::ExplainTooLittle(const absl::Status& error) const {
  GM_ASSIGN_OR_RETURN(const StepMemory::Peak peak, planned_->memory->At(1));
  const std::vector<MemoryItem> items = planned_->memory->LiveAtPeak(peak);
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(5, items.size()); ++i) {
    absl::StrAppend(&largest, i > 0 ? ", " : "", items[i].name, " (", items[i].role, ", ", items[i].bytes, ")");
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(std::string(error.message()), ". The largest tensors, with their bytes: ", largest,
                   ". One sample fits from a budget of ", BudgetFor(peak.bytes()),
                   " bytes on; narrower layers, and an optimizer with less state (sgd without momentum has none), need "
                   "less"));
}

absl::Status Trainer::TakeMemory() {
  if (planned_->resize) {
    GM_RETURN_IF_ERROR(arena_->Resize(0));
    account_->ResetPeak();
    GM_ASSIGN_OR_RETURN(const int64_t bytes, planned_->memory->ArenaBytes(options_.micro_batch));
    GM_RETURN_IF_ERROR(arena_->Resize(bytes));
    planned_->resize = false;
  }
  GM_RETURN_IF_ERROR(MakeTotals());
  return optimizer_->MakeState(trained_.parameters);
}

// Runs what a step, or an evaluation, does. Where memory fails all the same it is done again, from its start, in
// smaller micro-batches.
absl::Status Trainer::WithMemory(absl::FunctionRef<absl::Status()> run) {
  while (true) {
    absl::Status done = TakeMemory();
    if (done.ok()) done = run();
    if (done.code() != absl::StatusCode::kResourceExhausted) return done;
    GM_ASSIGN_OR_RETURN(const std::optional<BatchDecision> smaller, planned_->scheduler.AfterFailedAllocation());
    if (!smaller.has_value()) return done;
    Adopt(*smaller);
  }
}

// Of what lies outside of this trainer's account and is planned all the same.
int64_t Trainer::OutsideBytes() const {
  std::set<const Buffer*> seen;
  int64_t bytes = 0;
  const auto add = [&](const Tensor& tensor) {
    const Buffer* const buffer = tensor.buffer().get();
    if (seen.insert(buffer).second && buffer->account() != account_.get()) bytes += buffer->bytes();
  };
  for (const NamedParameter& parameter : all_parameters_) {
    const absl::StatusOr<Tensor> value = parameter.value.Value();
    if (value.ok()) add(*value);
  }
  for (const auto& recording : recordings_) {
    for (const Value& value : recording->replay.program().values) {
      if (value.storage == Storage::kBound) add(value.bound);
    }
  }
  return bytes;
}

void Trainer::AfterStep(const Batch& batch, StepReport& report) {
  Planned& planned = *planned_;
  if (batch.samples == MostSamples()) planned.scheduler.Took(report.seconds / static_cast<double>(batch.samples));
  report.note = std::exchange(planned.note, "");
  if (report.note.empty()) report.note = options_.memory_budget.TakeNote();
  if (!std::exchange(planned.pending, false) || options_.on_plan == nullptr) return;
  const BatchDecision& decision = planned.scheduler.current();
  options_.on_plan({.step = report.step,
                    .micro_batch = decision.micro_batch,
                    .predicted_bytes = decision.predicted_bytes,
                    .measured_bytes = account_->peak() + OutsideBytes(),
                    .resident_bytes = ResidentBytes(),
                    .budget_bytes = decision.budget_bytes,
                    .max_micro_batch = decision.max_micro_batch,
                    .reason = decision.reason,
                    .decide_seconds = planned.decide_seconds});
}

absl::StatusOr<Evaluation> Trainer::Evaluate(const Dataset& dataset, Caller caller) {
  const Stopwatch watch;
  const BatchSums sums = options_.evaluation != nullptr ? options_.evaluation : LossSums(loss_, caller);
  std::vector<double> totals;
  if (copies_ != nullptr) GM_RETURN_IF_ERROR(copies_->Refresh());
  if (!Replays() || (planned_ == nullptr && !options_.micro_batch.automatic)) {
    GM_ASSIGN_OR_RETURN(totals, SumOver(dataset, options_.micro_batch, device_, Replays(), sums));
  } else {
    const MemoryAccountScope account(account_);
    if (planned_ == nullptr) {
      GM_ASSIGN_OR_RETURN(const std::vector<Field> fields, dataset.Gather({}));
      GM_RETURN_IF_ERROR(PlanStep(fields, caller));
    }
    GM_RETURN_IF_ERROR(WithMemory([&]() -> absl::Status {
      GM_ASSIGN_OR_RETURN(totals, SumOver(dataset, options_.micro_batch, planned_->evaluation));
      return absl::OkStatus();
    }));
  }
  Evaluation evaluation;
  evaluation.loss = totals[1] > 0 ? totals[0] / totals[1] : 0;
  if (totals.size() > 2 && totals[1] > 0) evaluation.accuracy = totals[2] / totals[1];
  evaluation.samples = dataset.size();
  evaluation.seconds = watch.Seconds();
  return evaluation;
}

}  // namespace gemmill
