// One micro-batch of a training step, as the function that both ways to run it share: it runs eagerly as it is called,
// or is traced into the Program that Trainer replays.
#pragma once

#include <cstdint>
#include <functional>
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

// What a global batch adds up to: sums of the loss and of its count (f64 []), then of each parameter's gradient, in f32
// at least. As specs:
std::vector<Spec> TotalSpecs(absl::Span<const NamedParameter> parameters, Device device);

// The loss with the count it has, or that of its samples; invalid where the function throws.
Loss Counted(const LossFunction& loss, const Inputs& inputs, int64_t samples, Caller caller);

// Forward and backward of one micro-batch. Returns the totals with it: `before` (empty for the first) plus its own. A
// loss that depends on none of the parameters is an error.
std::vector<Var> TotalsWith(const std::vector<Var>& before, const LossFunction& loss, const Inputs& inputs,
                            const RandomVars& random, absl::Span<const NamedParameter> parameters, Caller caller);

// That as a Program, of a micro-batch of `samples` with `fields`. Its inputs are the fields, then RandomVars' key and
// first_sample. Its outputs are the totals; with `totals` given, tensors of TotalSpecs, they are written there, and
// unless `first` added to what is there.
absl::StatusOr<Program> TraceMicroBatch(const LossFunction& loss, absl::Span<const FieldSpec> fields, int64_t samples,
                                        absl::Span<const NamedParameter> parameters, bool first,
                                        absl::Span<const Tensor> totals, Caller caller = Caller::Here());

// For reports and planning of a model of one's own: the Program of the first micro-batch, with the passes that Trainer
// uses, from the specs of its fields.
absl::StatusOr<Program> TrainingProgram(const Module& model, const LossFunction& loss,
                                        absl::Span<const FieldSpec> fields, Caller caller = Caller::Here());

}  // namespace gemmill
