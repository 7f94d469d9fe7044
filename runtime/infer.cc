#include "gemmill/runtime/infer.h"

#include <algorithm>

#include "gemmill/runtime/infer_rules.h"

namespace gemmill {

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t from_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t from_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (from_a != from_b && from_a != 1 && from_b != 1) {
      return InvalidArgument("shapes ", ShapeString(a), " and ", ShapeString(b), " do not broadcast: ", from_a, " and ",
                             from_b);
    }
    shape[shape.size() - 1 - i] = from_a == 1 ? from_b : from_a;
  }
  return shape;
}

absl::StatusOr<std::vector<Spec>> Infer(const Op& op, Specs inputs) {
  for (const Spec& spec : inputs) {
    if (spec.device != inputs[0].device) {
      return InvalidArgument(OpName(op), ": inputs are on ", inputs[0].device.ToString(), " and ",
                             spec.device.ToString());
    }
  }
  infer::Result outputs = std::visit([&](const auto& typed) { return infer::InferRule(typed, inputs); }, op);
  if (!outputs.ok()) return Annotate(outputs.status(), OpName(op), ": ");
  for (const Spec& spec : *outputs) {
    const auto count = CheckedNumElements(spec.shape, SizeOf(spec.dtype));
    if (!count.ok()) return Annotate(count.status(), OpName(op), ": ");
  }
  return outputs;
}

}  // namespace gemmill
