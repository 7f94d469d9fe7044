#include "gemmill/layers/training/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/layers/training/step_memory.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/passes/passes.h"

namespace gemmill {
namespace {

// Samples [start, stop) of every field.
absl::Status TakeRows(absl::Span<const Field> fields, int64_t start, int64_t stop, std::vector<Tensor>& rows) {
  rows.clear();
  for (const Field& field : fields) {
    GM_ASSIGN_OR_RETURN(Tensor values, field.values.Rows(start, stop));
    rows.push_back(std::move(values));
  }
  return absl::OkStatus();
}

double ReadScalar(const Tensor& tensor) {
  double wide = 0;
  float narrow = 0;
  const bool is_wide = tensor.dtype() == DType::kF64;
  const absl::Status read =
      CopyToHost(tensor.data(), is_wide ? static_cast<void*>(&wide) : &narrow, tensor.spec().bytes(), tensor.device());
  if (!read.ok()) return std::numeric_limits<double>::quiet_NaN();
  return is_wide ? wide : static_cast<double>(narrow);
}

// At which uses of a recording the loss function is called again.
bool IsChecked(int64_t use) {
  return use == 2 || (use % 10 == 0 && std::has_single_bit(static_cast<uint64_t>(use / 10)));
}

// Of what cannot be recorded, such as a loss that reads values.
absl::Status WithEagerHint(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(), "; with TrainerOptions.trace = false nothing is recorded"));
}

}  // namespace

absl::StatusOr<Trainer> Trainer::Make(const Module& model, std::shared_ptr<Optimizer> optimizer, LossFunction loss,
                                      const TrainerOptions& options) {
  if (optimizer == nullptr) return InvalidArgument("the optimizer is null");
  if (loss == nullptr) return InvalidArgument("the loss function is empty");
  if (options.global_batch < 1) {
    return InvalidArgument("global_batch is ", options.global_batch, ", expected at least 1");
  }
  if (options.micro_batch < 0 || options.micro_batch > options.global_batch) {
    return InvalidArgument("micro_batch is ", options.micro_batch.samples, ", expected 1 to the global_batch of ",
                           options.global_batch);
  }
  const bool eager = !options.trace || options.check_numerics;
  if (eager && (options.memory_budget.stated() || options.tune_micro_batch)) {
    return InvalidArgument(options.tune_micro_batch ? "tune_micro_batch" : "memory_budget",
                           " plans recorded steps, and ", options.trace ? "check_numerics" : "trace = false",
                           " runs eagerly; set one of them");
  }
  if (options.tune_micro_batch && !options.micro_batch.automatic) {
    return InvalidArgument("tune_micro_batch times sizes of micro-batches, and micro_batch is ",
                           options.micro_batch.samples, " already; set one of them");
  }
  if (!(options.clip_norm >= 0)) return InvalidArgument("clip_norm is ", options.clip_norm, ", expected 0 or more");
  GM_RETURN_IF_ERROR(options.schedule.Check());
  GM_RETURN_IF_ERROR(optimizer->Validate());
  Trained trained{model.trainable(), model.step_sums()};
  if (trained.parameters.empty()) return InvalidArgument("the model has no parameters to train; are all frozen?");
  Trainer trainer(std::move(trained), std::move(optimizer), std::move(loss), options);
  trainer.all_parameters_ = model.named_parameters();
  return trainer;
}

Trainer::Trainer(Trained trained, std::shared_ptr<Optimizer> optimizer, LossFunction loss,
                 const TrainerOptions& options)
    : trained_(std::move(trained)),
      optimizer_(std::move(optimizer)),
      loss_(std::move(loss)),
      options_(options),
      device_(trained_.device()) {
  // Eager steps are not planned: of those auto is the whole global batch.
  const bool automatic = options_.micro_batch.automatic && options_.trace && !options_.check_numerics;
  if (options_.micro_batch == 0 && !automatic) options_.micro_batch = MostSamples();
  if (options_.precision == Precision::kF32) return;
  copies_ = std::make_shared<Bf16Copies>();
  loss_ = [function = std::move(loss_), copies = copies_, precision = options_.precision](const Inputs& inputs) {
    const PrecisionScope scope(precision, copies);
    return function(inputs);
  };
  if (options_.evaluation != nullptr) {
    options_.evaluation = InPrecision(std::move(options_.evaluation), options_.precision, copies_);
  }
}

