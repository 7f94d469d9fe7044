#include "gemmill/layers/training/micro_batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/trace.h"
#include "gemmill/layers/auxiliary.h"
#include "gemmill/runtime/passes/passes.h"

namespace gemmill {
namespace {

// Sums are of f32 at least: bf16 sums of many micro-batches would lose the last ones.
Var Widened(const Var& x) { return x.dtype() == DType::kBf16 ? Cast(x, DType::kF32) : x; }

}  // namespace

Inputs::Inputs(absl::Span<const Field> fields, Device device) {
  for (const Field& field : fields) {
    absl::StatusOr<Tensor> moved = field.values.To(device);
    Add(field.name, moved.ok() ? Var(*std::move(moved)) : Var::Error(moved.status()));
  }
}

Var Inputs::operator[](FieldName field) const {
  for (const auto& [name, var] : vars_) {
    if (name == field.name) return var;
  }
  const std::string names =
      absl::StrJoin(vars_, ", ", [](std::string* out, const auto& pair) { out->append(pair.first); });
  return Var::Error(
      absl::NotFoundError(absl::StrCat(CurrentCaller(field.caller).ToString(), ": the batch has no field \"",
                                       field.name, "\"; it has ", names.empty() ? "no fields" : names)));
}

bool Trained::CountsFirst() const {
  return std::any_of(sums.begin(), sums.end(), [](const auto& sum) { return sum->in_loss; });
}

std::vector<Spec> TotalSpecs(const Trained& trained) {
  std::vector<Spec> specs(2, Spec{{}, DType::kF64, trained.device()});
  for (const NamedParameter& parameter : trained.parameters) {
    specs.push_back(parameter.value.spec());
    if (specs.back().dtype == DType::kBf16) specs.back().dtype = DType::kF32;
  }
  for (const auto& sum : trained.sums) specs.push_back(Spec{{sum->size}, DType::kF64, trained.device()});
  return specs;
}

std::vector<Spec> GlobalSpecs(const Trained& trained) {
  std::vector<Spec> specs{Spec{{}, DType::kF64, trained.device()}};
  for (const auto& sum : trained.sums) specs.push_back(Spec{{sum->size}, DType::kF64, trained.device()});
  return specs;
}

Loss Counted(const LossFunction& loss_function, const Inputs& inputs, int64_t samples, Caller caller) {
  absl::StatusOr<Loss> made = CatchExceptions([&]() -> absl::StatusOr<Loss> { return loss_function(inputs); });
  if (!made.ok()) return Var::Error(Annotate(made.status(), caller.ToString(), ": the loss function: "));
  Loss& loss = *made;
  const CallerScope scope(caller);
  if (loss.sum.ok() && loss.sum.spec().rank() != 0) {
    loss.sum = Var::Error(InvalidArgument(CurrentCaller(caller).ToString(), ": the loss function returned ",
                                          loss.sum.spec().ToString(),
                                          ", expected a scalar or Loss; Mean or Sum makes a scalar of it"));
  }
  if (loss.count.node() != nullptr) return loss;
  const Var mean = Widened(loss.sum);
  return Loss(mean * static_cast<double>(samples), Fill({}, static_cast<double>(samples), mean.dtype(), mean.device()));
}

std::vector<Var> TotalsWith(const std::vector<Var>& before, const LossFunction& loss_function, const Inputs& inputs,
                            const RandomVars& random, const Trained& trained, Pass pass, const std::vector<Var>& global,
                            Caller caller) {
  const TrainingScope training(random);
  const NoGradScope without(pass.counting);
  AuxiliaryScope::Sums sums;
  for (size_t i = 0; pass.part && i < trained.sums.size(); ++i) sums.emplace_back(trained.sums[i], global[1 + i]);
  AuxiliaryScope auxiliary(std::move(sums), pass.part ? global[0] : Var());
  const Loss loss = Counted(loss_function, inputs, random.samples, caller);
  std::vector<Var> totals{Cast(loss.count.Detach(), DType::kF64)};
  if (!pass.counting) {
    std::vector<Var> values;
    for (const NamedParameter& parameter : trained.parameters) values.push_back(parameter.value);
    if (loss.sum.requires_grad() && !DependsOnAny(loss.sum, values)) {
      return {Var::Error(InvalidArgument(caller.ToString(),
                                         ": the loss depends on none of the parameters that are trained (",
                                         trained.parameters[0].name, " and ", trained.parameters.size() - 1,
                                         " more), only on others; is it computed with another model?"))};
    }
    Var differentiated = loss.sum;
    if (auxiliary.has_losses()) {
      const CallerScope scope(caller);
      const Var sum = Widened(loss.sum);
      differentiated = sum + Cast(auxiliary.TimesCount(loss.count), sum.dtype());
    }
    std::vector<Var> gradients = Grad(differentiated, values, {}, caller);
    const NoGradScope no_grad;
    const CallerScope scope(caller);
    totals.insert(totals.begin(), Cast(loss.sum.Detach(), DType::kF64));
    for (const Var& gradient : gradients) totals.push_back(Widened(gradient));
  }
  const NoGradScope no_grad;
  const CallerScope scope(caller);
  for (const auto& sum : trained.sums) totals.push_back(auxiliary.SumOf(sum, trained.device()));
  for (size_t i = 0; i < before.size(); ++i) totals[i] = before[i] + totals[i];
  return totals;
}

absl::StatusOr<Program> TraceMicroBatch(const LossFunction& loss, absl::Span<const FieldSpec> fields, int64_t samples,
                                        const Trained& trained, Pass pass, absl::Span<const Tensor> totals,
                                        absl::Span<const Tensor> global, Caller caller) {
  const Device device = trained.device();
  std::vector<Spec> specs;
  for (const FieldSpec& field : fields) specs.push_back(field.spec);
  specs.push_back(Spec{{2}, DType::kI64, device});
  specs.push_back(Spec{{}, DType::kI64, device});
  const absl::Span<const Tensor> written = pass.counting ? global : totals;
  const auto record = [&](const std::vector<Var>& vars) {
    Inputs inputs;
    for (size_t i = 0; i < fields.size(); ++i) inputs.Add(fields[i].name, vars[i]);
    std::vector<Var> before, known;
    for (const Tensor& total : written) {
      if (!pass.first) before.emplace_back(total);
    }
    for (const Tensor& sum : global) known.emplace_back(sum);
    return TotalsWith(before, loss, inputs, {vars[fields.size()], vars[fields.size() + 1], samples}, trained, pass,
                      known, caller);
  };
  GM_ASSIGN_OR_RETURN(Program program, Trace(record, specs));
  std::vector<Destination> destinations;
  for (size_t i = 0; i < written.size(); ++i) destinations.push_back({i, written[i]});
  GM_RETURN_IF_ERROR(WriteInto(program, destinations));
  return pass.counting ? WithoutUnused(program) : std::move(program);
}

absl::StatusOr<Program> TrainingProgram(const Module& model, const LossFunction& loss,
                                        absl::Span<const FieldSpec> fields, Caller caller) {
  const Trained trained{model.trainable(), model.step_sums()};
  if (trained.parameters.empty()) return InvalidArgument("the model has no parameters to train; are all frozen?");
  if (loss == nullptr) return InvalidArgument("the loss function is empty");
  if (fields.empty()) return InvalidArgument("a micro-batch has at least one field");
  for (const FieldSpec& field : fields) {
    if (field.spec.rank() > 0 && fields[0].spec.rank() > 0 && field.spec.shape[0] == fields[0].spec.shape[0]) continue;
    return InvalidArgument("field \"", field.name, "\" is ", field.spec.ToString(), ", the first dimensions differ");
  }
  GM_ASSIGN_OR_RETURN(const Program program,
                      TraceMicroBatch(loss, fields, fields[0].spec.shape[0], trained, {}, {}, {}, caller));
  return passes::Default(program);
}

}  // namespace gemmill
