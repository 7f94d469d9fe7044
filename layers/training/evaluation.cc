#include "gemmill/layers/training/evaluation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "gemmill/autograd/trace.h"
#include "gemmill/runtime/passes/passes.h"
#include "gemmill/runtime/plan.h"

namespace gemmill {
namespace {

// Calls add(batch, totals) for each batch.
template <typename Add>
absl::StatusOr<std::vector<double>> SumOfBatches(const Dataset& dataset, int64_t batch_size, const Add& add) {
  const NoGradScope no_grad;
  std::vector<double> totals;
  // Batches are data of the host's, and none is read ahead for an epoch that does not come.
  const std::shared_ptr<MemoryAccount> account = MemoryAccountScope::Current();
  const MemoryAccountScope host_data(nullptr);
  const int64_t size = std::min(batch_size, dataset.size());
  const int64_t ahead = size > 0 ? std::min<int64_t>(2, (dataset.size() - 1) / size) : 0;
  GM_ASSIGN_OR_RETURN(Loader loader,
                      Loader::Create(dataset, {.global_batch = size, .shuffle = false, .prefetch = ahead}));
  for (const Batch& batch : loader) {
    GM_RETURN_IF_ERROR(batch.status);
    const MemoryAccountScope counted(account);
    GM_RETURN_IF_ERROR(add(batch, totals));
  }
  if (totals.empty()) return InvalidArgument("the data set has no samples to evaluate");
  return totals;
}

absl::Status AddTo(std::vector<double>& totals, const std::vector<Var>& values) {
  totals.resize(values.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    GM_ASSIGN_OR_RETURN(const double value, values[i].Item());
    totals[i] += value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> EvaluationProgram(const BatchSums& sums, absl::Span<const FieldSpec> fields, int64_t samples) {
  const NoGradScope no_grad;
  std::vector<Spec> specs;
  for (const FieldSpec& field : fields) specs.push_back(field.spec);
  const auto record = [&](const std::vector<Var>& vars) {
    Inputs named;
    for (size_t i = 0; i < vars.size(); ++i) named.Add(fields[i].name, vars[i]);
    return sums(named, samples);
  };
  GM_ASSIGN_OR_RETURN(const Program program, Trace(record, specs));
  return passes::Default(program);
}

absl::StatusOr<Replay*> RecordedSums::ReplayOf(std::vector<FieldSpec> fields, int64_t samples) {
  const auto fits = [&](const Plan& plan) { return grow_ || samples == 1 || plan.arena_bytes <= arena_->bytes(); };
  for (const auto& recorded : recorded_) {
    if (recorded->fields != fields) continue;
    return fits(recorded->replay.plan()) ? &recorded->replay : nullptr;
  }
  GM_ASSIGN_OR_RETURN(Program program, EvaluationProgram(sums_, fields, samples));
  if (!grow_) {
    GM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(program));
    if (!fits(plan)) return nullptr;
  }
  GM_ASSIGN_OR_RETURN(Replay replay, Replay::Create(std::move(program), arena_));
  recorded_.push_back(std::make_unique<Recorded>(Recorded{std::move(fields), std::move(replay)}));
  return &recorded_.back()->replay;
}

absl::Status RecordedSums::Add(const Batch& batch, int64_t start, int64_t stop, std::vector<double>& totals) {
  std::vector<Tensor> inputs;
  std::vector<FieldSpec> fields;
  for (const Field& field : batch.fields) {
    GM_ASSIGN_OR_RETURN(const Tensor rows, field.values.Rows(start, stop));
    GM_ASSIGN_OR_RETURN(Tensor moved, rows.To(arena_->device()));
    fields.push_back({field.name, moved.spec()});
    inputs.push_back(std::move(moved));
  }
  GM_ASSIGN_OR_RETURN(Replay* const replay, ReplayOf(std::move(fields), stop - start));
  if (replay == nullptr) {
    const int64_t middle = start + (stop - start + 1) / 2;
    GM_RETURN_IF_ERROR(Add(batch, start, middle, totals));
    return Add(batch, middle, stop, totals);
  }
  GM_RETURN_IF_ERROR(replay->Run(inputs));
  std::vector<Var> values;
  for (size_t i = 0; i < replay->program().outputs.size(); ++i) values.emplace_back(replay->output(i));
  return AddTo(totals, values);
}

absl::StatusOr<std::vector<double>> SumOver(const Dataset& dataset, int64_t batch_size, RecordedSums& recorded) {
  return SumOfBatches(dataset, batch_size, [&](const Batch& batch, std::vector<double>& totals) {
    return recorded.Add(batch, 0, batch.samples, totals);
  });
}

absl::StatusOr<std::vector<double>> SumOver(const Dataset& dataset, int64_t batch_size, Device device, bool replay,
                                            const BatchSums& sums) {
  if (replay) {
    RecordedSums recorded(sums, std::make_shared<Arena>(device), /*grow=*/true);
    return SumOver(dataset, batch_size, recorded);
  }
  return SumOfBatches(dataset, batch_size, [&](const Batch& batch, std::vector<double>& totals) {
    return CatchExceptions([&] { return AddTo(totals, sums(Inputs(batch.fields, device), batch.samples)); });
  });
}

BatchSums InPrecision(BatchSums sums, Precision precision, std::shared_ptr<Bf16Copies> copies) {
  return [sums = std::move(sums), precision, copies = std::move(copies)](const Inputs& inputs, int64_t samples) {
    const PrecisionScope scope(precision, copies);
    return sums(inputs, samples);
  };
}

BatchSums LossSums(LossFunction loss, Caller caller) {
  return [loss = std::move(loss), caller](const Inputs& inputs, int64_t samples) {
    const Loss counted = Counted(loss, inputs, samples, caller);
    return std::vector<Var>{counted.sum, counted.count};
  };
}

BatchSums ClassifierSums(LogitsFunction logits, const std::string& label, Caller caller) {
  return [logits = std::move(logits), label, caller](const Inputs& inputs, int64_t) {
    const Var scores = logits(inputs);
    const CallerScope scope(caller);
    const Var labels = Cast(inputs[label], DType::kI64);
    const Loss loss = CrossEntropy(scores, labels);
    return std::vector<Var>{loss.sum, loss.count, Sum(Cast(Equal(ArgMax(scores, -1), labels), DType::kI64))};
  };
}

absl::StatusOr<Evaluation> EvaluateClassifier(const LogitsFunction& logits, const Dataset& dataset, int64_t batch,
                                              Device device, absl::string_view label, Precision precision,
                                              Caller caller) {
  if (logits == nullptr) return InvalidArgument("the function that gives logits is empty");
  if (batch < 1) return InvalidArgument("EvaluateClassifier: batch is ", batch, ", expected at least 1");
  const BatchSums in_precision =
      InPrecision(ClassifierSums(logits, std::string(label), caller), precision, std::make_shared<Bf16Copies>());
  const Stopwatch watch;
  GM_ASSIGN_OR_RETURN(const std::vector<double> sums, SumOver(dataset, batch, device, false, in_precision));
  Evaluation evaluation;
  if (sums[1] > 0) {
    evaluation.loss = sums[0] / sums[1];
    evaluation.accuracy = sums[2] / sums[1];
  }
  evaluation.samples = dataset.size();
  evaluation.seconds = watch.Seconds();
  return evaluation;
}

}  // namespace gemmill
