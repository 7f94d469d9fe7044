#include "gemmill/autograd/custom.h"
#include "gemmill/autograd/vjp.h"

namespace gemmill {

NotDifferentiable VjpRule(const op::Sgd&, const Site&) { return {"an optimizer's update is not part of the loss"}; }
NotDifferentiable VjpRule(const op::AdamW&, const Site&) { return {"an optimizer's update is not part of the loss"}; }

NotDifferentiable VjpRule(const op::FusedMatMul&, const Site&) { return {"passes make it, after Grad"}; }
NotDifferentiable VjpRule(const op::ActivationBiasGrad&, const Site&) { return {"passes make it, after Grad"}; }

std::variant<Gradients, NotDifferentiable> VjpRule(const op::Custom& op, const Site& site) {
  const auto* differentiable = dynamic_cast<const DifferentiableOp*>(op.custom.get());
  if (differentiable == nullptr) return NotDifferentiable{"it derives from CustomOp; derive it from DifferentiableOp"};
  return differentiable->Vjp(site.in, site.out, site.dout);
}

}  // namespace gemmill
