#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/vjp.h"

namespace gemmill {

Gradients VjpRule(const op::BroadcastTo&, const Site& site) { return {site.dout[0]}; }

Gradients VjpRule(const op::Reshape&, const Site& site) {
  return {Apply1(op::Reshape{site.in[0].shape()}, {site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::Permute& op, const Site& site) {
  Axes inverse(op.axes.size());
  for (size_t i = 0; i < op.axes.size(); ++i) inverse[static_cast<size_t>(op.axes[i])] = static_cast<int64_t>(i);
  return {Apply1(op::Permute{inverse}, {site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::Slice& op, const Site& site) {
  const int64_t size = site.in[0].shape()[static_cast<size_t>(op.axis)];
  return {Apply1(op::Unslice{op.axis, op.start, op.step, size}, {site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::Unslice& op, const Site& site) {
  const int64_t count = site.in[0].shape()[static_cast<size_t>(op.axis)];
  const int64_t start = count == 0 ? 0 : op.start;
  const int64_t stop = count == 0 ? 0 : op.start + (count - 1) * op.step + 1;
  return {Apply1(op::Slice{op.axis, start, stop, op.step}, {site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::Concat& op, const Site& site) {
  Gradients gradients;
  int64_t start = 0;
  for (size_t i = 0; i < site.in.size(); ++i) {
    const int64_t stop = start + site.in[i].shape()[static_cast<size_t>(op.axis)];
    gradients.push_back(site.wants[i] ? Apply1(op::Slice{op.axis, start, stop, 1}, {site.dout[0]}, site.caller)
                                      : Var());
    start = stop;
  }
  return gradients;
}

Gradients VjpRule(const op::GatherRows&, const Site& site) {
  return {ScatterAddRows(site.dout[0], site.in[1], site.in[0].shape()[0]), Var()};
}

Gradients VjpRule(const op::ScatterAddRows&, const Site& site) { return {GatherRows(site.dout[0], site.in[1]), Var()}; }

NotDifferentiable VjpRule(const op::OneHot&, const Site&) { return {"its input is an index"}; }

}  // namespace gemmill
