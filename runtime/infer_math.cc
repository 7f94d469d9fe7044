// Ops that compute: GEMM, elementwise, reductions, softmax, norms, losses, optimizers.
#include <utility>

#include "gemmill/runtime/infer_rules.h"

namespace gemmill::infer {

Result InferRule(const op::MatMul& op, Specs in) {
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
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::Unary& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  const bool integers = op.fn == UnaryFn::kNeg || op.fn == UnaryFn::kAbs || op.fn == UnaryFn::kRelu;
  if (!(integers && (in[0].dtype == DType::kI32 || in[0].dtype == DType::kI64))) GM_RETURN_IF_ERROR(WantFloating(in));
  return std::vector<Spec>{in[0]};
}

Result InferRule(const op::UnaryGrad&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantSpec("dy", in[1], in[0].shape, in[0].dtype));
  return std::vector<Spec>{in[0]};
}

Result InferRule(const op::Binary& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantSameDType(in));
  GM_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, in[1].shape));
  return std::vector<Spec>{Like(in, 0, shape, IsComparison(op.fn) ? DType::kU8 : in[0].dtype)};
}

Result InferRule(const op::Where&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  if (in[0].dtype != DType::kU8) return InvalidArgument("the condition is u8 (a comparison), got ", in[0].ToString());
  GM_RETURN_IF_ERROR(WantSameDType(in.subspan(1)));
  GM_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[1].shape, in[2].shape));
  GM_ASSIGN_OR_RETURN(shape, BroadcastShapes(in[0].shape, shape));
  return std::vector<Spec>{Like(in, 1, shape)};
}

Result InferRule(const op::Reduce& op, Specs in) {
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
  return std::vector<Spec>{Like(in, 0, shape)};
}

Result InferRule(const op::ArgMax& op, Specs in) {
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
  return std::vector<Spec>{Like(in, 0, shape, DType::kI64)};
}

Result InferRule(const op::Softmax&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  return std::vector<Spec>{in[0]};
}

Result InferRule(const op::SoftmaxGrad&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  GM_RETURN_IF_ERROR(WantSpec("dy", in[1], in[0].shape, in[0].dtype));
  return std::vector<Spec>{in[0]};
}

Result InferRule(const op::Normalize& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 1));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  if (!(op.epsilon >= 0)) return InvalidArgument("epsilon is ", op.epsilon, ", expected 0 or more");
  return std::vector<Spec>{in[0], Like(in, 0, Leading(in[0].shape, 1), Wide(in[0].dtype))};
}

Result InferRule(const op::NormalizeGrad&, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  GM_RETURN_IF_ERROR(WantFloating(in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  GM_RETURN_IF_ERROR(WantSpec("rstd", in[1], Leading(in[0].shape, 1), Wide(in[0].dtype)));
  GM_RETURN_IF_ERROR(WantSpec("dy", in[2], in[0].shape, in[0].dtype));
  return std::vector<Spec>{in[0]};
}

namespace {

absl::Status WantLogits(Specs in) {
  GM_RETURN_IF_ERROR(WantFloating(in.subspan(0, 1)));
  if (in[0].rank() != 2) return InvalidArgument("takes logits [samples, classes], got ", in[0].ToString());
  GM_RETURN_IF_ERROR(WantIndex(in[1]));
  if (in[1].rank() != 1 || in[1].shape[0] != in[0].shape[0]) {
    return InvalidArgument("labels are ", in[1].ToString(), ", expected one for each of the ", in[0].shape[0],
                           " rows of logits ", in[0].ToString());
  }
  return absl::OkStatus();
}

absl::Status WantSmoothing(float smoothing) {
  if (smoothing >= 0 && smoothing <= 1) return absl::OkStatus();
  return InvalidArgument("label_smoothing is ", smoothing, ", expected 0 to 1");
}

}  // namespace

Result InferRule(const op::CrossEntropy& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 2));
  GM_RETURN_IF_ERROR(WantLogits(in));
  GM_RETURN_IF_ERROR(WantSmoothing(op.label_smoothing));
  const DType wide = Wide(in[0].dtype);
  return std::vector<Spec>{Like(in, 0, {}, wide), Like(in, 0, {}, wide), Like(in, 0, {in[0].shape[0]}, wide)};
}

