// Trainer: optimizer steps over global batches, each computed in micro-batches whose gradients are accumulated. How a
// global batch is split changes nothing but rounding: losses and gradients are normalised by the count of the whole,
// dropout goes by a sample's position in the global batch, and the schedule advances once per optimizer step.
//
// Steps are recorded once per shape of micro-batch and replayed after. The loss function is called again at the second
// use of a recording, the tenth, and from there on whenever their number has doubled (20, 40, 80, ...), to see that it
// still computes the same: a number of the user's own that changes from step to step belongs in a field of the batch,
// or TrainerOptions.trace is to be false.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/data/loader.h"
#include "gemmill/layers/module.h"
#include "gemmill/layers/training/evaluation.h"
#include "gemmill/layers/training/micro_batch.h"
#include "gemmill/layers/training/optimizer.h"
#include "gemmill/layers/training/plan_event.h"
#include "gemmill/layers/training/schedule.h"
#include "gemmill/runtime/comm/communicator.h"
#include "gemmill/runtime/replay.h"
#include "gemmill/runtime/schedule/batch_scheduler.h"
#include "gemmill/runtime/schedule/memory_budget.h"

namespace gemmill {

struct TrainerOptions {
  int64_t global_batch = 0;    // the most samples of a step; a step with fewer (an epoch's last) is fine
  MicroBatch micro_batch = 0;  // samples per forward and backward pass; 0: the whole global batch
  double clip_norm = 0;        // gradients whose global norm is above this are scaled down to it; 0: never
  Schedule schedule = Schedule::Constant();
  // kBf16: the loss function runs inside a PrecisionScope, evaluation too; weights are converted once per step.
  Precision precision = Precision::kF32;
  uint64_t seed = 0;            // of dropout
  bool check_numerics = false;  // stop at the first op that makes a NaN or infinity (CheckNumericsScope); runs eagerly
  bool trace = true;            // record and replay; false: eagerly, for losses whose ops depend on values
  bool passes = true;           // fuse the Steps of recordings (runtime/passes); the bits are the same
  // What Evaluate sums up: loss and count, and of classifiers hits (ClassifierSums). Empty: the loss and its count.
  BatchSums evaluation = nullptr;
  // What all that training holds may take; of recorded steps alone. Data sets and batches of a loader are beside it.
  MemoryBudget memory_budget = {};
  bool tune_micro_batch = false;  // of MicroBatch::Auto: time sizes on the first steps, instead of predicting
  std::function<void(const PlanEvent&)> on_plan = nullptr;  // told of each choice, after its first step
  // The ranks that share every global batch; null: this process alone. Each rank gives Step its own part.
  std::shared_ptr<Communicator> communicator = nullptr;
};

struct StepReport {
  int64_t step = 0;  // 1-based: how many steps have been taken with this one
  double loss = 0;   // of the global batch, before the update
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t samples = 0;
  double seconds = 0;
  double samples_per_second = 0;
  // The loss or a gradient was not finite: weights, optimizer and schedule stay as they were, and `step` does not
  // advance.
  bool skipped = false;
  std::string note;  // what the user should know of, told once: a budget file that cannot be read
};

class Trainer {
 public:
  // `loss` is called for every micro-batch; what it captures must outlive the trainer.
  template <typename OptimizerType>
  static absl::StatusOr<Trainer> Create(const Module& model, OptimizerType optimizer, LossFunction loss,
                                        const TrainerOptions& options) {
    return Make(model, std::make_shared<OptimizerType>(std::move(optimizer)), std::move(loss), options);
  }
  static absl::StatusOr<Trainer> Make(const Module& model, std::shared_ptr<Optimizer> optimizer, LossFunction loss,
                                      const TrainerOptions& options);

  // One optimizer step. The error of the batch, of an op (with its line), of the loss function (what it throws, or a
  // loss that depends on none of the parameters) or of the optimizer; after an error weights and optimizer are as
  // before. A batch without samples is refused.
  absl::Status Validate(const Batch& batch) const;
  absl::StatusOr<StepReport> Step(const Batch& batch, Caller caller = Caller::Here());

  // The mean loss over a data set, in micro-batches, in evaluation mode and without gradients.
  absl::StatusOr<Evaluation> Evaluate(const Dataset& dataset, Caller caller = Caller::Here());

