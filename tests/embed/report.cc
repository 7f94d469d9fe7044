// The GEMM report of a model that Gemmill does not know: one weight used twice, and two heads.
#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

#include "gemmill/gemmill.h"

namespace gm = gemmill;

class TwoHeads : public gm::Module {
 public:
  static absl::StatusOr<TwoHeads> Create() {
    GM_ASSIGN_OR_RETURN(gm::Linear first, gm::Linear::Create({.inputs = 8, .outputs = 16}));
    GM_ASSIGN_OR_RETURN(gm::Linear twice, gm::Linear::Create({.inputs = 16, .outputs = 16}));
    GM_ASSIGN_OR_RETURN(gm::Linear kind, gm::Linear::Create({.inputs = 16, .outputs = 4}));
    GM_ASSIGN_OR_RETURN(gm::Linear size, gm::Linear::Create({.inputs = 16, .outputs = 1}));
    return TwoHeads(std::move(first), std::move(twice), std::move(kind), std::move(size));
  }

  gm::Var Body(gm::Located x) const { return gm::Tanh(twice_(gm::Tanh(twice_(gm::Tanh(first_(x)))))); }
  gm::Var Kind(gm::Located body) const { return kind_(body); }
  gm::Var Size(gm::Located body) const { return size_(body); }

 private:
  TwoHeads(gm::Linear first, gm::Linear twice, gm::Linear kind, gm::Linear size)
      : first_(std::move(first)), twice_(std::move(twice)), kind_(std::move(kind)), size_(std::move(size)) {
    AddModule("first", first_);
    AddModule("twice", twice_);
    AddModule("kind", kind_);
    AddModule("size", size_);
  }

  gm::Linear first_;
  gm::Linear twice_;
  gm::Linear kind_;
  gm::Linear size_;
};

absl::Status PrintReport() {
  GM_ASSIGN_OR_RETURN(const TwoHeads model, TwoHeads::Create());
  const auto loss = [&](const gm::Inputs& in) {
    const gm::Var body = model.Body(in["x"]);
    return gm::CrossEntropy(model.Kind(body), in["kind"]) + gm::MeanSquaredError(model.Size(body), in["size"]) * 0.5;
  };
  GM_ASSIGN_OR_RETURN(
      const gm::Program program,
      gm::TrainingProgram(model, loss,
                          {{.name = "x", .spec = {{32, 8}}}, {"kind", {{32}, gm::DType::kI64}}, {"size", {{32, 1}}}}));
  GM_ASSIGN_OR_RETURN(const gm::GemmReport report, gm::MakeGemmReport(program, {.device = "h100"}));
  GM_ASSIGN_OR_RETURN(const gm::Plan plan, gm::MakePlan(program));
  std::cout << gm::GemmReportString(report) << gm::PlanString(plan);
  return absl::OkStatus();
}