absl::Status Trainer::Validate(const Batch& batch) const {
  GM_RETURN_IF_ERROR(batch.status);
  const bool shared = options_.communicator != nullptr && batch.global_samples > 0;
  if (batch.samples < (shared ? 0 : 1) || batch.samples > MostSamples()) {
    return InvalidArgument("the batch has ", batch.samples, " samples, expected 1 to the global_batch of ",
                           MostSamples());
  }
  for (const NamedParameter& parameter : trained_.parameters) {
    if (parameter.value.requires_grad()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", parameter.name, " was frozen after the trainer was made; make another trainer"));
  }
  for (const Field& field : batch.fields) {
    if (field.values.spec().rank() == 0 || field.values.shape()[0] != batch.samples) {
      return InvalidArgument("the batch has ", batch.samples, " samples, but its field \"", field.name, "\" is ",
                             field.values.spec().ToString());
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::MakeTotals() {
  if (!total_tensors_.empty()) return absl::OkStatus();
  if (arena_ == nullptr) arena_ = std::make_shared<Arena>(device_);
  GM_ASSIGN_OR_RETURN(key_, Tensor::Zeros(Spec{{2}, DType::kI64, device_}));
  GM_ASSIGN_OR_RETURN(first_sample_, Tensor::Zeros(Spec{{}, DType::kI64, device_}));
  GM_ASSIGN_OR_RETURN(norm_value_, Tensor::Zeros(Spec{{}, DType::kF32, device_}));
  const auto make = [](const std::vector<Spec>& specs) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> tensors;
    for (const Spec& spec : specs) {
      GM_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Empty(spec));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  };
  if (trained_.CountsFirst()) {
    GM_ASSIGN_OR_RETURN(global_tensors_, make(GlobalSpecs(trained_)));
  }
  GM_ASSIGN_OR_RETURN(total_tensors_, make(TotalSpecs(trained_)));
  return absl::OkStatus();
}

absl::StatusOr<Trainer::Recording*> Trainer::RecordingOf(absl::Span<const Field> fields, int64_t samples, Pass pass,
                                                         Caller caller) {
  const auto same = [&](const Recording& recording) {
    if (recording.pass != pass || recording.samples != samples || recording.fields.size() != fields.size())
      return false;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (recording.fields[i].spec != inputs_[i].spec() || recording.fields[i].name != fields[i].name) return false;
    }
    return true;
  };
  for (const auto& recording : recordings_) {
    if (!same(*recording)) continue;
    const bool fits = samples == 1 || recording->replay.plan().arena_bytes <= arena_->bytes();
    return fits ? recording.get() : nullptr;
  }
  std::vector<FieldSpec> specs;
  for (size_t i = 0; i < fields.size(); ++i) specs.push_back({fields[i].name, inputs_[i].spec()});
  absl::StatusOr<Program> program =
      TraceMicroBatch(loss_, specs, samples, trained_, pass, total_tensors_, global_tensors_, caller);
  if (!program.ok()) return WithEagerHint(program.status());
  Program passed = options_.passes ? passes::Default(*program) : *program;
  // Without a budget to keep to, a short micro-batch that needs more than a whole one has it, and eager's bits.
  const bool keeps_to_plan = options_.micro_batch.automatic || options_.memory_budget.stated();
  if (keeps_to_plan && samples > 1 && samples != options_.micro_batch) {
    GM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(passed));
    if (plan.arena_bytes > arena_->bytes()) return nullptr;
  }
  GM_ASSIGN_OR_RETURN(Replay replay, Replay::Create(std::move(passed), arena_));
  replay.SetWatch(watch_);
  recordings_.push_back(
      std::make_unique<Recording>(Recording{std::move(specs), samples, pass, *std::move(program), std::move(replay)}));
  return recordings_.back().get();
}

absl::Status Trainer::CheckStillTheSame(Recording& recording, Caller caller) {
  const absl::StatusOr<Program> now = TraceMicroBatch(loss_, recording.fields, recording.samples, trained_,
                                                      recording.pass, total_tensors_, global_tensors_, caller);
  if (!now.ok()) return WithEagerHint(now.status());
  const std::optional<std::string> difference = FirstDifference(recording.recorded, *now);
  if (!difference.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the loss function does not compute what was recorded: ", *difference,
      ". Pass what changes from step to step as a field of the batch, or set TrainerOptions.trace to false"));
}

absl::Status Trainer::AddAll(const Batch& batch, Pass pass, bool eagerly, Caller caller) {
  if (batch.samples == 0) return Clear(pass);
  for (int64_t start = 0; start < batch.samples; start += options_.micro_batch) {
    const int64_t stop = std::min(batch.samples, start + options_.micro_batch);
    GM_RETURN_IF_ERROR(eagerly ? AddEagerly(batch, start, stop, pass, caller)
                               : AddReplayed(batch, start, stop, pass, caller));
  }
  return Stream::Default(device_).Synchronize();
}