  // The size of the present plan; before the first step, where the scheduler has not chosen yet, that of
  // ResumeMicroBatch or 0.
  int64_t micro_batch() const { return options_.micro_batch > 0 ? options_.micro_batch.samples : resumed_micro_batch_; }
  // Of a run that is resumed: the scheduler's first choice is this one, if it fits.
  void ResumeMicroBatch(int64_t samples) { resumed_micro_batch_ = samples; }

  // The Programs recorded so far, passes included, and the bytes that they share for temporaries.
  std::vector<const Replay*> recordings() const;
  // Calls `watch` after each Step of replayed micro-batches, of the gradients' norm and of the update (profile.h).
  void SetWatch(Replay::Watch watch);

  int64_t steps() const { return steps_; }
  // For checkpoint.h: the optimizer's state, made if there is none yet, and how many steps have been taken.
  absl::StatusOr<std::vector<Optimizer::State>> MakeOptimizerState();
  void SetSteps(int64_t steps, int64_t optimizer_steps);
  const Optimizer& optimizer() const { return *optimizer_; }
  const TrainerOptions& options() const { return options_; }

 private:
  Trainer(Trained trained, std::shared_ptr<Optimizer> optimizer, LossFunction loss, const TrainerOptions& options);

  // A recorded micro-batch: of these fields, in this pass.
  struct Recording {
    std::vector<FieldSpec> fields;
    int64_t samples;
    Pass pass;
    Program recorded;  // as it was traced, before passes
    Replay replay;
    int64_t uses = 0;
  };
  // Null where it would need a larger arena than a plan that is kept to; of one sample the arena grows.
  absl::StatusOr<Recording*> RecordingOf(absl::Span<const Field> fields, int64_t samples, Pass pass, Caller caller);
  absl::Status CheckStillTheSame(Recording& recording, Caller caller);
  // Computes all of the batch, in micro-batches, `eagerly` or replayed.
  absl::Status AddAll(const Batch& batch, Pass pass, bool eagerly, Caller caller);
  absl::Status AddReplayed(const Batch& batch, int64_t start, int64_t stop, Pass pass, Caller caller);
  absl::Status AddEagerly(const Batch& batch, int64_t start, int64_t stop, Pass pass, Caller caller);
  absl::Status TellStepSums(bool updated);
  absl::StatusOr<double> GradientNorm(Caller caller);
  absl::Status MakeTotals();

  // trainer_memory.cc
  struct Planned;
  bool Replays() const { return options_.trace && !options_.check_numerics && !CheckNumericsEnabled(); }
  absl::Status MakePlanner(absl::Span<const Field> fields, Caller caller);
  absl::Status PlanStep(absl::Span<const Field> fields, Caller caller);
  absl::Status TakeMemory();
  absl::Status WithMemory(absl::FunctionRef<absl::Status()> run);
  int64_t OutsideBytes() const;
  void Adopt(const BatchDecision& decision);
  absl::Status ExplainTooLittle(const absl::Status& error) const;
  void AfterStep(const Batch& batch, StepReport& report);
  // trainer_ranks.cc
  absl::Status AgreeIfRanks(const absl::Status& mine) const;
  absl::Status ReduceTotals(std::vector<Var>& totals);
  absl::Status Clear(Pass pass);
  int64_t MostSamples() const;

  Trained trained_;
  std::vector<NamedParameter> all_parameters_;  // frozen and tied ones too
  std::shared_ptr<Optimizer> optimizer_;
  LossFunction loss_;
  std::shared_ptr<Bf16Copies> copies_;  // of parameters that `loss_` uses; null in f32
  TrainerOptions options_;
  Device device_;
  int64_t steps_ = 0;

  std::vector<Var> totals_;         // TotalSpecs: what the present step has added up
  std::vector<Var> global_;         // GlobalSpecs: of a step in parts
  std::vector<double> sum_values_;  // of one StepSum
  // Of replayed steps.
  std::vector<Tensor> total_tensors_;
  std::vector<Tensor> global_tensors_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::unique_ptr<Replay> norm_;
  Tensor norm_value_;
  std::vector<Tensor> inputs_;  // the fields of a micro-batch, key and first sample
  std::shared_ptr<MemoryAccount> account_ = std::make_shared<MemoryAccount>();
  std::shared_ptr<Planned> planned_;  // once the fields of a batch are known
  int64_t resumed_micro_batch_ = 0;
  Tensor key_;
  Tensor first_sample_;
  Replay::Watch watch_;
  std::unique_ptr<Program> update_;  // what is watched of the optimizer
};

}  // namespace gemmill
