#include "gemmill/runtime/cost.h"

#include <algorithm>

namespace gemmill {
namespace {

// Floating-point operations of an op; the traffic is the same sum for all.
struct Flops {
  Specs in;
  Specs out;

  int64_t Elements() const { return out.empty() ? 0 : out[0].num_elements(); }
  int64_t Read() const { return in.empty() ? 0 : in[0].num_elements(); }

  int64_t operator()(const op::MatMul& op) const {
    const Shape& a = in[0].shape;
    return 2 * Elements() * a[a.size() - (op.trans_a ? 2 : 1)];
  }
  int64_t operator()(const op::Unary&) const { return Elements(); }
  int64_t operator()(const op::UnaryGrad&) const { return 2 * Elements(); }
  int64_t operator()(const op::Binary&) const { return Elements(); }
  int64_t operator()(const op::Where&) const { return 0; }
  int64_t operator()(const op::Reduce&) const { return Read(); }
  int64_t operator()(const op::ArgMax&) const { return Read(); }
  int64_t operator()(const op::BroadcastTo&) const { return 0; }
  int64_t operator()(const op::Softmax&) const { return 4 * Elements(); }  // maximum, exp, sum, division
  int64_t operator()(const op::SoftmaxGrad&) const { return 4 * Elements(); }
  int64_t operator()(const op::Normalize& op) const { return (op.centered ? 6 : 3) * Elements(); }
  int64_t operator()(const op::NormalizeGrad& op) const { return (op.centered ? 8 : 6) * Elements(); }
  int64_t operator()(const op::CrossEntropy&) const { return 3 * Read(); }
  int64_t operator()(const op::CrossEntropyGrad&) const { return 3 * Read(); }
  int64_t operator()(const op::GatherRows&) const { return 0; }
  int64_t operator()(const op::ScatterAddRows&) const { return Read(); }
  int64_t operator()(const op::Reshape&) const { return 0; }
  int64_t operator()(const op::Permute&) const { return 0; }
  int64_t operator()(const op::Slice&) const { return 0; }
  int64_t operator()(const op::Unslice&) const { return 0; }
  int64_t operator()(const op::Concat&) const { return 0; }
  int64_t operator()(const op::OneHot&) const { return 0; }
  int64_t operator()(const op::Cast&) const { return 0; }
  int64_t operator()(const op::Fill&) const { return 0; }
  int64_t operator()(const op::Iota&) const { return 0; }
  int64_t operator()(const op::Dropout&) const { return Elements(); }
  int64_t operator()(const op::GlobalNorm&) const {
    int64_t count = 0;
    for (const Spec& spec : in) count += spec.num_elements();
    return 2 * count;
  }
  int64_t operator()(const op::Sgd& op) const { return (op.momentum == 0 ? 4 : 6) * First(op.weight_decay.size()); }
  int64_t operator()(const op::AdamW& op) const { return 14 * First(op.weight_decay.size()); }
  int64_t operator()(const op::TopK&) const { return Read(); }
  int64_t operator()(const op::TakeAlong&) const { return 0; }
  int64_t operator()(const op::AddAlong&) const { return Read(); }
  int64_t operator()(const op::AssignRows&) const { return 0; }
  int64_t operator()(const op::DispatchRows&) const { return in.size() > 2 ? Elements() : 0; }
  int64_t operator()(const op::CombineRows&) const { return (in.size() > 2 ? 2 : 1) * Choices() * in[0].shape[1]; }
  int64_t operator()(const op::DotRows&) const { return 2 * Choices() * in[0].shape[1]; }
  int64_t operator()(const op::GroupedMatMul&) const { return 2 * Elements() * in[0].shape[1]; }
  int64_t operator()(const op::GroupedMatMulWgrad&) const { return 2 * Read() * in[1].shape[1]; }
  int64_t operator()(const op::GatedUnary&) const { return 2 * Elements(); }
  int64_t operator()(const op::GatedUnaryGrad&) const { return 3 * Elements(); }
  int64_t operator()(const op::FusedMatMul& op) const { return (*this)(op.matmul); }
  int64_t operator()(const op::ActivationBiasGrad&) const { return 3 * Elements(); }
  int64_t operator()(const op::Custom&) const { return 0; }  // unknown

  int64_t Choices() const { return in[1].num_elements(); }
  // The elements of the first `count` outputs.
  int64_t First(size_t count) const {
    int64_t elements = 0;
    for (const Spec& spec : out.first(std::min(count, out.size()))) elements += spec.num_elements();
    return elements;
  }
};

GemmShape Gemm(const op::MatMul& op, Specs in, Specs out) {
  const Shape& a = in[0].shape;
  const Shape& c = out[0].shape;
  GemmShape gemm{.m = c[c.size() - 2], .n = c[c.size() - 1], .k = a[a.size() - (op.trans_a ? 2 : 1)]};
  gemm.batch = NumElements(Shape(c.begin(), c.end() - 2));
  return gemm;
}

}  // namespace

OpCost Cost(const Op& op, Specs inputs, Specs outputs) {
  OpCost cost;
  cost.flops = std::visit(Flops{inputs, outputs}, op);
  for (const Spec& spec : inputs) cost.bytes += spec.bytes();
  for (const Spec& spec : outputs) cost.bytes += spec.bytes();
  if (const auto* matmul = std::get_if<op::MatMul>(&op)) cost.gemm = Gemm(*matmul, inputs, outputs);
  if (const auto* fused = std::get_if<op::FusedMatMul>(&op)) cost.gemm = Gemm(fused->matmul, inputs, outputs);
  return cost;
}

std::vector<GemmShape> GemmsOf(const Op& op, Specs inputs, Specs outputs, absl::Span<const int64_t> loads) {
  const bool wgrad = std::holds_alternative<op::GroupedMatMulWgrad>(op);
  if (!wgrad && !std::holds_alternative<op::GroupedMatMul>(op)) {
    const std::optional<GemmShape> gemm = Cost(op, inputs, outputs).gemm;
    return gemm.has_value() ? std::vector<GemmShape>{*gemm} : std::vector<GemmShape>{};
  }
  const int64_t rows = inputs[0].shape[0];
  const int64_t experts = inputs[2].shape[0] - 1;
  const bool given = static_cast<int64_t>(loads.size()) == experts;
  std::vector<GemmShape> gemms;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t load = given ? loads[static_cast<size_t>(e)] : rows / experts + (e < rows % experts ? 1 : 0);
    gemms.push_back(wgrad ? GemmShape{.m = inputs[0].shape[1], .n = inputs[1].shape[1], .k = load}
                          : GemmShape{.m = load, .n = outputs[0].shape[1], .k = inputs[0].shape[1]});
  }
  return gemms;
}

}  // namespace gemmill
