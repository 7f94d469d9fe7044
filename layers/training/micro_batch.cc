#include "gemmill/layers/training/micro_batch.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/trace.h"
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

std::vector<Spec> TotalSpecs(absl::Span<const NamedParameter> parameters, Device device) {
  std::vector<Spec> specs(2, Spec{{}, DType::kF64, device});
  for (const NamedParameter& parameter : parameters) {
    specs.push_back(parameter.value.spec());
    if (specs.back().dtype == DType::kBf16) specs.back().dtype = DType::kF32;
  }
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
                            const RandomVars& random, absl::Span<const NamedParameter> parameters, Caller caller) {
  const TrainingScope training(random);
  const Loss loss = Counted(loss_function, inputs, random.samples, caller);
  std::vector<Var> values;
  for (const NamedParameter& parameter : parameters) values.push_back(parameter.value);
  if (loss.sum.requires_grad() && !DependsOnAny(loss.sum, values)) {
    return {Var::Error(InvalidArgument(
        caller.ToString(), ": the loss depends on none of the parameters that are trained (", parameters[0].name,
        " and ", parameters.size() - 1, " more), only on others; is it computed with another model?"))};
  }
  std::vector<Var> totals = Grad(loss.sum, values, {}, caller);
  const NoGradScope no_grad;
  const CallerScope scope(caller);
  for (Var& gradient : totals) gradient = Widened(gradient);
  totals.insert(totals.begin(), {Cast(loss.sum.Detach(), DType::kF64), Cast(loss.count.Detach(), DType::kF64)});
  for (size_t i = 0; i < before.size(); ++i) totals[i] = before[i] + totals[i];
  return totals;
}

absl::StatusOr<Program> TraceMicroBatch(const LossFunction& loss, absl::Span<const FieldSpec> fields, int64_t samples,
                                        absl::Span<const NamedParameter> parameters, bool first,
                                        absl::Span<const Tensor> totals, Caller caller) {
  const Device device = parameters[0].value.device();
  std::vector<Spec> specs;
  for (const FieldSpec& field : fields) specs.push_back(field.spec);
  specs.push_back(Spec{{2}, DType::kI64, device});
  specs.push_back(Spec{{}, DType::kI64, device});
  const auto record = [&](const std::vector<Var>& vars) {
    Inputs inputs;
    for (size_t i = 0; i < fields.size(); ++i) inputs.Add(fields[i].name, vars[i]);
    std::vector<Var> before;
    for (const Tensor& total : totals) {
      if (!first) before.emplace_back(total);
    }
    return TotalsWith(before, loss, inputs, {vars[fields.size()], vars[fields.size() + 1], samples}, parameters,
                      caller);
  };
  GM_ASSIGN_OR_RETURN(Program program, Trace(record, specs));
  std::vector<Destination> destinations;
  for (size_t i = 0; i < totals.size(); ++i) destinations.push_back({i, totals[i]});
  GM_RETURN_IF_ERROR(WriteInto(program, destinations));
  return program;
}

absl::StatusOr<Program> TrainingProgram(const Module& model, const LossFunction& loss,
                                        absl::Span<const FieldSpec> fields, Caller caller) {
  const std::vector<NamedParameter> parameters = model.trainable();
  if (parameters.empty()) return InvalidArgument("the model has no parameters to train; are all frozen?");
  if (loss == nullptr) return InvalidArgument("the loss function is empty");
  if (fields.empty()) return InvalidArgument("a micro-batch has at least one field");
  for (const FieldSpec& field : fields) {
    if (field.spec.rank() > 0 && fields[0].spec.rank() > 0 && field.spec.shape[0] == fields[0].spec.shape[0]) continue;
    return InvalidArgument("field \"", field.name, "\" is ", field.spec.ToString(), ", the first dimensions differ");
  }
  GM_ASSIGN_OR_RETURN(const Program program,
                      TraceMicroBatch(loss, fields, fields[0].spec.shape[0], parameters, true, {}, caller));
  return passes::Default(program);
}

}  // namespace gemmill
