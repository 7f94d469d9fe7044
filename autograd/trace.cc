#include "gemmill/autograd/trace.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmill {
namespace {

thread_local Recorder* current = nullptr;

}  // namespace

Recorder::Recorder() : before_(std::exchange(current, this)) {}
Recorder::~Recorder() { current = before_; }
Recorder* Recorder::Current() { return current; }

Var Recorder::Input(const Spec& spec) {
  auto node = std::make_shared<Node>();
  node->specs = {spec};
  node->values.resize(1);
  node->recorded = true;
  const int number = static_cast<int>(program_.values.size());
  program_.values.push_back({spec, Storage::kInput, {}});
  program_.inputs.push_back(number);
  numbers_[node.get()] = {number};
  nodes_.push_back(node);
  return Var(std::move(node), 0);
}

absl::StatusOr<int> Recorder::NumberOf(const Var& var) {
  const auto found = numbers_.find(var.node().get());
  if (found != numbers_.end()) return found->second[var.output()];
  if (var.node()->recorded) return absl::FailedPreconditionError("it was recorded in another Trace");
  const Tensor& tensor = var.node()->values[var.output()];
  std::vector<int>& there = bound_[tensor.data()];
  for (int number : there) {
    if (program_.values[static_cast<size_t>(number)].spec == tensor.spec()) return number;
  }
  there.push_back(static_cast<int>(program_.values.size()));
  program_.values.push_back({tensor.spec(), Storage::kBound, tensor});
  return there.back();
}

absl::Status Recorder::Record(const Op& op, absl::Span<const Var> inputs, const std::shared_ptr<Node>& node) {
  Step step{op, {}, {}, node->origin};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const absl::StatusOr<int> number = NumberOf(inputs[i]);
    if (!number.ok()) return Annotate(number.status(), OpName(op), ": input ", i, ": ");
    step.inputs.push_back(*number);
  }
  for (const Spec& spec : node->specs) {
    step.outputs.push_back(static_cast<int>(program_.values.size()));
    program_.values.push_back({spec, Storage::kTemporary, {}});
  }
  node->values.resize(node->specs.size());
  node->recorded = true;
  numbers_[node.get()] = step.outputs;
  nodes_.push_back(node);
  program_.steps.push_back(std::move(step));
  return absl::OkStatus();
}

void Recorder::Share(const Var& var, const std::shared_ptr<Node>& node) {
  const auto found = numbers_.find(var.node().get());
  if (found == numbers_.end()) return;  // of another Trace: using it is an error
  const int number = found->second[var.output()];
  numbers_[node.get()] = {number};
  nodes_.push_back(node);
}

Program Recorder::Finish(std::vector<int> outputs) {
  program_.outputs = std::move(outputs);
  return WithoutUnused(program_);
}

absl::StatusOr<Program> Trace(const TracedFn& fn, Specs inputs) {
  if (fn == nullptr) return InvalidArgument("the function to trace is empty");
  Recorder recorder;
  std::vector<Var> vars;
  for (const Spec& spec : inputs) vars.push_back(recorder.Input(spec));
  std::vector<int> numbers;
  const absl::StatusOr<std::vector<Var>> outputs =
      CatchExceptions([&]() -> absl::StatusOr<std::vector<Var>> { return fn(vars); });
  GM_RETURN_IF_ERROR(recorder.refused());
  if (!outputs.ok()) return Annotate(outputs.status(), "the traced function: ");
  for (const Var& output : *outputs) {
    GM_RETURN_IF_ERROR(output.status());
    const absl::StatusOr<int> number = recorder.NumberOf(output);
    if (!number.ok()) {
      return Annotate(number.status(), output.node()->origin.ToString(), ": output ", numbers.size(),
                      " of a traced function: ");
    }
    numbers.push_back(*number);
  }
  return recorder.Finish(std::move(numbers));
}

}  // namespace gemmill
