// Reductions, softmax, norms and cross-entropy. The fused gradient ops at the end of each pair are differentiated by
// their composition.
#include <limits>

#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/vjp.h"

namespace gemmill {
namespace {

// `x`, which lacks the reduced dimensions, with them as size 1.
Var KeepDims(const Site& site, const Var& x, const Axes& axes) {
  Shape shape = site.in[0].shape();
  for (int64_t axis : axes) shape[static_cast<size_t>(axis)] = 1;
  return Reshape(x, shape);
}

const ReduceOptions kLastAxis{{-1}, /*keepdims=*/true};

Var WithColumn(const Var& rows) { return Reshape(rows, {-1, 1}); }

}  // namespace

Gradients VjpRule(const op::Reduce& op, const Site& site) {
  const Var& x = site.in[0];
  Var d = KeepDims(site, site.dout[0], op.axes);
  if (op.fn == ReduceFn::kMax || op.fn == ReduceFn::kMin) {
    const Var chosen = Cast(Equal(x, KeepDims(site, site.out[0], op.axes)), x.dtype());
    const Var ties = Apply1(op::Reduce{ReduceFn::kSum, op.axes, true}, {chosen}, site.caller);
    return {chosen * (d / ties)};
  }
  if (op.fn == ReduceFn::kMean) {
    const int64_t count = site.out[0].spec().num_elements();
    d = d * (count == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(x.spec().num_elements()));
  }
  return {BroadcastTo(d, x.shape())};
}

NotDifferentiable VjpRule(const op::ArgMax&, const Site&) { return {"its output is an index"}; }

Gradients VjpRule(const op::GlobalNorm&, const Site& site) {
  // At 0 the norm has a corner; 0 is a subgradient.
  const Var& norm = site.out[0];
  const Var scale = Where(Greater(norm, 0.0), site.dout[0] / norm, 0.0);
  Gradients gradients;
  for (const Var& x : site.in) gradients.push_back(x * Cast(scale, x.dtype()));
  return gradients;
}

Gradients VjpRule(const op::Softmax& op, const Site& site) {
  return {Apply1(op::SoftmaxGrad{op.log}, {site.out[0], site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::SoftmaxGrad& op, const Site& site) {
  return VjpByComposition(site, [&](const std::vector<Var>& in) -> std::vector<Var> {
    const Var& y = in[0];
    const Var& dy = in[1];
    if (op.log) return {dy - Exp(y) * Sum(dy, kLastAxis)};
    return {y * (dy - Sum(dy * y, kLastAxis))};
  });
}

Gradients VjpRule(const op::Normalize& op, const Site& site) {
  const Var& y = site.out[0];
  const Var& rstd = site.out[1];
  Gradients gradients(1);
  if (site.dout[0].node() != nullptr) {
    gradients[0] = Apply1(op::NormalizeGrad{op.centered}, {y, rstd, site.dout[0]}, site.caller);
  }
  if (site.dout[1].node() != nullptr) {
    // d rstd / dx = -rstd^3 (x - mean) / N = -rstd^2 y / N.
    Shape column = rstd.shape();
    column.push_back(1);
    const Var scale = site.dout[1] * rstd * rstd * (-1.0 / static_cast<double>(y.shape().back()));
    const Var by_rstd = y * Cast(Reshape(scale, column), y.dtype());
    gradients[0] = gradients[0].node() == nullptr ? by_rstd : gradients[0] + by_rstd;
  }
  return gradients;
}

Gradients VjpRule(const op::NormalizeGrad& op, const Site& site) {
  return VjpByComposition(site, [&](const std::vector<Var>& in) -> std::vector<Var> {
    const DType wide = in[1].dtype();
    Shape column = in[1].shape();
    column.push_back(1);
    const Var y = Cast(in[0], wide);
    const Var rstd = Reshape(in[1], column);
    const Var dy = Cast(in[2], wide);
    Var centered = dy - y * Mean(dy * y, kLastAxis);
    if (op.centered) centered = centered - Mean(dy, kLastAxis);
    return {Cast(rstd * centered, in[0].dtype())};
  });
}

Gradients VjpRule(const op::CrossEntropy& op, const Site& site) {
  const Var& logits = site.in[0];
  Gradients gradients(2);
  if (site.dout[0].node() != nullptr) {
    gradients[0] = Apply1(op::CrossEntropyGrad{op.ignore_index, op.label_smoothing}, {logits, site.in[1], site.dout[0]},
                          site.caller);
  }
  if (site.dout[2].node() != nullptr) {
    const Var softmax = Softmax(Cast(logits, site.out[2].dtype()));
    const Var by_logsumexp = Cast(WithColumn(site.dout[2]) * softmax, logits.dtype());
    gradients[0] = gradients[0].node() == nullptr ? by_logsumexp : gradients[0] + by_logsumexp;
  }
  return gradients;
}

Gradients VjpRule(const op::CrossEntropyGrad& op, const Site& site) {
  return VjpByComposition(site, [&](const std::vector<Var>& in) -> std::vector<Var> {
    // Rows that are ignored, and those that hold nothing but -inf, have gradient 0 whatever is in them.
    const Var& labels = in[1];
    const DType wide = in[2].dtype();
    const int64_t classes = in[0].shape()[1];
    const double smoothing = op.label_smoothing;
    const Var ignored = Equal(labels, static_cast<double>(op.ignore_index));
    const Var target =
        OneHot(Where(ignored, 0.0, labels), classes, wide) * (1 - smoothing) + smoothing / static_cast<double>(classes);
    const Var softmax = Softmax(Where(WithColumn(ignored), 0.0, Cast(in[0], wide)));
    const Var nothing = Equal(Sum(softmax.Detach(), kLastAxis), 0.0);
    const Var rows = Where(Maximum(WithColumn(ignored), nothing), 0.0, in[2] * (softmax - target));
    return {Cast(rows, in[0].dtype())};
  });
}

}  // namespace gemmill
