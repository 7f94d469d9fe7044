// Ops of Mixture-of-Experts blocks: choices, rows, grouped GEMMs.
#include <cmath>
#include <utility>

#include "gemmill/runtime/infer_rules.h"

namespace gemmill::infer {
namespace {

absl::Status WantRank2(const char* what, const Spec& spec) {
  if (spec.rank() == 2) return absl::OkStatus();
  return InvalidArgument(what, " has 2 dimensions, got ", spec.ToString());
}

absl::Status WantI64(const char* what, const Spec& spec) {
  if (spec.dtype == DType::kI64) return absl::OkStatus();
  return InvalidArgument(what, " is i64, got ", spec.ToString());
}

// index [..., k] beside x [..., N].
absl::Status WantAlong(const Spec& x, const Spec& index) {
  GM_RETURN_IF_ERROR(WantRank(x, 1));
  GM_RETURN_IF_ERROR(WantI64("the index", index));
  if (index.rank() == x.rank() && Leading(index.shape, 1) == Leading(x.shape, 1)) return absl::OkStatus();
  return InvalidArgument("index ", index.ToString(), " differs from ", x.ToString(),
                         " in more than its last dimension");
}

// row [T, k], and weights, if there are any, of the same shape.
absl::Status WantRows(Specs in, size_t row, DType rows) {
  GM_RETURN_IF_ERROR(WantRank2("row", in[row]));
  GM_RETURN_IF_ERROR(WantI64("row", in[row]));
  if (in.size() == row + 1) return absl::OkStatus();
  return WantSpec("weights", in[row + 1], in[row].shape, Wide(rows));
}

absl::Status WantOneOrTwo(Specs in, size_t least) {
  if (in.size() == least || in.size() == least + 1) return absl::OkStatus();
  return InvalidArgument("takes ", least, " or ", least + 1, " inputs, got ", in.size());
}

absl::Status WantMatrices(const char* what, const Spec& spec) {
  GM_RETURN_IF_ERROR(WantFloating({&spec, 1}));
  return WantRank2(what, spec);
}

absl::Status WantOffsets(const Spec& offsets) {
  if (offsets.dtype == DType::kI64 && offsets.rank() == 1 && offsets.shape[0] >= 2) return absl::OkStatus();
  return InvalidArgument("offsets are ", offsets.ToString(), ", expected i64 [experts + 1], of at least one expert");
}

}  // namespace

Result InferRule(const op::TopK& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  if (op.k < 1 || op.k > in[0].shape.back()) {
    return InvalidArgument("k is ", op.k, ", expected 1 to ", in[0].shape.back(), ", the last dimension of ",
                           in[0].ToString());
  }
  Shape shape = in[0].shape;
  shape.back() = op.k;
  return std::vector<Spec>{Like(in, 0, shape, DType::kI64)};
}

Result InferRule(const op::TakeAlong&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantFloating(in.first(1)));
  GM_RETURN_IF_ERROR(WantAlong(in[0], in[1]));
  return std::vector<Spec>{Like(in, 0, in[1].shape)};
}

Result InferRule(const op::AddAlong& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantFloating(in.first(1)));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  GM_RETURN_IF_ERROR(WantSpec("the index", in[1], in[0].shape, DType::kI64));
  if (op.size < 0) return InvalidArgument("size is ", op.size, ", expected 0 or more");
  Shape shape = in[0].shape;
  shape.back() = op.size;
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::AssignRows& op, Specs in) {
  GM_RETURN_IF_ERROR(WantOneOrTwo(in, 1));
  GM_RETURN_IF_ERROR(WantRank2("the index", in[0]));
  GM_RETURN_IF_ERROR(WantI64("the index", in[0]));
  if (in.size() == 2) GM_RETURN_IF_ERROR(WantSpec("mask", in[1], {in[0].shape[0]}, DType::kU8));
  if (op.experts < 1) return InvalidArgument(op.experts, " experts, expected at least 1");
  if (!(op.capacity_factor >= 0 && std::isfinite(op.capacity_factor))) {
    return InvalidArgument("capacity_factor is ", op.capacity_factor, ", expected above 0, or 0 for no limit");
  }
  return std::vector<Spec>{in[0], Like(in, 0, {op.experts + 1}), Like(in, 0, {op.experts})};
}

