#include "gemmill/layers/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"

namespace gemmill {
namespace {

class Stopwatch {
 public:
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Samples [start, stop) of every field.
absl::StatusOr<std::vector<Field>> Rows(absl::Span<const Field> fields, int64_t start, int64_t stop) {
  std::vector<Field> rows;
  for (const Field& field : fields) {
    if (start == 0 && stop == field.values.shape()[0]) {
      rows.push_back(field);
      continue;
    }
    const Var sliced = Slice(Var(field.values), 0, start, stop);
    GM_ASSIGN_OR_RETURN(Tensor values, sliced.Value());
    rows.push_back({field.name, std::move(values)});
  }
  return rows;
}

// Sums over parts: of losses, of their counts and of gradients.
struct Total {
  Var sum;
  Var count;
  std::vector<Var> gradients;
};

void AddTo(Var& sum, const Var& part) { sum = sum.node() == nullptr ? part : sum + part; }

// `loss` with the count it has, or that of its samples.
Loss Counted(Loss loss, int64_t samples) {
  if (loss.count.node() != nullptr) return loss;
  const Var mean = loss.sum.dtype() == DType::kBf16 ? Cast(loss.sum, DType::kF32) : loss.sum;
  const Var count = Fill({}, static_cast<double>(samples), mean.dtype(), mean.device());
  return Loss(mean * static_cast<double>(samples), count);
}

}  // namespace

Inputs::Inputs(absl::Span<const Field> fields, Device device) {
  for (const Field& field : fields) {
    absl::StatusOr<Tensor> moved = field.values.To(device);
    vars_.emplace_back(field.name, moved.ok() ? Var(*std::move(moved)) : Var::Error(moved.status()));
  }
}

Var Inputs::operator[](absl::string_view name) const {
  for (const auto& [field, var] : vars_) {
    if (field == name) return var;
  }
  return Var::Error(absl::NotFoundError(
      absl::StrCat("the batch has no field \"", name, "\"; it has ",
                   absl::StrJoin(vars_, ", ", [](std::string* out, const auto& pair) { out->append(pair.first); }))));
}

absl::StatusOr<Trainer> Trainer::Make(const Module& model, std::shared_ptr<Optimizer> optimizer, LossFunction loss,
                                      const TrainerOptions& options) {
  if (optimizer == nullptr) return InvalidArgument("the optimizer is null");
  if (loss == nullptr) return InvalidArgument("the loss function is empty");
  if (options.global_batch < 1) {
    return InvalidArgument("global_batch is ", options.global_batch, ", expected at least 1");
  }
  if (options.micro_batch < 0 || options.micro_batch > options.global_batch) {
    return InvalidArgument("micro_batch is ", options.micro_batch, ", expected 1 to the global_batch of ",
                           options.global_batch);
  }
  if (!(options.clip_norm >= 0)) return InvalidArgument("clip_norm is ", options.clip_norm, ", expected 0 or more");
  GM_RETURN_IF_ERROR(options.schedule.Check());
  std::vector<NamedParameter> parameters = model.trainable();
  if (parameters.empty()) return InvalidArgument("the model has no parameters to train; are all frozen?");
  return Trainer(std::move(parameters), std::move(optimizer), std::move(loss), options);
}

Trainer::Trainer(std::vector<NamedParameter> parameters, std::shared_ptr<Optimizer> optimizer, LossFunction loss,
                 const TrainerOptions& options)
    : parameters_(std::move(parameters)),
      optimizer_(std::move(optimizer)),
      loss_(std::move(loss)),
      options_(options),
      device_(parameters_[0].value.device()) {
  if (options_.micro_batch == 0) options_.micro_batch = options_.global_batch;
  for (const NamedParameter& parameter : parameters_) values_.push_back(parameter.value);
}

absl::Status Trainer::Validate(const Batch& batch) const {
  GM_RETURN_IF_ERROR(batch.status);
  if (batch.samples < 1 || batch.samples > options_.global_batch) {
    return InvalidArgument("the batch has ", batch.samples, " samples, expected 1 to the global_batch of ",
                           options_.global_batch);
  }
  for (const NamedParameter& parameter : parameters_) {
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

absl::StatusOr<StepReport> Trainer::Step(const Batch& batch) {
  const Stopwatch watch;
  GM_RETURN_IF_ERROR(Validate(batch));
  const CheckNumericsScope check(options_.check_numerics || CheckNumericsEnabled());
  Total total;
  total.gradients.resize(values_.size());
  for (int64_t start = 0; start < batch.samples; start += options_.micro_batch) {
    const int64_t stop = std::min(batch.samples, start + options_.micro_batch);
    GM_ASSIGN_OR_RETURN(const std::vector<Field> rows, Rows(batch.fields, start, stop));
    const TrainingScope training({options_.seed, steps_, batch.rank_offset + start, stop - start});
    const Loss loss = Counted(loss_(Inputs(rows, device_)), stop - start);
    const std::vector<Var> gradients = Grad(loss.sum, values_);
    const NoGradScope no_grad;
    AddTo(total.sum, loss.sum.Detach());
    AddTo(total.count, loss.count.Detach());
    for (size_t i = 0; i < gradients.size(); ++i) {
      GM_RETURN_IF_ERROR(gradients[i].status());
      AddTo(total.gradients[i], gradients[i]);
    }
  }
  GM_ASSIGN_OR_RETURN(const double sum, total.sum.Item());
  GM_ASSIGN_OR_RETURN(const double count, total.count.Item());
  GM_ASSIGN_OR_RETURN(const double norm_of_sum, Apply1(op::GlobalNorm{}, total.gradients, Caller::Here()).Item());

  UpdateControl control{options_.schedule.Factor(steps_), count > 0 ? 1 / count : 1};
  StepReport report;
  report.loss = sum * control.gradient_scale;
  report.gradient_norm = norm_of_sum * control.gradient_scale;
  report.learning_rate = optimizer_->learning_rate() * control.learning_rate_factor;
  report.samples = batch.samples;
  report.skipped = !std::isfinite(norm_of_sum);
  if (!report.skipped) {
    // As torch.nn.utils.clip_grad_norm_ has it, epsilon included.
    if (options_.clip_norm > 0) {
      control.gradient_scale *= std::min(1.0, options_.clip_norm / (report.gradient_norm + 1e-6));
    }
    GM_RETURN_IF_ERROR(optimizer_->Apply(parameters_, total.gradients, control));
    GM_RETURN_IF_ERROR(Stream::Default(device_).Synchronize());
    ++steps_;
  }
  report.step = steps_;
  report.seconds = watch.Seconds();
  report.samples_per_second = static_cast<double>(batch.samples) / std::max(report.seconds, 1e-9);
  return report;
}

absl::StatusOr<Evaluation> Trainer::Evaluate(const Dataset& dataset) const {
  const Stopwatch watch;
  const NoGradScope no_grad;
  Evaluation evaluation;
  double sum = 0;
  double count = 0;
  const int64_t size = std::min(options_.micro_batch, dataset.size());
  GM_ASSIGN_OR_RETURN(Loader loader, Loader::Create(dataset, {.global_batch = size, .shuffle = false}));
  for (const Batch& batch : loader) {
    GM_RETURN_IF_ERROR(batch.status);
    const Loss loss = Counted(loss_(Inputs(batch.fields, device_)), batch.samples);
    GM_ASSIGN_OR_RETURN(const double part, loss.sum.Item());
    GM_ASSIGN_OR_RETURN(const double part_count, loss.count.Item());
    sum += part;
    count += part_count;
    evaluation.samples += batch.samples;
  }
  evaluation.loss = count > 0 ? sum / count : 0;
  evaluation.seconds = watch.Seconds();
  return evaluation;
}

absl::StatusOr<Evaluation> EvaluateClassifier(const LogitsFunction& logits, const Dataset& dataset, int64_t batch_size,
                                              Device device, absl::string_view label) {
  if (logits == nullptr) return InvalidArgument("the function that gives logits is empty");
  const Stopwatch watch;
  const NoGradScope no_grad;
  Evaluation evaluation;
  double loss_sum = 0;
  double correct = 0;
  GM_ASSIGN_OR_RETURN(
      Loader loader, Loader::Create(dataset, {.global_batch = std::min(batch_size, dataset.size()), .shuffle = false}));
  for (const Batch& batch : loader) {
    GM_RETURN_IF_ERROR(batch.status);
    const Inputs inputs(batch.fields, device);
    const Var labels = Cast(inputs[label], DType::kI64);
    const Var scores = logits(inputs);
    GM_ASSIGN_OR_RETURN(const double part, CrossEntropy(scores, labels).sum.Item());
    const Var hits = Cast(Equal(ArgMax(scores, -1), labels), DType::kI64);
    GM_ASSIGN_OR_RETURN(const double right, Sum(hits).Item());
    loss_sum += part;
    correct += right;
    evaluation.samples += batch.samples;
  }
  const double samples = static_cast<double>(std::max<int64_t>(evaluation.samples, 1));
  evaluation.loss = loss_sum / samples;
  evaluation.accuracy = correct / samples;
  evaluation.seconds = watch.Seconds();
  return evaluation;
}

}  // namespace gemmill