Result InferRule(const op::CrossEntropyGrad& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  GM_RETURN_IF_ERROR(WantLogits(in));
  GM_RETURN_IF_ERROR(WantSmoothing(op.label_smoothing));
  GM_RETURN_IF_ERROR(WantSpec("dsum", in[2], {}, Wide(in[0].dtype)));
  return std::vector<Spec>{in[0]};
}

Result InferRule(const op::Dropout& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, 3));
  GM_RETURN_IF_ERROR(WantFloating(in.subspan(0, 1)));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  if (!(op.rate >= 0 && op.rate < 1)) return InvalidArgument("rate is ", op.rate, ", expected 0 <= rate < 1");
  GM_RETURN_IF_ERROR(WantSpec("key", in[1], {2}, DType::kI64));
  GM_RETURN_IF_ERROR(WantSpec("index", in[2], {NumElements(Leading(in[0].shape, 1))}, DType::kI64));
  return std::vector<Spec>{in[0]};
}

Result InferRule(const op::GlobalNorm&, Specs in) {
  GM_RETURN_IF_ERROR(WantFloating(in));
  return std::vector<Spec>{Spec{{}, DType::kF32, in.empty() ? Device::Cpu() : in[0].device}};
}

namespace {

// The layout that op.h gives, of `count` parameters with `states` kinds of state before the masters.
Result Update(Specs in, size_t states, size_t count, size_t scales) {
  if (scales != count) return InvalidArgument(scales, " learning rate scales for ", count, " parameters");
  if (in.size() < 1 + 2 * count) return InvalidArgument("takes ", 1 + 2 * count, " inputs or more, got ", in.size());
  GM_RETURN_IF_ERROR(WantSpec("control", in[0], {3}, DType::kF64));
  const Specs weights = in.subspan(1, count);
  GM_RETURN_IF_ERROR(WantFloating(weights));
  std::vector<Spec> out(weights.begin(), weights.end());
  for (size_t s = 0; s < states; ++s) {
    for (const Spec& weight : weights) out.push_back({weight.shape, Wide(weight.dtype), weight.device});
  }
  for (const Spec& weight : weights) {
    if (weight.dtype == DType::kBf16) out.push_back({weight.shape, DType::kF32, weight.device});
  }
  GM_RETURN_IF_ERROR(WantCount(in, 1 + count + out.size()));
  for (size_t i = 0; i < count; ++i) {
    const Spec& gradient = in[1 + count + i];
    const DType dtype = gradient.dtype == weights[i].dtype ? gradient.dtype : Wide(weights[i].dtype);
    GM_RETURN_IF_ERROR(WantSpec("gradient", gradient, weights[i].shape, dtype));
  }
  for (size_t o = count; o < out.size(); ++o) {
    GM_RETURN_IF_ERROR(WantSpec("optimizer state", in[1 + count + o], out[o].shape, out[o].dtype));
  }
  return out;
}

}  // namespace

Result InferRule(const op::Sgd& op, Specs in) {
  return Update(in, op.momentum == 0 ? 0 : 1, op.weight_decay.size(), op.learning_rate_scale.size());
}

Result InferRule(const op::AdamW& op, Specs in) {
  return Update(in, 2, op.weight_decay.size(), op.learning_rate_scale.size());
}

Result InferRule(const op::FusedMatMul& op, Specs in) {
  GM_RETURN_IF_ERROR(WantCount(in, op.bias ? 3 : 2));
  GM_ASSIGN_OR_RETURN(std::vector<Spec> out, InferRule(op.matmul, in.first(2)));
  if (op.bias) GM_RETURN_IF_ERROR(WantSpec("bias", in[2], {out[0].shape.back()}, out[0].dtype));
  if (op.keep && !op.activation.has_value()) return InvalidArgument("keeps what is its result anyway");
  if (op.keep) out.push_back(out[0]);
  return out;
}

Result InferRule(const op::ActivationBiasGrad& op, Specs in) {
  GM_ASSIGN_OR_RETURN(std::vector<Spec> out, InferRule(op::UnaryGrad{op.fn}, in));
  GM_RETURN_IF_ERROR(WantRank(in[0], 1));
  out.push_back(Like(in, 0, {in[0].shape.back()}));
  return out;
}

Result InferRule(const op::Custom& op, Specs in) {
  if (op.custom == nullptr) return InvalidArgument("holds no CustomOp");
  return CatchExceptions([&] { return op.custom->Infer(in); });
}

}  // namespace gemmill::infer
