#include "gemmill/autograd/grad.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/autograd/vjp.h"
#include "gemmill/runtime/infer.h"

namespace gemmill {
namespace {

using NodeSet = std::unordered_set<const Node*>;

// The nodes that `root` depends on and that require a gradient, inputs before users. Does not go beyond `stop`.
std::vector<std::shared_ptr<Node>> InputsFirst(const std::shared_ptr<Node>& root, const NodeSet& stop) {
  std::vector<std::shared_ptr<Node>> order;
  NodeSet seen{root.get()};
  std::vector<std::pair<std::shared_ptr<Node>, size_t>> path{{root, 0}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == node->inputs.size() || stop.contains(node.get())) {
      order.push_back(node);
      path.pop_back();
      continue;
    }
    const Var& input = node->inputs[next++];
    if (input.requires_grad() && seen.insert(input.node().get()).second) path.emplace_back(input.node(), 0);
  }
  return order;
}

// `gradient` summed over the dimensions along which its input of `shape` was broadcast.
Var SumTo(const Var& gradient, const Shape& shape, Caller caller) {
  if (gradient.shape() == shape) return gradient;
  const size_t extra = gradient.shape().size() - shape.size();
  Axes axes;
  for (size_t i = 0; i < gradient.shape().size(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && gradient.shape()[i] != 1)) axes.push_back(static_cast<int64_t>(i));
  }
  const Var sum = Apply1(op::Reduce{ReduceFn::kSum, axes}, {gradient}, caller);
  return sum.shape() == shape ? sum : Apply1(op::Reshape{shape}, {sum}, caller);
}

class Backward {
 public:
  Backward(const Var& loss, const std::vector<Var>& vars, const NodeSet& stop, GradOptions options, Caller caller)
      : caller_(caller), no_grad_(!options.differentiable), stop_(stop), order_(InputsFirst(loss.node(), stop)) {
    for (const Var& var : vars) {
      if (var.node() != nullptr) leads_.insert(var.node().get());
    }
    wanted_ = leads_;
    for (const std::shared_ptr<Node>& node : order_) {
      for (const Var& input : node->inputs) {
        if (leads_.contains(input.node().get())) leads_.insert(node.get());
      }
    }
    AddTo(loss, Fill(loss.shape(), 1, loss.dtype(), loss.device(), caller));
  }

  absl::Status Run() {
    for (size_t i = order_.size(); i-- > 0;) {
      const std::shared_ptr<Node>& node = order_[i];
      const auto found = gradients_.find(node.get());
      if (found == gradients_.end()) continue;
      if (node->op.has_value() && leads_.contains(node.get()) && !stop_.contains(node.get())) {
        std::vector<Var> dout;
        for (size_t o = 0; o < node->specs.size(); ++o) dout.push_back(Summed(Var(node, o), found->second[o]));
        GM_RETURN_IF_ERROR(Visit(node, std::move(dout)));
      }
      if (!wanted_.contains(node.get())) gradients_.erase(node.get());
    }
    return absl::OkStatus();
  }

  Var Result(const Var& var) const {
    const auto found = gradients_.find(var.node().get());
    if (found != gradients_.end() && found->second[var.output()].node() != nullptr) {
      return Summed(var, found->second[var.output()]);
    }
    return Fill(var.shape(), 0, var.dtype(), var.device(), caller_);
  }

 private:
  // A sum of bf16 is kept in f32: of many terms the last ones would be lost.
  void AddTo(const Var& var, Var gradient) {
    std::vector<Var>& of_node = gradients_[var.node().get()];
    of_node.resize(var.node()->specs.size());
    Var& sum = of_node[var.output()];
    if (sum.node() == nullptr) {
      sum = std::move(gradient);
      return;
    }
    const CallerScope caller(caller_);
    const auto wide = [](const Var& x) { return x.dtype() == DType::kBf16 ? Cast(x, DType::kF32) : x; };
    sum = wide(sum) + wide(gradient);
  }

  // What was summed for `var`, in its dtype.
  Var Summed(const Var& var, const Var& sum) const {
    return sum.node() == nullptr || sum.dtype() == var.dtype() ? sum
                                                               : Cast({sum, caller_.file, caller_.line}, var.dtype());
  }

