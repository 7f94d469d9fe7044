// Ops of Mixture-of-Experts blocks. DispatchRows, CombineRows and DotRows are each other's gradients, and so are
// GroupedMatMul and GroupedMatMulWgrad: every order falls out.
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/vjp.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill {
namespace {

// An op of `inputs`, the last of which may be an empty Var: weights that are not there.
Var WithWeights(const Op& op, std::vector<Var> inputs, Caller caller) {
  if (inputs.back().node() == nullptr) inputs.pop_back();
  return Apply1(op, std::move(inputs), caller);
}

Var Grouped(GemmRole role, const Op& op, const Var& a, const Var& b, const Site& site) {
  const LayerScope scope = LayerScope::Path(CurrentLayer(), role);
  return Apply1(op, {a, b, site.in[2]}, site.caller);
}

Var WeightsOf(const Site& site) { return site.in.size() > 2 ? site.in[2] : Var(); }

}  // namespace

NotDifferentiable VjpRule(const op::TopK&, const Site&) { return {"its output is an index"}; }
NotDifferentiable VjpRule(const op::AssignRows&, const Site&) { return {"its input is an index"}; }

Gradients VjpRule(const op::TakeAlong&, const Site& site) {
  return {Apply1(op::AddAlong{site.in[0].shape().back()}, {site.dout[0], site.in[1]}, site.caller), Var()};
}

Gradients VjpRule(const op::AddAlong&, const Site& site) { return {TakeAlong(site.dout[0], site.in[1]), Var()}; }

Gradients VjpRule(const op::DispatchRows&, const Site& site) {
  const Var& x = site.in[0];
  const Var& row = site.in[1];
  const Var& d = site.dout[0];
  Gradients gradients(3);
  if (site.wants[0]) gradients[0] = WithWeights(op::CombineRows{}, {d, row, WeightsOf(site)}, site.caller);
  if (site.in.size() > 2 && site.wants[2]) gradients[2] = Apply1(op::DotRows{}, {d, row, x}, site.caller);
  return gradients;
}

Gradients VjpRule(const op::CombineRows&, const Site& site) {
  const Var& rows = site.in[0];
  const Var& row = site.in[1];
  const Var& d = site.dout[0];
  const op::DispatchRows dispatch{rows.shape()[0]};
  Gradients gradients(3);
  if (site.wants[0]) gradients[0] = WithWeights(dispatch, {d, row, WeightsOf(site)}, site.caller);
  if (site.in.size() > 2 && site.wants[2]) gradients[2] = Apply1(op::DotRows{}, {rows, row, d}, site.caller);
  return gradients;
}

Gradients VjpRule(const op::DotRows&, const Site& site) {
  const Var& rows = site.in[0];
  const Var& row = site.in[1];
  const Var& weights = site.dout[0];
  Gradients gradients(3);
  if (site.wants[0]) {
    gradients[0] = Apply1(op::DispatchRows{rows.shape()[0]}, {site.in[2], row, weights}, site.caller);
  }
  if (site.wants[2]) gradients[2] = Apply1(op::CombineRows{}, {rows, row, weights}, site.caller);
  return gradients;
}

Gradients VjpRule(const op::GroupedMatMul& op, const Site& site) {
  const Var& rows = site.in[0];
  const Var& d = site.dout[0];
  Gradients gradients(3);
  if (site.wants[0]) {
    gradients[0] = Grouped(GemmRole::kDgrad, op::GroupedMatMul{!op.trans_b}, d, site.in[1], site);
  }
  if (site.wants[1]) {
    gradients[1] =
        Grouped(GemmRole::kWgrad, op::GroupedMatMulWgrad{}, op.trans_b ? d : rows, op.trans_b ? rows : d, site);
  }
  return gradients;
}

Gradients VjpRule(const op::GroupedMatMulWgrad&, const Site& site) {
  const Var& a = site.in[0];
  const Var& b = site.in[1];
  const Var& d = site.dout[0];
  Gradients gradients(3);
  if (site.wants[0]) gradients[0] = Apply1(op::GroupedMatMul{true}, {b, d, site.in[2]}, site.caller);
  if (site.wants[1]) gradients[1] = Apply1(op::GroupedMatMul{false}, {a, d, site.in[2]}, site.caller);
  return gradients;
}

Gradients VjpRule(const op::GatedUnary& op, const Site& site) {
  return {Apply1(op::GatedUnaryGrad{op.fn}, {site.in[0], site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::GatedUnaryGrad& op, const Site& site) {
  return VjpByComposition(site, [&](const std::vector<Var>& in) -> std::vector<Var> {
    const int64_t half = in[1].shape().back();
    const Var gate = Slice(in[0], -1, 0, half);
    const Var up = Slice(in[0], -1, half, 2 * half);
    const bool by_output = scalar::DerivativeTakesOutput(op.fn);
    const Var value = Unary(op.fn, gate);
    const Var dgate = Apply1(op::UnaryGrad{op.fn}, {by_output ? value : gate, in[1] * up}, site.caller);
    return {Concat({dgate, in[1] * value}, -1)};
  });
}

}  // namespace gemmill
