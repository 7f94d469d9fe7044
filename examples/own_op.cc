// An op of one's own, with its gradient: the cube, computed by a plain loop over f32 values on the CPU.
#include <cstdio>
#include <memory>

#include "gemmill/gemmill.h"

namespace gm = gemmill;

class CubeOp : public gm::DifferentiableOp {
 public:
  std::string Name() const override { return "Cube"; }

  absl::StatusOr<std::vector<gm::Spec>> Infer(gm::Specs inputs) const override {
    if (inputs.size() != 1 || inputs[0].dtype != gm::DType::kF32) return gm::InvalidArgument("takes one f32 input");
    return std::vector<gm::Spec>{inputs[0]};
  }

  absl::Status Run(absl::Span<const gm::Tensor> inputs, absl::Span<gm::Tensor> outputs, gm::Stream&) const override {
    const auto* x = static_cast<const float*>(inputs[0].data());
    auto* y = static_cast<float*>(outputs[0].data());
    for (int64_t i = 0; i < inputs[0].num_elements(); ++i) y[i] = x[i] * x[i] * x[i];
    return absl::OkStatus();
  }

  // Written with Gemmill's ops, the gradient can be differentiated again.
  std::vector<gm::Var> Vjp(absl::Span<const gm::Var> inputs, absl::Span<const gm::Var>,
                           absl::Span<const gm::Var> output_gradients) const override {
    return {output_gradients[0] * 3.0 * inputs[0] * inputs[0]};
  }
};

gm::Var Cube(const gm::Var& x) { return gm::ApplyCustom(std::make_shared<CubeOp>(), {x})[0]; }

absl::Status Run() {
  GM_ASSIGN_OR_RETURN(const gm::Tensor values, gm::Tensor::From(std::vector<float>{1, 2, 3}, {3}));
  const gm::Var x = gm::Var::Parameter(values);
  const gm::Var first = gm::Grad(gm::Sum(Cube(x)), {x}, {.differentiable = true})[0];
  const gm::Var second = gm::Grad(gm::Sum(first), {x})[0];
  GM_ASSIGN_OR_RETURN(const std::vector<float> slopes, first.ToVector<float>());
  GM_ASSIGN_OR_RETURN(const std::vector<float> curvatures, second.ToVector<float>());
  for (size_t i = 0; i < slopes.size(); ++i) std::printf("3 x^2 = %g  6 x = %g\n", slopes[i], curvatures[i]);
  return absl::OkStatus();
}

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
