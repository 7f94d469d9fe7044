#include "gemmill/autograd/var.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/autograd/probe.h"
#include "gemmill/autograd/trace.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/infer.h"

namespace gemmill {
namespace {

Var Leaf(Tensor value, bool requires_grad) {
  auto node = std::make_shared<Node>();
  node->specs.push_back(value.spec());
  if (!value.valid()) node->status = InvalidArgument("a Var was made from an empty Tensor");
  node->requires_grad = requires_grad && IsFloating(value.dtype());
  node->parameter = node->requires_grad;
  node->values.push_back(std::move(value));
  return Var(std::move(node), 0);
}

absl::Status CheckFinite(const Op& op, const Origin& origin, absl::Span<const Tensor> inputs,
                         absl::Span<const Tensor> outputs) {
  for (const Tensor& output : outputs) {
    if (!IsFloating(output.dtype())) continue;
    GM_ASSIGN_OR_RETURN(const std::vector<double> values, output.ToDoubles());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      std::string message = absl::StrCat(origin.ToString(), ": ", OpName(op), " made ", values[i], " at element ", i,
                                         " of ", output.spec().ToString());
      for (size_t k = 0; k < inputs.size(); ++k) {
        absl::StrAppend(&message, k == 0 ? "; inputs: " : ", ", inputs[k].spec().ToString(), " in ",
                        RangeString(inputs[k]));
      }
      return absl::DataLossError(message);
    }
  }
  return absl::OkStatus();
}

// Executes `op` and gives `node`, which has its specs, the values.
absl::Status RunNow(const Op& op, absl::Span<const Var> inputs, Node& node) {
  std::vector<Tensor> values;
  for (const Var& input : inputs) values.push_back(input.node()->values[input.output()]);
  const auto fail = [&](const absl::Status& status) {
    return Annotate(status, node.origin.ToString(), ": ", OpName(op), ": ");
  };
  for (const Spec& spec : node.specs) {
    absl::StatusOr<Tensor> output = Tensor::Empty(spec);
    if (!output.ok()) return fail(output.status());
    node.values.push_back(*std::move(output));
  }
  Stream& stream = Stream::Default(node.specs.empty() ? Device::Cpu() : node.specs[0].device);
  GM_RETURN_IF_ERROR(fail(Execute(op, values, absl::MakeSpan(node.values), stream)));
  // A Fill is as the user wrote it: an infinity may stand for "nothing".
  if (!CheckNumericsEnabled() || std::holds_alternative<op::Fill>(op)) return absl::OkStatus();
  return CheckFinite(op, node.origin, values, node.values);
}

}  // namespace

Var::Var(Tensor value) : Var(Leaf(std::move(value), false)) {}
Var Var::Parameter(Tensor value) { return Leaf(std::move(value), true); }

Var Var::Error(absl::Status status) {
  auto node = std::make_shared<Node>();
  node->status = std::move(status);
  node->specs.emplace_back(Spec{{0}, DType::kF32, {}});
  return Var(std::move(node), 0);
}

absl::Status Var::status() const {
  if (node_ == nullptr) return absl::FailedPreconditionError("an empty Var was used: it was never given a value");
  return node_->status;
}

const Spec& Var::spec() const {
  static const Spec* const kNone = new Spec{{0}, DType::kF32, {}};
  return node_ == nullptr || output_ >= node_->specs.size() ? *kNone : node_->specs[output_];
}

bool Var::requires_grad() const {
  return node_ != nullptr && node_->requires_grad && IsFloating(node_->specs[output_].dtype);
}

void Var::SetRequiresGrad(bool requires_grad) const {
  if (node_ == nullptr || node_->op.has_value()) return;
  node_->requires_grad = requires_grad && IsFloating(spec().dtype);
  node_->parameter = node_->parameter || node_->requires_grad;
}

Var Var::Detach() const {
  if (!ok()) return *this;
  if (!node_->recorded) return Var(node_->values[output_]);
  auto detached = std::make_shared<Node>();
  detached->specs = {spec()};
  detached->origin = node_->origin;
  detached->values.resize(1);
  detached->recorded = true;
  if (Recorder* recorder = Recorder::Current(); recorder != nullptr) recorder->Share(*this, detached);
  return Var(std::move(detached), 0);
}