absl::Status Trainer::AddReplayed(const Batch& batch, int64_t start, int64_t stop, Pass pass, Caller caller) {
  GM_RETURN_IF_ERROR(MakeTotals());
  GM_RETURN_IF_ERROR(TakeRows(batch.fields, start, stop, inputs_));
  for (Tensor& input : inputs_) {
    if (input.device() == device_) continue;
    GM_ASSIGN_OR_RETURN(input, input.To(device_));
  }
  pass.first = start == 0;
  GM_ASSIGN_OR_RETURN(Recording* const recording, RecordingOf(batch.fields, stop - start, pass, caller));
  if (recording == nullptr) {
    const int64_t middle = start + (stop - start + 1) / 2;
    GM_RETURN_IF_ERROR(AddReplayed(batch, start, middle, pass, caller));
    return AddReplayed(batch, middle, stop, pass, caller);
  }
  const int64_t use = recording->uses + 1;
  if (IsChecked(use)) GM_RETURN_IF_ERROR(CheckStillTheSame(*recording, caller));
  recording->uses = use;
  const int64_t key[] = {static_cast<int64_t>(options_.seed), steps_};
  const int64_t first_sample = batch.rank_offset + start;
  GM_RETURN_IF_ERROR(CopyFromHost(key, key_.data(), sizeof(key), device_));
  GM_RETURN_IF_ERROR(CopyFromHost(&first_sample, first_sample_.data(), sizeof(first_sample), device_));
  inputs_.push_back(key_);
  inputs_.push_back(first_sample_);
  GM_RETURN_IF_ERROR(recording->replay.Run(inputs_));
  std::vector<Var>& totals = pass.counting ? global_ : totals_;
  const std::vector<Tensor>& tensors = pass.counting ? global_tensors_ : total_tensors_;
  if (start > 0 || (!totals.empty() && totals[0].node()->values[0].buffer() == tensors[0].buffer())) {
    return absl::OkStatus();
  }
  totals = std::vector<Var>(tensors.begin(), tensors.end());
  return absl::OkStatus();
}

absl::Status Trainer::AddEagerly(const Batch& batch, int64_t start, int64_t stop, Pass pass, Caller caller) {
  GM_RETURN_IF_ERROR(TakeRows(batch.fields, start, stop, inputs_));
  std::vector<Field> fields;
  for (size_t i = 0; i < inputs_.size(); ++i) fields.push_back({batch.fields[i].name, inputs_[i]});
  const RandomVars random = MakeRandomVars({options_.seed, steps_, batch.rank_offset + start, stop - start}, device_);
  std::vector<Var>& before = pass.counting ? global_ : totals_;
  if (start == 0) before.clear();
  std::vector<Var> totals = TotalsWith(before, loss_, Inputs(fields, device_), random, trained_, pass, global_, caller);
  for (const Var& total : totals) GM_RETURN_IF_ERROR(total.status());
  before = std::move(totals);
  return absl::OkStatus();
}

// Of what was added up, before it is divided by its count.
absl::StatusOr<double> Trainer::GradientNorm(Caller caller) {
  const auto norm = [&] {
    const absl::Span<const Var> gradients = GradientsOf(trained_, totals_);
    return Apply1(op::GlobalNorm{}, {gradients.begin(), gradients.end()}, caller);
  };
  if (total_tensors_.empty() || totals_[0].node()->values[0].buffer() != total_tensors_[0].buffer()) {
    return norm().Item();
  }
  if (norm_ == nullptr) {
    GM_ASSIGN_OR_RETURN(Program program, GradientNormProgram(GradientsOf(trained_, total_tensors_), caller));
    GM_RETURN_IF_ERROR(WriteInto(program, 0, norm_value_));
    GM_ASSIGN_OR_RETURN(Replay replay, Replay::Create(std::move(program), arena_));
    replay.SetWatch(watch_);
    norm_ = std::make_unique<Replay>(std::move(replay));
  }
  GM_RETURN_IF_ERROR(norm_->Run({}));
  return ReadScalar(norm_value_);
}

