#include "gemmill/layers/training/evaluation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "gemmill/autograd/trace.h"
#include "gemmill/data/loader.h"
#include "gemmill/runtime/passes/passes.h"
#include "gemmill/runtime/replay.h"

namespace gemmill {
namespace {

// The values of `sums`, recorded for the first batch of a size and replayed for others.
class Recorded {
 public:
  Recorded(const BatchSums& sums, Device device) : sums_(sums), arena_(std::make_shared<Arena>(device)) {}

  absl::StatusOr<std::vector<Var>> operator()(const Batch& batch) {
    std::vector<Tensor> inputs;
    for (const Field& field : batch.fields) {
      GM_ASSIGN_OR_RETURN(Tensor moved, field.values.To(arena_->device()));
      inputs.push_back(std::move(moved));
    }
    auto found = replays_.find(batch.samples);
    if (found == replays_.end()) {
      std::vector<Spec> specs;
      for (const Tensor& input : inputs) specs.push_back(input.spec());
      const auto record = [&](const std::vector<Var>& vars) {
        Inputs named;
        for (size_t i = 0; i < vars.size(); ++i) named.Add(batch.fields[i].name, vars[i]);
        return sums_(named, batch.samples);
      };
      GM_ASSIGN_OR_RETURN(const Program program, Trace(record, specs));
      GM_ASSIGN_OR_RETURN(Replay replay, Replay::Create(passes::Default(program), arena_));
      found = replays_.emplace(batch.samples, std::move(replay)).first;
    }
    GM_RETURN_IF_ERROR(found->second.Run(inputs));
    std::vector<Var> values;
    for (size_t i = 0; i < found->second.program().outputs.size(); ++i) values.emplace_back(found->second.output(i));
    return values;
  }

 private:
  const BatchSums& sums_;
  std::shared_ptr<Arena> arena_;
  std::map<int64_t, Replay> replays_;
};

}  // namespace

absl::StatusOr<std::vector<double>> SumOver(const Dataset& dataset, int64_t batch_size, Device device, bool replay,
                                            const BatchSums& sums) {
  const NoGradScope no_grad;
  Recorded recorded(sums, device);
  std::vector<double> totals;
  GM_ASSIGN_OR_RETURN(
      Loader loader, Loader::Create(dataset, {.global_batch = std::min(batch_size, dataset.size()), .shuffle = false}));
  for (const Batch& batch : loader) {
    GM_RETURN_IF_ERROR(batch.status);
    std::vector<Var> values;
    if (replay) {
      GM_ASSIGN_OR_RETURN(values, recorded(batch));
    } else {
      GM_ASSIGN_OR_RETURN(values, CatchExceptions([&]() -> absl::StatusOr<std::vector<Var>> {
                            return sums(Inputs(batch.fields, device), batch.samples);
                          }));
    }
    totals.resize(values.size(), 0);
    for (size_t i = 0; i < values.size(); ++i) {
      GM_ASSIGN_OR_RETURN(const double value, values[i].Item());
      totals[i] += value;
    }
  }
  if (totals.empty()) return InvalidArgument("the data set has no samples to evaluate");
  return totals;
}

absl::StatusOr<ClassifierEvaluation> EvaluateClassifier(const LogitsFunction& logits, const Dataset& dataset,
                                                        int64_t batch, Device device, absl::string_view label,
                                                        Precision precision, Caller caller) {
  if (logits == nullptr) return InvalidArgument("the function that gives logits is empty");
  if (batch < 1) return InvalidArgument("EvaluateClassifier: batch is ", batch, ", expected at least 1");
  const auto copies = std::make_shared<Bf16Copies>();
  const BatchSums loss_count_hits = [&](const Inputs& inputs, int64_t) {
    const PrecisionScope precision_scope(precision, copies);
    const Var scores = logits(inputs);
    const CallerScope scope(caller);
    const Var labels = Cast(inputs[label], DType::kI64);
    const Loss loss = CrossEntropy(scores, labels);
    return std::vector<Var>{loss.sum, loss.count, Sum(Cast(Equal(ArgMax(scores, -1), labels), DType::kI64))};
  };
  const Stopwatch watch;
  GM_ASSIGN_OR_RETURN(const std::vector<double> sums, SumOver(dataset, batch, device, false, loss_count_hits));
  ClassifierEvaluation evaluation;
  if (sums[1] > 0) {
    evaluation.loss = sums[0] / sums[1];
    evaluation.accuracy = sums[2] / sums[1];
  }
  evaluation.samples = dataset.size();
  evaluation.seconds = watch.Seconds();
  return evaluation;
}

}  // namespace gemmill
