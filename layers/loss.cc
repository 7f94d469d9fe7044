#include "gemmill/layers/loss.h"

#include <utility>

namespace gemmill {
namespace {

// An operand that the user's line wrote.
struct At {
  Caller caller;
  template <typename T>
  Located operator()(const T& operand) const {
    return Located(operand, caller.file, caller.line);
  }
};

// What made a Var, for the arithmetic of losses, whose operators cannot know their caller.
At AtOrigin(const Var& var) {
  const bool known = var.node() != nullptr && var.node()->origin.caller.line != 0;
  return {known ? var.node()->origin.caller : Caller::Here()};
}

using Term = Var (*)(const At& at, const Var& x, const Var& t);

Loss OverElements(const Located& prediction, const Var& target, const char* name, Term term) {
  const At at{prediction.caller};
  const Var& x = prediction.var;
  if (x.ok() && target.ok() && x.spec() != target.spec()) {
    return Loss(Var::Error(InvalidArgument(at.caller.ToString(), ": ", name, ": the prediction is ",
                                           x.spec().ToString(), ", the target ", target.spec().ToString())));
  }
  // A bf16 holds neither a small difference, nor the sum or the count of some thousand terms.
  const auto wide = [&](const Var& var) { return var.dtype() == DType::kBf16 ? Cast(at(var), DType::kF32) : var; };
  const Var terms = term(at, wide(x), wide(target));
  if (!terms.ok()) return Loss(terms);
  const double count = static_cast<double>(terms.spec().num_elements());
  return Loss(Sum(at(terms)), Fill({}, count, terms.dtype(), terms.device(), at.caller));
}

}  // namespace

Loss::operator Var() const { return Mean(AtOrigin(sum).caller); }

Var Loss::Mean(Caller caller) const {
  if (count.node() == nullptr) return sum;
  const At at{caller};
  const Var some = Greater(at(count), at(0.0));
  const Var mean = at(sum) / Where(at(some), at(count), at(1.0));
  return Where(at(some), at(mean), at(0.0));
}

Loss Loss::Plus(const Loss& other) const {
  const At at = AtOrigin(sum);
  const Var mean = other;
  return count.node() == nullptr ? Loss(at(sum) + mean) : Loss(at(sum) + at(at(mean) * count), count);
}

Loss Loss::Times(double factor) const {
  const At at = AtOrigin(sum);
  return Loss(at(sum) * at(factor), count);
}

Loss CrossEntropy(Located logits, const Var& labels, const CrossEntropyOptions& options) {
  const At at{logits.caller};
  const Var& x = logits.var;
  const bool flat = x.shape().size() == 2 || x.shape().empty() || !x.ok() || !labels.ok();
  const Shape leading(x.shape().begin(), flat ? x.shape().begin() : x.shape().end() - 1);
  const int64_t rows = NumElements(leading);
  const Var matrix = flat ? x : Reshape(logits, {rows, x.shape().back()});
  // Labels of another shape go on as they are, for Infer to refuse.
  const bool reshape = !flat && leading == labels.shape();
  const SumAndCount parts = CrossEntropySum(at(matrix), reshape ? Reshape(at(labels), {rows}) : labels, options);
  return Loss(parts.sum, parts.count.Detach());
}

Loss MeanSquaredError(Located prediction, const Var& target) {
  return OverElements(prediction, target, "MeanSquaredError", [](const At& at, const Var& x, const Var& t) {
    const Var difference = at(x) - t;
    return at(difference) * difference;
  });
}

Loss MeanAbsoluteError(Located prediction, const Var& target) {
  return OverElements(prediction, target, "MeanAbsoluteError",
                      [](const At& at, const Var& x, const Var& t) { return Abs(at(at(x) - t)); });
}

Loss BinaryCrossEntropyWithLogits(Located logits, const Var& target) {
  return OverElements(logits, target, "BinaryCrossEntropyWithLogits", [](const At& at, const Var& x, const Var& t) {
    const Var if_one = Softplus(at(-at(x)));
    const Var if_zero = Softplus(at(x));
    return at(at(t) * if_one) + at(at(at(1.0) - t) * if_zero);
  });
}

}  // namespace gemmill