absl::StatusOr<StepReport> Trainer::Step(const Batch& batch, Caller caller) {
  const Stopwatch watch;
  const MemoryAccountScope account(account_);
  absl::Status ready = Validate(batch);
  const CheckNumericsScope check(options_.check_numerics || CheckNumericsEnabled());
  const bool eagerly = !options_.trace || CheckNumericsEnabled();
  if (ready.ok() && !eagerly) ready = WithEagerHint(PlanStep(batch.fields, caller));
  GM_RETURN_IF_ERROR(AgreeIfRanks(ready));
  bool refreshed = false;
  bool counted = false;
  const auto add = [&](bool counting) -> absl::Status {
    if (copies_ != nullptr && !std::exchange(refreshed, true)) GM_RETURN_IF_ERROR(copies_->Refresh(watch_));
    const bool part =
        trained_.CountsFirst() && (options_.communicator != nullptr || batch.samples > options_.micro_batch);
    if (part && !counted) {
      GM_RETURN_IF_ERROR(AddAll(batch, {.counting = true}, eagerly, caller));
      counted = true;
    }
    return counting ? absl::OkStatus() : AddAll(batch, {.part = part}, eagerly, caller);
  };
  const auto run = [&](bool counting) {
    return AgreeIfRanks(eagerly ? add(counting) : WithMemory([&] { return add(counting); }));
  };
  if (options_.communicator != nullptr && trained_.CountsFirst()) {
    GM_RETURN_IF_ERROR(run(/*counting=*/true));
    GM_RETURN_IF_ERROR(ReduceTotals(global_));
  }
  GM_RETURN_IF_ERROR(run(/*counting=*/false));
  GM_RETURN_IF_ERROR(ReduceTotals(totals_));
  GM_ASSIGN_OR_RETURN(const double norm_of_sum, GradientNorm(caller));
  const double sum = ReadScalar(totals_[0].node()->values[totals_[0].output()]);
  const double count = ReadScalar(totals_[1].node()->values[totals_[1].output()]);

  UpdateControl control{options_.schedule.Factor(steps_), count > 0 ? 1 / count : 1};
  StepReport report;
  report.loss = sum * control.gradient_scale;
  report.gradient_norm = norm_of_sum * control.gradient_scale;
  report.learning_rate = optimizer_->learning_rate() * control.learning_rate_factor;
  report.samples = options_.communicator != nullptr ? batch.global_samples : batch.samples;
  report.skipped = !std::isfinite(norm_of_sum) || !std::isfinite(sum) || !std::isfinite(count);
  if (!report.skipped) {
    // As torch.nn.utils.clip_grad_norm_ has it, epsilon included.
    if (options_.clip_norm > 0) {
      control.gradient_scale *= std::min(1.0, options_.clip_norm / (report.gradient_norm + 1e-6));
    }
    const Stopwatch update;
    GM_RETURN_IF_ERROR(optimizer_->Apply(trained_.parameters, GradientsOf(trained_, totals_), control));
    GM_RETURN_IF_ERROR(Stream::Default(device_).Synchronize());
    if (watch_) {
      const double seconds = update.Seconds();
      if (update_ == nullptr) update_ = std::make_unique<Program>(optimizer_->UpdateProgram(caller));
      watch_(*update_, 0, seconds);
    }
    ++steps_;
  }
  GM_RETURN_IF_ERROR(TellStepSums(!report.skipped));
  report.step = steps_;
  report.seconds = watch.Seconds();
  report.samples_per_second = static_cast<double>(report.samples) / std::max(report.seconds, 1e-9);
  if (!eagerly) AfterStep(batch, report);
  return report;
}

absl::Status Trainer::TellStepSums(bool updated) {
  for (size_t i = 0; i < trained_.sums.size(); ++i) {
    GM_ASSIGN_OR_RETURN(const Tensor sum, totals_[2 + trained_.parameters.size() + i].Value());
    sum_values_.resize(static_cast<size_t>(sum.spec().num_elements()));
    GM_RETURN_IF_ERROR(CopyToHost(sum.data(), sum_values_.data(), sum.spec().bytes(), sum.device()));
    GM_RETURN_IF_ERROR(trained_.sums[i]->after_step(sum_values_, updated));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Optimizer::State>> Trainer::MakeOptimizerState() {
  GM_RETURN_IF_ERROR(optimizer_->MakeState(trained_.parameters));
  return optimizer_->state();
}

void Trainer::SetSteps(int64_t steps, int64_t optimizer_steps) {
  steps_ = steps;
  optimizer_->SetSteps(optimizer_steps);
}

std::vector<const Replay*> Trainer::recordings() const {
  std::vector<const Replay*> replays;
  for (const auto& recording : recordings_) replays.push_back(&recording->replay);
  return replays;
}

void Trainer::SetWatch(Replay::Watch watch) {
  watch_ = std::move(watch);
  for (const auto& recording : recordings_) recording->replay.SetWatch(watch_);
  if (norm_ != nullptr) norm_->SetWatch(watch_);
}

}  // namespace gemmill
