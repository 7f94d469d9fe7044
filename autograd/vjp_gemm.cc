// The two GEMMs of a layer's backward pass: dgrad for what flows on, wgrad for the weights.
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/vjp.h"

namespace gemmill {
namespace {

// [..., M, N] as [rows, N].
Var Flat(const Var& x) {
  const Shape& shape = x.shape();
  return Reshape(x, {NumElements(Shape(shape.begin(), shape.end() - 1)), shape.back()});
}

Var Gemm(GemmRole role, const Var& a, const Var& b, MatMulOptions options) {
  const LayerScope scope = LayerScope::Path(CurrentLayer(), role);
  return MatMul(a, b, options);
}

}  // namespace

Gradients VjpRule(const op::MatMul& op, const Site& site) {
  const Var& a = site.in[0];
  const Var& b = site.in[1];
  const Var& dc = site.dout[0];
  Gradients gradients(2);
  if (site.wants[0]) {
    gradients[0] = op.trans_a ? Gemm(GemmRole::kDgrad, b, dc, {.trans_a = op.trans_b, .trans_b = true})
                              : Gemm(GemmRole::kDgrad, dc, b, {.trans_b = !op.trans_b});
  }
  if (site.wants[1]) {
    // One weight for all of a batch: one GEMM over all rows, not one per matrix and their sum.
    const bool shared = b.shape().size() == 2 && a.shape().size() > 2 && !op.trans_a;
    const Var rows = shared ? Flat(a) : a;
    const Var drows = shared ? Flat(dc) : dc;
    gradients[1] = op.trans_b ? Gemm(GemmRole::kWgrad, drows, rows, {.trans_a = true, .trans_b = op.trans_a})
                              : Gemm(GemmRole::kWgrad, rows, drows, {.trans_a = !op.trans_a});
  }
  return gradients;
}

}  // namespace gemmill