  absl::Status Visit(const std::shared_ptr<Node>& node, std::vector<Var> dout) {
    const LayerScope scope = LayerScope::Path(node->origin.layer, GemmRole::kForward);
    const CallerScope caller =
        std::holds_alternative<op::Custom>(*node->op) ? CallerScope::None() : CallerScope(node->origin.caller);
    Site site{node->inputs, {}, std::move(dout), {}, node->origin.caller};
    for (size_t i = 0; i < node->specs.size(); ++i) site.out.emplace_back(node, i);
    for (size_t i = 0; i < site.in.size(); ++i) {
      const Var& input = site.in[i];
      site.wants.push_back(input.requires_grad() && leads_.contains(input.node().get()));
      if (!node->input_versions.empty() &&
          input.node()->values[input.output()].buffer()->version() != node->input_versions[i]) {
        return absl::FailedPreconditionError(
            absl::StrCat(node->origin.ToString(), ": input ", i, " of ", OpName(*node->op),
                         " was changed in place (an optimizer step?) since it was used; compute the loss again"));
      }
    }
    std::variant<Gradients, NotDifferentiable> ruled = Vjp(*node->op, site);
    if (const auto* none = std::get_if<NotDifferentiable>(&ruled)) {
      return InvalidArgument(node->origin.ToString(), ": ", OpName(*node->op), " has no gradient: ", none->reason);
    }
    Gradients& gradients = std::get<Gradients>(ruled);
    for (size_t i = 0; i < site.in.size() && i < gradients.size(); ++i) {
      if (!site.wants[i] || gradients[i].node() == nullptr) continue;
      GM_RETURN_IF_ERROR(gradients[i].status());
      const Spec& given = gradients[i].spec();
      const Spec& expected = site.in[i].spec();
      const auto joined = BroadcastShapes(expected.shape, given.shape);
      if (!joined.ok() || *joined != given.shape || given.dtype != expected.dtype || given.device != expected.device) {
        return InvalidArgument(node->origin.ToString(), ": the gradient rule of ", OpName(*node->op), " gave ",
                               given.ToString(), " for input ", i, ", which is ", expected.ToString());
      }
      const Var gradient = SumTo(gradients[i], expected.shape, node->origin.caller);
      GM_RETURN_IF_ERROR(gradient.status());
      AddTo(site.in[i], gradient);
    }
    return absl::OkStatus();
  }

  const Caller caller_;
  const NoGradScope no_grad_;
  const PrecisionScope as_it_was_{Precision::kF32};
  const NodeSet& stop_;
  const std::vector<std::shared_ptr<Node>> order_;
  NodeSet leads_;  // nodes through which a wanted Var is reached
  NodeSet wanted_;
  std::unordered_map<const Node*, std::vector<Var>> gradients_;  // one per output
};

std::vector<Var> GradTo(const Var& loss, const std::vector<Var>& vars, const NodeSet& stop, GradOptions options,
                        Caller caller) {
  const auto fail = [&](const absl::Status& status) { return std::vector<Var>(vars.size(), Var::Error(status)); };
  if (!loss.ok()) return fail(loss.status());
  for (const Var& var : vars) {
    if (!var.ok()) return fail(var.status());
  }
  const std::string place = absl::StrCat(caller.ToString(), ": Grad: ");
  if (loss.spec().num_elements() != 1 || !IsFloating(loss.dtype())) {
    return fail(InvalidArgument(place, "the loss is ", loss.spec().ToString(), ", expected one floating element"));
  }
  if (!loss.requires_grad()) {
    return fail(InvalidArgument(place, "the loss depends on no parameter: none was used, all are frozen, or it was ",
                                "computed inside a NoGradScope"));
  }
  Backward backward(loss, vars, stop, options, caller);
  const absl::Status status = backward.Run();
  if (!status.ok()) return fail(status);
  std::vector<Var> results;
  for (const Var& var : vars) results.push_back(backward.Result(var));
  return results;
}

}  // namespace

std::vector<Var> Grad(const Var& loss, const std::vector<Var>& vars, GradOptions options, Caller caller) {
  return GradTo(loss, vars, {}, options, caller);
}

bool DependsOnAny(const Var& value, const std::vector<Var>& vars) {
  if (!value.requires_grad()) return false;
  NodeSet among;
  for (const Var& var : vars) among.insert(var.node().get());
  const std::vector<std::shared_ptr<Node>> nodes = InputsFirst(value.node(), {});
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) { return among.contains(node.get()); });
}

Gradients VjpByComposition(const Site& site, const Composed& composed) {
  Gradients gradients(site.in.size());
  const bool differentiable = GradEnabled();
  Var total;
  std::vector<Var> inputs;
  std::vector<Var> wanted;
  NodeSet stop;
  {
    const NoGradScope record(false);
    for (size_t i = 0; i < site.in.size(); ++i) {
      // A node of its own for each input, at which the way back ends: partial derivatives even where inputs depend on
      // one another or are the same Var.
      inputs.push_back(site.wants[i] ? Reshape(site.in[i], site.in[i].shape()) : site.in[i]);
      if (!site.wants[i]) continue;
      wanted.push_back(inputs[i]);
      stop.insert(inputs[i].node().get());
    }
    const std::vector<Var> outputs = composed(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (site.dout[i].node() == nullptr) continue;
      const Var part = Sum(outputs[i] * site.dout[i]);
      total = total.node() == nullptr ? part : total + part;
    }
  }
  if (total.node() == nullptr || wanted.empty()) return gradients;
  // Where the composition does not depend on what is wanted (the slope of a line), there is nothing to add.
  if (total.ok() && !total.requires_grad()) return gradients;
  const std::vector<Var> found = GradTo(total, wanted, stop, {differentiable}, site.caller);
  for (size_t i = 0, next = 0; i < site.in.size(); ++i) {
    if (site.wants[i]) gradients[i] = found[next++];
  }
  return gradients;
}

std::variant<Gradients, NotDifferentiable> Vjp(const Op& op, const Site& site) {
  return std::visit(
      [&](const auto& typed) -> std::variant<Gradients, NotDifferentiable> { return VjpRule(typed, site); }, op);
}

}  // namespace gemmill
