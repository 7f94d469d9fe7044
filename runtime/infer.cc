#include "gemmill/runtime/infer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

using Result = absl::StatusOr<std::vector<Spec>>;

std::string Given(Specs in) {
  return in.empty() ? "nothing" : absl::StrJoin(in, ", ", [](std::string* out, const Spec& spec) {
    absl::StrAppend(out, spec.ToString());
  });
}

absl::Status WantCount(Specs in, size_t count) {
  if (in.size() == count) return absl::OkStatus();
  return InvalidArgument("takes ", count, " inputs, got ", in.size());
}

absl::Status WantFloating(Specs in) {
  for (const Spec& spec : in) {
    if (!IsFloating(spec.dtype)) return InvalidArgument("takes f32, bf16 or f64, got ", Given(in), "; Cast first");
  }
  return absl::OkStatus();
}

absl::Status WantSameDType(Specs in) {
  for (const Spec& spec : in) {
    if (spec.dtype != in[0].dtype) return InvalidArgument("dtypes differ: ", Given(in), "; Cast one of them");
  }
  return absl::OkStatus();
}

absl::Status WantRank(const Spec& spec, int64_t least) {
  if (spec.rank() >= least) return absl::OkStatus();
  return InvalidArgument("takes at least ", least, " dimensions, got ", spec.ToString());
}

absl::Status WantAxis(int64_t axis, const Spec& spec) {
  if (axis >= 0 && axis < spec.rank()) return absl::OkStatus();
  return InvalidArgument("axis ", axis, " is outside ", spec.ToString());
}

absl::Status WantIndex(const Spec& spec) {
  if (spec.dtype == DType::kI32 || spec.dtype == DType::kI64) return absl::OkStatus();
  return InvalidArgument("takes indices of i32 or i64, got ", spec.ToString());
}

absl::Status WantSpec(const char* what, const Spec& spec, const Shape& shape, DType dtype) {
  if (spec.shape == shape && spec.dtype == dtype) return absl::OkStatus();
  return InvalidArgument(what, " is ", spec.ToString(), ", expected ", Spec{shape, dtype}.ToString());
}

