#include "gemmill/autograd/ops.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/autograd/training_scope.h"

namespace gemmill {
namespace {

Var Fail(const Located& at, absl::Status status) {
  if (!at.number.has_value() && !at.var.ok()) return at.var;  // the first error
  return Var::Error(Annotate(status, Origin{CurrentLayer(), CurrentRole(), CurrentCaller(at.caller)}.ToString(), ": "));
}

// `operand` as a Var; a number takes the dtype and device of `beside`.
Var Resolve(const Located& operand, const Var& beside) {
  if (!operand.number.has_value()) return operand.var;
  return Fill({}, *operand.number, beside.dtype(), beside.device(), operand.caller);
}

Var Binary(BinaryFn fn, const Located& a, const Located& b) {
  const Var left = Resolve(a, b.var);
  const Var right = Resolve(b, left);
  return Apply1(op::Binary{fn}, {left, right}, a.caller);
}

// An axis from the front, if it is one; else as it was, for Infer to refuse.
int64_t FromFront(int64_t axis, const Var& x) {
  return axis < 0 ? axis + static_cast<int64_t>(x.shape().size()) : axis;
}

Axes ResolveAxes(const Var& x, const std::vector<int64_t>& given) {
  Axes axes;
  for (int64_t axis : given) axes.push_back(FromFront(axis, x));
  if (given.empty()) {
    for (size_t i = 0; i < x.shape().size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  return axes;
}

Var Reduce(ReduceFn fn, const Located& x, const ReduceOptions& options) {
  return Apply1(op::Reduce{fn, ResolveAxes(x.var, options.axes), options.keepdims}, {x.var}, x.caller);
}

// fn along `axis` of a function that works along the last.
template <typename Fn>
Var AlongAxis(const Located& x, int64_t axis, const Fn& fn) {
  const int64_t rank = static_cast<int64_t>(x.var.shape().size());
  const int64_t from_front = FromFront(axis, x.var);
  if (from_front == rank - 1 || !x.var.ok()) return fn(x.var);
  if (from_front < 0 || from_front >= rank) {
    return Fail(x, InvalidArgument("axis ", axis, " is outside ", x.var.spec().ToString()));
  }
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  std::swap(axes[static_cast<size_t>(from_front)], axes.back());
  const CallerScope caller(x.caller);
  return Permute(fn(Permute(x, axes)), axes);
}

}  // namespace

Var MatMul(Located a, const Var& b, MatMulOptions options) {
  return Apply1(op::MatMul{options.trans_a, options.trans_b}, {a.var, b}, a.caller);
}

Var operator+(Located a, Located b) { return Binary(BinaryFn::kAdd, a, b); }
Var operator-(Located a, Located b) { return Binary(BinaryFn::kSub, a, b); }
Var operator*(Located a, Located b) { return Binary(BinaryFn::kMul, a, b); }
Var operator/(Located a, Located b) { return Binary(BinaryFn::kDiv, a, b); }
Var operator-(Located x) { return Unary(UnaryFn::kNeg, x); }
Var Pow(Located a, Located b) { return Binary(BinaryFn::kPow, a, b); }
Var Maximum(Located a, Located b) { return Binary(BinaryFn::kMax, a, b); }
Var Minimum(Located a, Located b) { return Binary(BinaryFn::kMin, a, b); }
Var Equal(Located a, Located b) { return Binary(BinaryFn::kEqual, a, b); }
Var NotEqual(Located a, Located b) { return Binary(BinaryFn::kNotEqual, a, b); }
Var Less(Located a, Located b) { return Binary(BinaryFn::kLess, a, b); }
Var LessEqual(Located a, Located b) { return Binary(BinaryFn::kLessEqual, a, b); }
Var Greater(Located a, Located b) { return Binary(BinaryFn::kGreater, a, b); }
Var GreaterEqual(Located a, Located b) { return Binary(BinaryFn::kGreaterEqual, a, b); }

Var Where(Located condition, Located a, Located b) {
  const Var left = Resolve(a, b.var);
  const Var right = Resolve(b, left);
  return Apply1(op::Where{}, {condition.var, left, right}, condition.caller);
}

Var Unary(UnaryFn fn, Located x) { return Apply1(op::Unary{fn}, {x.var}, x.caller); }
Var Abs(Located x) { return Unary(UnaryFn::kAbs, x); }
Var Exp(Located x) { return Unary(UnaryFn::kExp, x); }
Var Log(Located x) { return Unary(UnaryFn::kLog, x); }
Var Sqrt(Located x) { return Unary(UnaryFn::kSqrt, x); }
Var Rsqrt(Located x) { return Unary(UnaryFn::kRsqrt, x); }
Var Tanh(Located x) { return Unary(UnaryFn::kTanh, x); }
Var Sigmoid(Located x) { return Unary(UnaryFn::kSigmoid, x); }
Var Relu(Located x) { return Unary(UnaryFn::kRelu, x); }
Var Gelu(Located x) { return Unary(UnaryFn::kGeluErf, x); }
Var GeluTanh(Located x) { return Unary(UnaryFn::kGeluTanh, x); }
Var Silu(Located x) { return Unary(UnaryFn::kSilu, x); }
Var Softplus(Located x) { return Unary(UnaryFn::kSoftplus, x); }
Var Sin(Located x) { return Unary(UnaryFn::kSin, x); }
Var Cos(Located x) { return Unary(UnaryFn::kCos, x); }
Var Erf(Located x) { return Unary(UnaryFn::kErf, x); }

Var Sum(Located x, const ReduceOptions& options) { return Reduce(ReduceFn::kSum, x, options); }
Var Mean(Located x, const ReduceOptions& options) { return Reduce(ReduceFn::kMean, x, options); }
Var Max(Located x, const ReduceOptions& options) { return Reduce(ReduceFn::kMax, x, options); }
Var Min(Located x, const ReduceOptions& options) { return Reduce(ReduceFn::kMin, x, options); }

Var Variance(Located x, const ReduceOptions& options) {
  const CallerScope caller(x.caller);
  const Var deviation = x - Mean(x, {options.axes, /*keepdims=*/true});
  return Mean(deviation * deviation, options);
}

Var ArgMax(Located x, int64_t axis, bool keepdims) {
  return Apply1(op::ArgMax{FromFront(axis, x.var), keepdims}, {x.var}, x.caller);
}

Var LogSumExp(Located x, int64_t axis) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const CallerScope caller(x.caller);
  const DType dtype = x.var.dtype();
  const Var wide = dtype == DType::kBf16 ? Cast(x, DType::kF32) : x.var;
  // The shift changes neither value nor gradient, so it has none of its own. inf - inf would be NaN: a row whose
  // largest element is infinite is not shifted.
  const Var top = Max(wide.Detach(), {{axis}, /*keepdims=*/true});
  const Var shift = Where(Less(Abs(top), kInfinity), top, 0.0);
  const Var sum = Sum(Exp(wide - shift), {{axis}});
  const Var nothing = Equal(sum, 0.0);  // a row of -inf, where the logarithm has no slope
  const Var log = Log(Where(nothing, 1.0, sum));
  const Var lse = Where(nothing, -kInfinity, log + Reshape(shift, sum.shape()));
  return dtype == DType::kBf16 && CurrentPrecision() == Precision::kF32 ? Cast(lse, dtype) : lse;
}

Var Softmax(Located x, int64_t axis) {
  return AlongAxis(x, axis, [&](const Var& along) { return Apply1(op::Softmax{false}, {along}, x.caller); });
}

Var LogSoftmax(Located x, int64_t axis) {
  return AlongAxis(x, axis, [&](const Var& along) { return Apply1(op::Softmax{true}, {along}, x.caller); });
}

Var LayerNormalize(Located x, float epsilon) { return Apply1(op::Normalize{true, epsilon}, {x.var}, x.caller); }
Var RmsNormalize(Located x, float epsilon) { return Apply1(op::Normalize{false, epsilon}, {x.var}, x.caller); }

Var Reshape(Located x, const Shape& shape) {
  Shape full = shape;
  const auto unknown = std::find(full.begin(), full.end(), -1);
  if (unknown != full.end()) {
    *unknown = 1;
    const absl::StatusOr<int64_t> known = CheckedNumElements(full);
    const int64_t count = x.var.spec().num_elements();
    if (!known.ok() || *known == 0 || count % *known != 0) {
      return Fail(x, InvalidArgument("Reshape: no size for the -1 in ", ShapeString(shape), " gives the ", count,
                                     " elements of ", x.var.spec().ToString()));
    }
    *unknown = count / *known;
  }
  return Apply1(op::Reshape{full}, {x.var}, x.caller);
}

Var Permute(Located x, const std::vector<int64_t>& axes) {
  Axes from_front;
  for (int64_t axis : axes) from_front.push_back(FromFront(axis, x.var));
  return Apply1(op::Permute{from_front}, {x.var}, x.caller);
}

Var Transpose(Located x) {
  const int64_t rank = static_cast<int64_t>(x.var.shape().size());
  if (rank < 2) {
    return Fail(x, InvalidArgument("Transpose: takes at least 2 dimensions, got ", x.var.spec().ToString()));
  }
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  std::swap(axes[static_cast<size_t>(rank - 1)], axes[static_cast<size_t>(rank - 2)]);
  return Permute(x, axes);
}

Var BroadcastTo(Located x, const Shape& shape) { return Apply1(op::BroadcastTo{shape}, {x.var}, x.caller); }

Var Slice(Located x, int64_t axis, int64_t start, int64_t stop, int64_t step) {
  const int64_t from_front = FromFront(axis, x.var);
  const Shape& shape = x.var.shape();
  if (from_front >= 0 && from_front < static_cast<int64_t>(shape.size())) {
    const int64_t size = shape[static_cast<size_t>(from_front)];
    if (start < 0) start += size;
    if (stop < 0) stop += size;
  }
  return Apply1(op::Slice{from_front, start, stop, step}, {x.var}, x.caller);
}

Var Concat(const std::vector<Var>& xs, int64_t axis, Caller caller) {
  return Apply1(op::Concat{xs.empty() ? axis : FromFront(axis, xs[0])}, xs, caller);
}

Var Cast(Located x, DType dtype) { return Apply1(op::Cast{dtype}, {x.var}, x.caller); }

Var Fill(const Shape& shape, double value, DType dtype, Device device, Caller caller) {
  return Apply1(op::Fill{shape, dtype, value, device}, {}, caller);
}

Var Iota(int64_t size, Device device, Caller caller) { return Apply1(op::Iota{size, device}, {}, caller); }

Var GatherRows(Located table, const Var& index) { return Apply1(op::GatherRows{}, {table.var, index}, table.caller); }

Var ScatterAddRows(Located values, const Var& index, int64_t rows) {
  return Apply1(op::ScatterAddRows{rows, index.spec().rank()}, {values.var, index}, values.caller);
}

Var OneHot(Located index, int64_t classes, DType dtype) {
  return Apply1(op::OneHot{classes, dtype}, {index.var}, index.caller);
}

Var TopK(Located x, int64_t k) { return Apply1(op::TopK{k}, {x.var}, x.caller); }

Var TakeAlong(Located x, const Var& index) { return Apply1(op::TakeAlong{}, {x.var, index}, x.caller); }

RowAssignment AssignRows(Located index, int64_t experts, const AssignRowsOptions& options) {
  std::vector<Var> inputs{index.var};
  if (options.mask.node() != nullptr) inputs.push_back(options.mask);
  const Outputs outputs = Apply(op::AssignRows{experts, options.capacity_factor}, std::move(inputs), index.caller);
  return {outputs[0], outputs[1], outputs[2]};
}

Var DispatchRows(Located x, const Var& row, int64_t rows) {
  return Apply1(op::DispatchRows{rows}, {x.var, row}, x.caller);
}

Var CombineRows(Located rows, const Var& row, const Var& weights) {
  return Apply1(op::CombineRows{}, {rows.var, row, weights}, rows.caller);
}

Var GroupedMatMul(Located rows, const Var& weights, const Var& offsets, GroupedMatMulOptions options) {
  return Apply1(op::GroupedMatMul{options.trans_b}, {rows.var, weights, offsets}, rows.caller);
}

Var GatedUnary(UnaryFn fn, Located x) { return Apply1(op::GatedUnary{fn}, {x.var}, x.caller); }

SumAndCount CrossEntropySum(Located logits, const Var& labels, const CrossEntropyOptions& options) {
  const Outputs outputs =
      Apply(op::CrossEntropy{options.ignore_index, options.label_smoothing}, {logits.var, labels}, logits.caller);
  return {outputs[0], outputs[1]};
}

Var ApplyDropout(Located x, const DropoutOptions& options) {
  const RandomVars* random = TrainingRandom();
  if (random == nullptr || !x.var.ok()) return x.var;
  if (x.var.spec().rank() == 0) return Fail(x, InvalidArgument("Dropout: takes at least 1 dimension, got a scalar"));
  const Shape& shape = x.var.shape();
  const int64_t rows = NumElements(Shape(shape.begin(), shape.end() - 1));
  Var index;
  if (options.index.has_value()) {
    index = *options.index;
  } else {
    const int64_t samples = random->samples > 0 ? random->samples : std::max<int64_t>(shape[0], 1);
    if (rows % samples != 0) {
      return Fail(
          x, InvalidArgument("Dropout: the ", rows, " rows of ", x.var.spec().ToString(), " are not a multiple of the ",
                             samples, " samples of the batch; give DropoutOptions::index"));
    }
    const CallerScope caller(x.caller);
    const int64_t rows_per_sample = rows / samples;
    index = Iota(rows, x.var.device()) + random->first_sample * static_cast<double>(rows_per_sample);
  }
  return Apply1(op::Dropout{options.rate, options.stream}, {x.var, random->key, index}, x.caller);
}

Outputs ApplyCustom(std::shared_ptr<const CustomOp> custom, const std::vector<Var>& inputs, Caller caller) {
  return Apply(op::Custom{std::move(custom)}, inputs, caller);
}

}  // namespace gemmill
