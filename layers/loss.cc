#include "gemmill/layers/loss.h"

#include <utility>

namespace gemmill {
namespace {

// What made a Var, for the arithmetic of losses, whose operators cannot know their caller.
Caller OriginOf(const Var& var) {
  const bool known = var.node() != nullptr && var.node()->origin.caller.line != 0;
  return known ? var.node()->origin.caller : Caller::Here();
}

using Term = Var (*)(const Var& x, const Var& t);

Loss OverElements(const Located& prediction, const Var& target, const char* name, Term term) {
  const CallerScope caller(prediction.caller);
  const Var& x = prediction.var;
  if (x.ok() && target.ok() && x.spec() != target.spec()) {
    return Loss(Var::Error(InvalidArgument(prediction.caller.ToString(), ": ", name, ": the prediction is ",
                                           x.spec().ToString(), ", the target ", target.spec().ToString())));
  }
  // A bf16 holds neither a small difference, nor the sum or the count of some thousand terms.
  const auto wide = [&](const Var& var) { return var.dtype() == DType::kBf16 ? Cast(var, DType::kF32) : var; };
  const Var terms = term(wide(x), wide(target));
  if (!terms.ok()) return Loss(terms);
  const double count = static_cast<double>(terms.spec().num_elements());
  return Loss(Sum(terms), Fill({}, count, terms.dtype(), terms.device()));
}

}  // namespace

Loss::operator Var() const { return Mean(OriginOf(sum)); }

Var Loss::Mean(Caller caller) const {
  if (count.node() == nullptr) return sum;
  const CallerScope scope(caller);
  const Var some = Greater(count, 0.0);
  const Var mean = sum / Where(some, count, 1.0);
  return Where(some, mean, 0.0);
}

Loss Loss::Plus(const Loss& other) const {
  const CallerScope caller(OriginOf(sum));
  const Var mean = other;
  return count.node() == nullptr ? Loss(sum + mean) : Loss(sum + mean * count, count);
}

Loss Loss::Times(double factor) const {
  const CallerScope caller(OriginOf(sum));
  return Loss(sum * factor, count);
}

Loss CrossEntropy(Located logits, const Var& labels, const CrossEntropyOptions& options) {
  const CallerScope caller(logits.caller);
  const Var& x = logits.var;
  const bool flat = x.shape().size() == 2 || x.shape().empty() || !x.ok() || !labels.ok();
  const Shape leading(x.shape().begin(), flat ? x.shape().begin() : x.shape().end() - 1);
  const int64_t rows = NumElements(leading);
  const Var matrix = flat ? x : Reshape(logits, {rows, x.shape().back()});
  // Labels of another shape go on as they are, for Infer to refuse.
  const bool reshape = !flat && leading == labels.shape();
  const SumAndCount parts = CrossEntropySum(matrix, reshape ? Reshape(labels, {rows}) : labels, options);
  return Loss(parts.sum, parts.count.Detach());
}

Loss MeanSquaredError(Located prediction, const Var& target) {
  return OverElements(prediction, target, "MeanSquaredError", [](const Var& x, const Var& t) {
    const Var difference = x - t;
    return difference * difference;
  });
}

Loss MeanAbsoluteError(Located prediction, const Var& target) {
  return OverElements(prediction, target, "MeanAbsoluteError", [](const Var& x, const Var& t) { return Abs(x - t); });
}

Loss BinaryCrossEntropyWithLogits(Located logits, const Var& target) {
  return OverElements(logits, target, "BinaryCrossEntropyWithLogits", [](const Var& x, const Var& t) {
    const Var if_one = Softplus(-x);
    const Var if_zero = Softplus(x);
    return t * if_one + (1.0 - t) * if_zero;
  });
}

}  // namespace gemmill