// What statistics and sums of a dtype are kept in.
DType Wide(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Shape Leading(const Shape& shape, int64_t dropped) { return Shape(shape.begin(), shape.end() - dropped); }

struct Inferrer {
  Specs in;

  Spec Like(size_t i, const Shape& shape, DType dtype) const { return Spec{shape, dtype, in[i].device}; }
  Spec Like(size_t i, const Shape& shape) const { return Like(i, shape, in[i].dtype); }

  Result operator()(const op::MatMul& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 2));
    GM_RETURN_IF_ERROR(WantFloating(in));
    GM_RETURN_IF_ERROR(WantSameDType(in));
    for (const Spec& spec : in) GM_RETURN_IF_ERROR(WantRank(spec, 2));
    const Shape& a = in[0].shape;
    const Shape& b = in[1].shape;
    const int64_t m = a[a.size() - (op.trans_a ? 1 : 2)];
    const int64_t a_k = a[a.size() - (op.trans_a ? 2 : 1)];
    const int64_t b_k = b[b.size() - (op.trans_b ? 1 : 2)];
    const int64_t n = b[b.size() - (op.trans_b ? 2 : 1)];
    if (a_k != b_k) {
      return InvalidArgument("inner dimensions differ: ", a_k, " of a ", ShapeString(a), op.trans_a ? " transposed" : "",
                             ", ", b_k, " of b ", ShapeString(b), op.trans_b ? " transposed" : "");
    }
    GM_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(Leading(a, 2), Leading(b, 2)));
    shape.push_back(m);
    shape.push_back(n);
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::Unary& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    const bool integers = op.fn == UnaryFn::kNeg || op.fn == UnaryFn::kAbs || op.fn == UnaryFn::kRelu;
    if (!(integers && (in[0].dtype == DType::kI32 || in[0].dtype == DType::kI64))) GM_RETURN_IF_ERROR(WantFloating(in));
    return std::vector<Spec>{in[0]};
  }

  Result operator()(const op::UnaryGrad&) const {
    GM_RETURN_IF_ERROR(WantCount(in, 2));
    GM_RETURN_IF_ERROR(WantFloating(in));
    GM_RETURN_IF_ERROR(WantSpec("dy", in[1], in[0].shape, in[0].dtype));
    return std::vector<Spec>{in[0]};
  }

  Result operator()(const op::Binary& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 2));
    GM_RETURN_IF_ERROR(WantSameDType(in));
    GM_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, in[1].shape));
    return std::vector<Spec>{Like(0, shape, IsComparison(op.fn) ? DType::kU8 : in[0].dtype)};
  }

  Result operator()(const op::Where&) const {
    GM_RETURN_IF_ERROR(WantCount(in, 3));
    if (in[0].dtype != DType::kU8) return InvalidArgument("the condition is u8 (a comparison), got ", in[0].ToString());
    GM_RETURN_IF_ERROR(WantSameDType(in.subspan(1)));
    GM_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[1].shape, in[2].shape));
    GM_ASSIGN_OR_RETURN(shape, BroadcastShapes(in[0].shape, shape));
    return std::vector<Spec>{Like(1, shape)};
  }

  Result operator()(const op::Reduce& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    const bool integers = op.fn != ReduceFn::kMean && (in[0].dtype == DType::kI32 || in[0].dtype == DType::kI64);
    if (!integers) GM_RETURN_IF_ERROR(WantFloating(in));
    std::vector<bool> reduced(in[0].shape.size(), false);
    for (int64_t axis : op.axes) {
      GM_RETURN_IF_ERROR(WantAxis(axis, in[0]));
      if (reduced[static_cast<size_t>(axis)]) return InvalidArgument("axis ", axis, " is given twice");
      reduced[static_cast<size_t>(axis)] = true;
    }
    Shape shape;
    bool nothing = false;
    for (size_t i = 0; i < reduced.size(); ++i) {
      if (!reduced[i]) shape.push_back(in[0].shape[i]);
      if (reduced[i] && op.keepdims) shape.push_back(1);
      nothing = nothing || (reduced[i] && in[0].shape[i] == 0);
    }
    if (nothing && (op.fn == ReduceFn::kMax || op.fn == ReduceFn::kMin) && NumElements(shape) > 0) {
      return InvalidArgument("of no elements: ", in[0].ToString(), " has none along the reduced axes");
    }
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::ArgMax& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    if (in[0].dtype == DType::kU8) return InvalidArgument("takes floating, i32 or i64, got ", in[0].ToString());
    GM_RETURN_IF_ERROR(WantAxis(op.axis, in[0]));
    Shape shape = in[0].shape;
    if (shape[static_cast<size_t>(op.axis)] == 0) return InvalidArgument("of no elements: ", in[0].ToString());
    if (op.keepdims) {
      shape[static_cast<size_t>(op.axis)] = 1;
    } else {
      shape.erase(shape.begin() + op.axis);
    }
    return std::vector<Spec>{Like(0, shape, DType::kI64)};
  }

  Result operator()(const op::BroadcastTo& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    const auto joined = BroadcastShapes(in[0].shape, op.shape);
    if (!joined.ok() || *joined != op.shape) {
      return InvalidArgument(in[0].ToString(), " does not broadcast to ", ShapeString(op.shape));
    }
    return std::vector<Spec>{Like(0, op.shape)};
  }

  Result operator()(const op::Softmax&) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    GM_RETURN_IF_ERROR(WantFloating(in));
    GM_RETURN_IF_ERROR(WantRank(in[0], 1));
    return std::vector<Spec>{in[0]};
  }

  Result operator()(const op::SoftmaxGrad&) const {
    GM_RETURN_IF_ERROR(WantCount(in, 2));
    GM_RETURN_IF_ERROR(WantFloating(in));
    GM_RETURN_IF_ERROR(WantRank(in[0], 1));
    GM_RETURN_IF_ERROR(WantSpec("dy", in[1], in[0].shape, in[0].dtype));
    return std::vector<Spec>{in[0]};
  }

  Result operator()(const op::Normalize& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    GM_RETURN_IF_ERROR(WantFloating(in));
    GM_RETURN_IF_ERROR(WantRank(in[0], 1));
    if (!(op.epsilon >= 0)) return InvalidArgument("epsilon is ", op.epsilon, ", expected 0 or more");
    return std::vector<Spec>{in[0], Like(0, Leading(in[0].shape, 1), Wide(in[0].dtype))};
  }

  Result operator()(const op::NormalizeGrad&) const {
    GM_RETURN_IF_ERROR(WantCount(in, 3));
    GM_RETURN_IF_ERROR(WantFloating(in));
    GM_RETURN_IF_ERROR(WantRank(in[0], 1));
    GM_RETURN_IF_ERROR(WantSpec("rstd", in[1], Leading(in[0].shape, 1), Wide(in[0].dtype)));
    GM_RETURN_IF_ERROR(WantSpec("dy", in[2], in[0].shape, in[0].dtype));
    return std::vector<Spec>{in[0]};
  }

  absl::Status WantLogits() const {
    GM_RETURN_IF_ERROR(WantFloating(in.subspan(0, 1)));
    if (in[0].rank() != 2) return InvalidArgument("takes logits [samples, classes], got ", in[0].ToString());
    GM_RETURN_IF_ERROR(WantIndex(in[1]));
    if (in[1].rank() != 1 || in[1].shape[0] != in[0].shape[0]) {
      return InvalidArgument("labels are ", in[1].ToString(), ", expected one for each of the ", in[0].shape[0],
                             " rows of logits ", in[0].ToString());
    }
    return absl::OkStatus();
  }

  absl::Status WantSmoothing(float smoothing) const {
    if (smoothing >= 0 && smoothing <= 1) return absl::OkStatus();
    return InvalidArgument("label_smoothing is ", smoothing, ", expected 0 to 1");
  }

  Result operator()(const op::CrossEntropy& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 2));
    GM_RETURN_IF_ERROR(WantLogits());
    GM_RETURN_IF_ERROR(WantSmoothing(op.label_smoothing));
    const DType wide = Wide(in[0].dtype);
    return std::vector<Spec>{Like(0, {}, wide), Like(0, {}, wide), Like(0, {in[0].shape[0]}, wide)};
  }

  Result operator()(const op::CrossEntropyGrad& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 4));
    GM_RETURN_IF_ERROR(WantLogits());
    GM_RETURN_IF_ERROR(WantSmoothing(op.label_smoothing));
    const DType wide = Wide(in[0].dtype);
    GM_RETURN_IF_ERROR(WantSpec("logsumexp", in[2], {in[0].shape[0]}, wide));
    GM_RETURN_IF_ERROR(WantSpec("dsum", in[3], {}, wide));
    return std::vector<Spec>{in[0]};
  }

  Result operator()(const op::GatherRows&) const {
    GM_RETURN_IF_ERROR(WantCount(in, 2));
    GM_RETURN_IF_ERROR(WantRank(in[0], 1));
    GM_RETURN_IF_ERROR(WantIndex(in[1]));
    Shape shape = in[1].shape;
    shape.insert(shape.end(), in[0].shape.begin() + 1, in[0].shape.end());
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::ScatterAddRows& op) const {
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
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::Reshape& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    GM_ASSIGN_OR_RETURN(const int64_t count, CheckedNumElements(op.shape, SizeOf(in[0].dtype)));
    if (count != in[0].num_elements()) {
      return InvalidArgument(in[0].ToString(), " has ", in[0].num_elements(), " elements, ", ShapeString(op.shape),
                             " has ", count);
    }
    return std::vector<Spec>{Like(0, op.shape)};
  }

  Result operator()(const op::Permute& op) const {
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
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::Slice& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    GM_RETURN_IF_ERROR(WantAxis(op.axis, in[0]));
    Shape shape = in[0].shape;
    int64_t& size = shape[static_cast<size_t>(op.axis)];
    if (op.start < 0 || op.start > op.stop || op.stop > size || op.step < 1) {
      return InvalidArgument("start ", op.start, ", stop ", op.stop, ", step ", op.step, " of axis ", op.axis, " of ",
                             in[0].ToString(), "; expected 0 <= start <= stop <= ", size, " and step >= 1");
    }
    size = (op.stop - op.start + op.step - 1) / op.step;
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::Unslice& op) const {
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
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::Concat& op) const {
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
    return std::vector<Spec>{Like(0, shape)};
  }

  Result operator()(const op::OneHot& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    GM_RETURN_IF_ERROR(WantIndex(in[0]));
    if (op.classes < 0) return InvalidArgument("classes is ", op.classes, ", expected 0 or more");
    Shape shape = in[0].shape;
    shape.push_back(op.classes);
    return std::vector<Spec>{Like(0, shape, op.dtype)};
  }

  Result operator()(const op::Cast& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1));
    return std::vector<Spec>{Like(0, in[0].shape, op.dtype)};
  }

  Result operator()(const op::Fill& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 0));
    return std::vector<Spec>{Spec{op.shape, op.dtype, op.device}};
  }

  Result operator()(const op::Iota& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 0));
    return std::vector<Spec>{Spec{{op.size}, DType::kI64, op.device}};
  }

  Result operator()(const op::Dropout& op) const {
    GM_RETURN_IF_ERROR(WantCount(in, 3));
    GM_RETURN_IF_ERROR(WantFloating(in.subspan(0, 1)));
    GM_RETURN_IF_ERROR(WantRank(in[0], 1));
    if (!(op.rate >= 0 && op.rate < 1)) return InvalidArgument("rate is ", op.rate, ", expected 0 <= rate < 1");
    GM_RETURN_IF_ERROR(WantSpec("key", in[1], {2}, DType::kI64));
    GM_RETURN_IF_ERROR(WantSpec("index", in[2], {NumElements(Leading(in[0].shape, 1))}, DType::kI64));
    return std::vector<Spec>{in[0]};
  }

  Result operator()(const op::GlobalNorm&) const {
    GM_RETURN_IF_ERROR(WantFloating(in));
    return std::vector<Spec>{Spec{{}, DType::kF32, in.empty() ? Device::Cpu() : in[0].device}};
  }

  // (control, then `per_parameter` tensors for each of `count` parameters), of which all but the gradient are outputs.
  Result Update(size_t per_parameter, size_t count, size_t scales) const {
    GM_RETURN_IF_ERROR(WantCount(in, 1 + per_parameter * count));
    if (scales != count) return InvalidArgument(scales, " learning rate scales for ", count, " parameters");
    GM_RETURN_IF_ERROR(WantSpec("control", in[0], {3}, DType::kF64));
    std::vector<Spec> out;
    for (size_t i = 1; i < in.size(); i += per_parameter) {
      GM_RETURN_IF_ERROR(WantFloating(in.subspan(i, 1)));
      GM_RETURN_IF_ERROR(WantSpec("gradient", in[i + 1], in[i].shape, in[i].dtype));
      for (size_t s = 2; s < per_parameter; ++s) {
        GM_RETURN_IF_ERROR(WantSpec("optimizer state", in[i + s], in[i].shape, Wide(in[i].dtype)));
      }
      for (size_t s = 0; s < per_parameter; ++s) {
        if (s != 1) out.push_back(in[i + s]);
      }
    }
    return out;
  }

  Result operator()(const op::Sgd& op) const {
    return Update(op.momentum == 0 ? 2 : 3, op.weight_decay.size(), op.learning_rate_scale.size());
  }

  Result operator()(const op::AdamW& op) const {
    return Update(4, op.weight_decay.size(), op.learning_rate_scale.size());
  }

  Result operator()(const op::Custom& op) const {
    if (op.custom == nullptr) return InvalidArgument("holds no CustomOp");
    return op.custom->Infer(in);
  }
};

}  // namespace

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
  Result outputs = std::visit(Inferrer{inputs}, op);
  if (!outputs.ok()) return Annotate(outputs.status(), OpName(op), ": ");
  for (const Spec& spec : *outputs) {
    const auto count = CheckedNumElements(spec.shape, SizeOf(spec.dtype));
    if (!count.ok()) return Annotate(count.status(), OpName(op), ": ");
  }
  return outputs;
}

}  // namespace gemmill