Result InferRule(const op::DispatchRows& op, Specs in) {
  GM_RETURN_IF_ERROR(WantOneOrTwo(in, 2));
  GM_RETURN_IF_ERROR(WantMatrices("x", in[0]));
  GM_RETURN_IF_ERROR(WantRows(in, 1, in[0].dtype));
  if (in[1].shape[0] != in[0].shape[0]) {
    return InvalidArgument("row is ", in[1].ToString(), ", expected one line for each of the tokens ",
                           in[0].ToString());
  }
  if (op.rows < 0) return InvalidArgument("rows is ", op.rows, ", expected 0 or more");
  return std::vector<Spec>{Like(in, 0, {op.rows, in[0].shape[1]})};
}

Result InferRule(const op::CombineRows&, Specs in) {
  GM_RETURN_IF_ERROR(WantOneOrTwo(in, 2));
  GM_RETURN_IF_ERROR(WantMatrices("rows", in[0]));
  GM_RETURN_IF_ERROR(WantRows(in, 1, in[0].dtype));
  return std::vector<Spec>{Like(in, 0, {in[1].shape[0], in[0].shape[1]})};
}

Result InferRule(const op::DotRows&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  GM_RETURN_IF_ERROR(WantMatrices("rows", in[0]));
  GM_RETURN_IF_ERROR(WantRows(in.first(2), 1, in[0].dtype));
  GM_RETURN_IF_ERROR(WantSpec("x", in[2], {in[1].shape[0], in[0].shape[1]}, in[0].dtype));
  return std::vector<Spec>{Like(in, 0, in[1].shape, Wide(in[0].dtype))};
}

Result InferRule(const op::GroupedMatMul& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  GM_RETURN_IF_ERROR(WantFloating(in.first(2)));
  GM_RETURN_IF_ERROR(WantSameDType(in.first(2)));
  GM_RETURN_IF_ERROR(WantRank2("rows", in[0]));
  GM_RETURN_IF_ERROR(WantOffsets(in[2]));
  const Shape& weights = in[1].shape;
  if (weights.size() != 3 || weights[0] != in[2].shape[0] - 1 || weights[op.trans_b ? 2 : 1] != in[0].shape[1]) {
    return InvalidArgument("weights are ", in[1].ToString(), ", expected a matrix ",
                           op.trans_b ? "[outputs, inputs]" : "[inputs, outputs]", " of ", in[0].shape[1],
                           " inputs for each of the ", in[2].shape[0] - 1, " experts");
  }
  return std::vector<Spec>{Like(in, 0, {in[0].shape[0], weights[op.trans_b ? 1 : 2]})};
}

Result InferRule(const op::GroupedMatMulWgrad&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  GM_RETURN_IF_ERROR(WantFloating(in.first(2)));
  GM_RETURN_IF_ERROR(WantSameDType(in.first(2)));
  GM_RETURN_IF_ERROR(WantRank2("a", in[0]));
  GM_RETURN_IF_ERROR(WantRank2("b", in[1]));
  GM_RETURN_IF_ERROR(WantOffsets(in[2]));
  if (in[0].shape[0] != in[1].shape[0]) {
    return InvalidArgument("a and b are ", Given(in.first(2)), ", expected as many rows in both");
  }
  return std::vector<Spec>{Like(in, 0, {in[2].shape[0] - 1, in[0].shape[1], in[1].shape[1]})};
}

Result InferRule(const op::GatedUnary&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  Shape shape = in[0].shape;
  if (shape.back() % 2 != 0) {
    return InvalidArgument("takes rows of two halves, got ", in[0].ToString(), " with an odd last dimension");
  }
  shape.back() /= 2;
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::GatedUnaryGrad& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_ASSIGN_OR_RETURN(const std::vector<Spec> y, InferRule(op::GatedUnary{op.fn}, in.first(1)));
  GM_RETURN_IF_ERROR(WantSpec("dy", in[1], y[0].shape, in[0].dtype));
  return std::vector<Spec>{in[0]};
}

}  // namespace gemmill::infer
