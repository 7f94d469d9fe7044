#include <utility>

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
  absl::StatusOr<Gradients> gradients =
      CatchExceptions([&]() -> absl::StatusOr<Gradients> { return differentiable->Vjp(site.in, site.out, site.dout); });
  if (gradients.ok()) return *std::move(gradients);
  return Gradients(site.in.size(), Var::Error(Annotate(gradients.status(), site.caller.ToString(), ": the gradient of ",
                                                       op.custom->Name(), ": ")));
}

}  // namespace gemmill
