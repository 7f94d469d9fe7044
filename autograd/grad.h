// Grad: reverse-mode differentiation as a function over the graph. Nothing is stored in the graph: the same loss can be
// differentiated again, with respect to other Vars, or through its gradient.
#pragma once

#include <vector>

#include "gemmill/autograd/var.h"

namespace gemmill {

struct GradOptions {
  // Keep the history of the gradients themselves, so that Grad may be taken of them (higher orders).
  bool differentiable = false;
};

// The gradients of `loss` (one element, floating) with respect to each of `vars`, with their shapes and dtypes: zeros
// for a Var that the loss does not depend on. Errors are carried by every result: a loss that depends on no parameter
// at all, an op without a gradient on the way, a value that was changed in place (an optimizer step) after the loss was
// computed.
std::vector<Var> Grad(const Var& loss, const std::vector<Var>& vars, GradOptions options = {},
                      Caller caller = Caller::Here());

// Whether any of `vars` has a part in `value`: whether Grad would find more than zeros of none.
bool DependsOnAny(const Var& value, const std::vector<Var>& vars);

}  // namespace gemmill