absl::StatusOr<Tensor> Var::Value(Caller caller) const {
  if (node_ == nullptr) return Annotate(status(), CurrentCaller(caller).ToString(), ": ");
  GM_RETURN_IF_ERROR(status());
  if (node_->recorded) {
    const std::string read = CurrentCaller(caller).ToString();
    const Caller& made = node_->origin.caller;
    const std::string what = made.line == 0            ? " (an input of the Trace)"
                             : made.ToString() == read ? ""
                                                       : absl::StrCat(" (", node_->origin.ToString(), ")");
    const absl::Status error =
        absl::FailedPreconditionError(absl::StrCat(read, ": a value was read that is only being recorded", what,
                                                   "; return it as an output, or look at it with Probe"));
    if (Recorder::Current() != nullptr) Recorder::Current()->Refused(error);
    return error;
  }
  return node_->values[output_];
}

absl::StatusOr<double> Var::Item(Caller caller) const {
  GM_ASSIGN_OR_RETURN(const Tensor value, Value(caller));
  if (value.num_elements() != 1) {
    return InvalidArgument(CurrentCaller(caller).ToString(), ": Item of ", value.spec().ToString(),
                           ", expected one element; ToVector reads several");
  }
  GM_ASSIGN_OR_RETURN(const std::vector<double> values, value.ToDoubles());
  return values[0];
}

Node::~Node() {
  // The last handle to a long chain would otherwise destroy it one stack frame per op.
  std::vector<Var> pending = std::move(inputs);
  while (!pending.empty()) {
    const Var last = std::move(pending.back());
    pending.pop_back();
    if (last.node() != nullptr && last.node().use_count() == 1) {
      for (Var& input : last.node()->inputs) pending.push_back(std::move(input));
      last.node()->inputs.clear();
    }
  }
}

Var Outputs::operator[](size_t i) const {
  if (!ok()) return error_;
  if (i < vars_.size()) return vars_[i];
  return Var::Error(InvalidArgument("output ", i, " was asked of an op that has ", vars_.size()));
}

Outputs Apply(const Op& op, std::vector<Var> inputs, Caller caller) {
  auto node = std::make_shared<Node>();
  node->origin = {CurrentLayer(), CurrentRole(), CurrentCaller(caller)};
  const auto fail = [&](const absl::Status& status) {
    return Outputs(Annotate(status, node->origin.ToString(), ": "));
  };

  inputs = InCurrentPrecision(op, std::move(inputs), caller);
  std::vector<Spec> specs;
  bool requires_grad = false;
  bool recorded = false;
  for (const Var& input : inputs) {
    if (input.node() == nullptr) return fail(Annotate(input.status(), OpName(op), ": "));
    if (!input.ok()) return Outputs(input.status());  // the first error, as it was
    specs.push_back(input.spec());
    recorded = recorded || input.node()->recorded;
    requires_grad = requires_grad || input.requires_grad();
  }
  absl::StatusOr<std::vector<Spec>> inferred = Infer(op, specs);
  if (!inferred.ok()) return fail(inferred.status());
  node->specs = *std::move(inferred);
  Recorder* const recorder = Recorder::Current();
  if (recorder != nullptr) {
    const absl::Status done = recorder->Record(op, inputs, node);
    if (!done.ok()) return fail(done);
  } else if (recorded) {
    return fail(
        absl::FailedPreconditionError(absl::StrCat(OpName(op), ": an input was recorded in a Trace that has ended")));
  } else {
    absl::Status done = RunNow(op, inputs, *node);
    if (!done.ok()) return Outputs(std::move(done));
  }
  if (requires_grad && GradEnabled()) {
    node->requires_grad = true;
    node->op = op;
    if (recorder == nullptr) {
      for (const Var& input : inputs) {
        node->input_versions.push_back(input.node()->values[input.output()].buffer()->version());
      }
    }
    node->inputs = std::move(inputs);
  }
  std::vector<Var> outputs;
  for (size_t i = 0; i < node->specs.size(); ++i) outputs.emplace_back(node, i);
  return Outputs(std::move(outputs));
}

Var Apply1(const Op& op, std::vector<Var> inputs, Caller caller) { return Apply(op, std::move(inputs), caller)[0]; }

}  // namespace gemmill
