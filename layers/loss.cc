#include "gemmill/layers/loss.h"

#include <utility>

namespace gemmill {
namespace {

Loss OverElements(const Located& prediction, const Var& target, const char* name, Var (*term)(Located, const Var&)) {
  const Var& x = prediction.var;
  if (x.ok() && target.ok() && x.spec() != target.spec()) {
    return Loss(Var::Error(InvalidArgument(prediction.caller.ToString(), ": ", name, ": the prediction is ",
                                           x.spec().ToString(), ", the target ", target.spec().ToString())));
  }
  const auto at = [&](const Var& var) { return Located(var, prediction.caller.file, prediction.caller.line); };
  Var terms = term(prediction, target);
  // A bf16 cannot hold the sum, nor the count, of some thousand terms.
  if (terms.dtype() == DType::kBf16) terms = Cast(at(terms), DType::kF32);
  if (!terms.ok()) return Loss(terms);
  return Loss(Sum(at(terms)),
              Fill({}, static_cast<double>(terms.spec().num_elements()), terms.dtype(), terms.device()));
}

}  // namespace

Var Loss::Mean(Caller caller) const {
  if (count.node() == nullptr) return sum;
  const Var some = Greater(count, 0.0);
  return Where(some, Located(sum, caller.file, caller.line) / Where(some, count, 1.0), 0.0);
}

Loss Loss::Plus(const Var& mean) const {
  return count.node() == nullptr ? Loss(sum + mean) : Loss(sum + mean * count, count);
}

Loss Loss::Times(double factor) const { return Loss(sum * factor, count); }

Loss CrossEntropy(Located logits, const Var& labels, const CrossEntropyOptions& options) {
  const Var& x = logits.var;
  const bool flat = x.shape().size() == 2 || x.shape().empty() || !x.ok() || !labels.ok();
  const Located at(flat ? x : Reshape(logits, {-1, x.shape().back()}), logits.caller.file, logits.caller.line);
  const Located labels_at(labels, logits.caller.file, logits.caller.line);
  const bool match = flat || Shape(x.shape().begin(), x.shape().end() - 1) == labels.shape();
  // Labels of another shape go on as they are, for Infer to refuse.
  const SumAndCount parts = CrossEntropySum(at, flat || !match ? labels : Reshape(labels_at, {-1}), options);
  return Loss(parts.sum, parts.count.Detach());
}

Loss MeanSquaredError(Located prediction, const Var& target) {
  return OverElements(prediction, target, "MeanSquaredError", [](Located x, const Var& t) {
    const Var difference = x - t;
    return difference * difference;
  });
}

Loss MeanAbsoluteError(Located prediction, const Var& target) {
  return OverElements(prediction, target, "MeanAbsoluteError", [](Located x, const Var& t) { return Abs(x - t); });
}

Loss BinaryCrossEntropyWithLogits(Located logits, const Var& target) {
  return OverElements(logits, target, "BinaryCrossEntropyWithLogits",
                      [](Located x, const Var& t) { return Softplus(x) - x * t; });
}

}  // namespace gemmill
