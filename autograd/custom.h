// A user's own op with a gradient. One without derives from CustomOp (runtime/op.h) itself.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "gemmill/autograd/var.h"

namespace gemmill {

class DifferentiableOp : public CustomOp {
 public:
  // The gradient of each input, of the input's spec (or its broadcast), from those of the outputs (an empty Var where
  // nothing depends on an output). An empty Var says that an input has none. Written with the public ops, it can be
  // differentiated again.
  virtual std::vector<Var> Vjp(absl::Span<const Var> inputs, absl::Span<const Var> outputs,
                               absl::Span<const Var> output_gradients) const = 0;
};

}  // namespace gemmill
