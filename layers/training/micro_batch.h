// One micro-batch of a training step, as the function that both ways to run it share: it runs eagerly as it is called,
// or is traced into the Program that Trainer replays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gemmill/autograd/training_scope.h"
#include "gemmill/data/dataset.h"
#include "gemmill/layers/loss.h"
#include "gemmill/layers/module.h"
#include "gemmill/runtime/program.h"

namespace gemmill {

// A field's name, with the line that wrote it.
struct FieldName {
  absl::string_view name;
  Caller caller;

  template <typename T, typename = std::enable_if_t<std::is_convertible_v<const T&, absl::string_view>>>
  // NOLINTNEXTLINE(google-explicit-constructor)
  FieldName(const T& text, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : name(text), caller{file, line} {}
};

// The fields of a micro-batch as Vars on the model's device.
class Inputs {
 public:
  Inputs() = default;
  Inputs(absl::Span<const Field> fields, Device device);
  void Add(const std::string& name, Var value) { vars_.emplace_back(name, std::move(value)); }
  // The field of that name, or an invalid Var that lists the names there are.
  Var operator[](FieldName field) const;

 private:
  std::vector<std::pair<std::string, Var>> vars_;
};

// The loss of a micro-batch (README, "a short program"). What it throws is an error of the step.
using LossFunction = std::function<Loss(const Inputs&)>;

// What a micro-batch's fields are, without their bytes.
struct FieldSpec {
  std::string name = {};
  Spec spec = {};
  bool operator==(const FieldSpec&) const = default;
};

// What a training step is of: the parameters that it moves, and the sums that the model's layers ask for.
struct Trained {
  std::vector<NamedParameter> parameters = {};
  std::vector<std::shared_ptr<const StepSum>> sums = {};

  // Whether a step in parts computes sums over the global batch first.
  bool CountsFirst() const;
  Device device() const { return parameters.empty() ? Device{} : parameters[0].value.device(); }
};

// What a global batch adds up to: sums of the loss and of its count (f64 []), then of each parameter's gradient, in f32
// at least, then StepSums. As specs:
std::vector<Spec> TotalSpecs(const Trained& trained);
// Those of the gradients.
template <typename T>
absl::Span<const T> GradientsOf(const Trained& trained, const std::vector<T>& totals) {
  return absl::MakeConstSpan(totals).subspan(2, trained.parameters.size());
}

// Where the losses of layers depend on sums over the global batch (AuxiliaryScope), and a step sees it in parts, those
// sums are computed before, by a forward pass of their own over all parts: the loss's count, then StepSums.
std::vector<Spec> GlobalSpecs(const Trained& trained);

// The loss with the count it has, or that of its samples; invalid where the function throws.
Loss Counted(const LossFunction& loss, const Inputs& inputs, int64_t samples, Caller caller);

// How a micro-batch is computed.
struct Pass {
  bool first = true;      // of its step: it adds to nothing
  bool counting = false;  // for the global sums alone, without gradients
  bool part = false;      // what it computes depends on global sums
  bool operator==(const Pass&) const = default;
};

// Forward and backward of one micro-batch, or its forward pass where it is `counting`. Returns the totals (the global
// sums) with it: `before` (none for the first) plus its own. `global` are the global sums of a `part`. A loss that
// depends on none of the parameters is an error.
std::vector<Var> TotalsWith(const std::vector<Var>& before, const LossFunction& loss, const Inputs& inputs,
                            const RandomVars& random, const Trained& trained, Pass pass, const std::vector<Var>& global,
                            Caller caller);

// That as a Program, of a micro-batch of `samples` with `fields`. Its inputs are the fields, then RandomVars' key and
// first_sample. Its outputs are the totals; with `totals` given, tensors of TotalSpecs, they are written there, and
// unless it is the first added to what is there. `global`, tensors of GlobalSpecs, are read by a part, and written by a
// pass that counts.
absl::StatusOr<Program> TraceMicroBatch(const LossFunction& loss, absl::Span<const FieldSpec> fields, int64_t samples,
                                        const Trained& trained, Pass pass, absl::Span<const Tensor> totals,
                                        absl::Span<const Tensor> global, Caller caller = Caller::Here());

// For reports and planning of a model of one's own: the Program of the first micro-batch, with the passes that Trainer
// uses, from the specs of its fields.
absl::StatusOr<Program> TrainingProgram(const Module& model, const LossFunction& loss,
                                        absl::Span<const FieldSpec> fields, Caller caller = Caller::Here());

}  // namespace gemmill
