// Ops that move, make or convert values.
#include <algorithm>
#include <cmath>
#include <utility>

#include "gemmill/runtime/infer_rules.h"

namespace gemmill::infer {

Result InferRule(const op::BroadcastTo& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  const auto joined = BroadcastShapes(in[0].shape, op.shape);
  if (!joined.ok() || *joined != op.shape) {
    return InvalidArgument(in[0].ToString(), " does not broadcast to ", ShapeString(op.shape));
  }
  return std::vector<Spec>{Like(in, 0, op.shape)};
}

Result InferRule(const op::GatherRows&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  GM_RETURN_IF_ERROR(WantIndex(in[1]));
  Shape shape = in[1].shape;
  shape.insert(shape.end(), in[0].shape.begin() + 1, in[0].shape.end());
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::ScatterAddRows& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantFloating(in.subspan(0, 1)));
  GM_RETURN_IF_ERROR(WantIndex(in[1]));
  const bool prefix = op.index_rank == in[1].rank() && op.index_rank <= in[0].rank() &&
                      std::equal(in[1].shape.begin(), in[1].shape.end(), in[0].shape.begin());
  if (!prefix) {
    return InvalidArgument("values ", in[0].ToString(), " do not begin with the dimensions of index ",
                           in[1].ToString());
  }
  if (op.rows < 0) return InvalidArgument("rows is ", op.rows, ", expected 0 or more");
  Shape shape{op.rows};
  shape.insert(shape.end(), in[0].shape.begin() + op.index_rank, in[0].shape.end());
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::Reshape& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_ASSIGN_OR_RETURN(const int64_t count, CheckedNumElements(op.shape, SizeOf(in[0].dtype)));
  if (count != in[0].num_elements()) {
    return InvalidArgument(in[0].ToString(), " has ", in[0].num_elements(), " elements, ", ShapeString(op.shape),
                           " has ", count);
  }
  return std::vector<Spec>{Like(in, 0, op.shape)};
}

Result InferRule(const op::Permute& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  Axes sorted = op.axes;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = op.axes.size() == in[0].shape.size();
  for (size_t i = 0; i < sorted.size(); ++i) permutation = permutation && sorted[i] == static_cast<int64_t>(i);
  if (!permutation) {
    return InvalidArgument("axes [", absl::StrJoin(op.axes, ", "), "] are not a permutation of the dimensions of ",
                           in[0].ToString());
  }
  Shape shape;
  for (int64_t axis : op.axes) shape.push_back(in[0].shape[static_cast<size_t>(axis)]);
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::Slice& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantAxis(op.axis, in[0]));
  Shape shape = in[0].shape;
  int64_t& size = shape[static_cast<size_t>(op.axis)];
  if (op.start < 0 || op.start > op.stop || op.stop > size || op.step < 1) {
    return InvalidArgument("start ", op.start, ", stop ", op.stop, ", step ", op.step, " of axis ", op.axis, " of ",
                           in[0].ToString(), "; expected 0 <= start <= stop <= ", size, " and step >= 1");
  }
  size = op.start == op.stop ? 0 : (op.stop - op.start - 1) / op.step + 1;
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::Unslice& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantAxis(op.axis, in[0]));
  Shape shape = in[0].shape;
  const int64_t count = shape[static_cast<size_t>(op.axis)];
  const bool fits = op.start >= 0 && op.step >= 1 && op.size >= 0 &&
                    (count == 0 || (op.start < op.size && (op.size - 1 - op.start) / op.step + 1 >= count));
  if (!fits) {
    return InvalidArgument(count, " elements from ", op.start, " by ", op.step, " do not fit in ", op.size);
  }
  shape[static_cast<size_t>(op.axis)] = op.size;
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::Concat& op, Specs in) {
  if (in.empty()) return InvalidArgument("takes at least one input");
  GM_RETURN_IF_ERROR(WantSameDType(in));
  GM_RETURN_IF_ERROR(WantAxis(op.axis, in[0]));
  Shape shape = in[0].shape;
  const size_t axis = static_cast<size_t>(op.axis);
  for (size_t i = 1; i < in.size(); ++i) {
    Shape other = in[i].shape;
    if (other.size() == shape.size()) other[axis] = shape[axis];
    if (other != shape) return InvalidArgument("shapes differ beyond axis ", op.axis, ": ", Given(in));
    if (__builtin_add_overflow(shape[axis], in[i].shape[axis], &shape[axis])) {
      return InvalidArgument("axis ", op.axis, " of the result is beyond 64 bits: ", Given(in));
    }
  }
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::OneHot& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantIndex(in[0]));
  if (op.classes < 0) return InvalidArgument("classes is ", op.classes, ", expected 0 or more");
  Shape shape = in[0].shape;
  shape.push_back(op.classes);
  return std::vector<Spec>{Like(in, 0, shape, op.dtype)};
}

Result InferRule(const op::Cast& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  return std::vector<Spec>{Like(in, 0, in[0].shape, op.dtype)};
}

namespace {

// Whether the integer `dtype` has a number equal to `value`.
bool Holds(DType dtype, double value) {
  const double bits = static_cast<double>(8 * SizeOf(dtype));
  const double low = dtype == DType::kU8 ? 0 : -std::exp2(bits - 1);
  const double beyond = std::exp2(dtype == DType::kU8 ? bits : bits - 1);
  return value == std::trunc(value) && value >= low && value < beyond;
}

}  // namespace

Result InferRule(const op::Fill& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 0));
  if (!IsFloating(op.dtype) && !Holds(op.dtype, op.value)) {
    return InvalidArgument(op.value, " is no ", DTypeName(op.dtype), "; Cast to a dtype that holds it");
  }
  return std::vector<Spec>{Spec{op.shape, op.dtype, op.device}};
}

Result InferRule(const op::Iota& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 0));
  return std::vector<Spec>{Spec{{op.size}, DType::kI64, op.device}};
}

}  // namespace gemmill::infer
