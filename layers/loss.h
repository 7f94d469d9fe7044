// Losses. A Loss is a sum and the count of what was summed, so that a global batch that is computed in parts is
// normalised by its whole count: sum(sums) / sum(counts), never a mean of means. Used as a Var it is its own mean.
#pragma once

#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/var.h"

namespace gemmill {

struct Loss {
  Var sum;    // a scalar
  Var count;  // a scalar without gradient; an empty Var: the Trainer takes the number of samples

  Loss(Var sum_of_terms, Var count_of_terms) : sum(std::move(sum_of_terms)), count(std::move(count_of_terms)) {}
  // A user's own mean over the samples of a batch (or any scalar that weighs by samples).
  Loss(Var mean) : sum(std::move(mean)) {}  // NOLINT(google-explicit-constructor)

  // sum / count; 0 where the count is 0, with gradients of 0.
  Var Mean(Caller caller = Caller::Here()) const;
  operator Var() const;  // NOLINT(google-explicit-constructor)

  // A loss (or a mean) added to a loss keeps the first one's count: parts of a batch weigh by it.
  friend Loss operator+(const Loss& loss, const Loss& other) { return loss.Plus(other); }
  friend Loss operator*(const Loss& loss, double factor) { return loss.Times(factor); }
  friend Loss operator*(double factor, const Loss& loss) { return loss.Times(factor); }

 private:
  Loss Plus(const Loss& other) const;
  Loss Times(double factor) const;
};

// logits [..., classes], labels i32 or i64 [...]; counted: labels that are not options.ignore_index.
Loss CrossEntropy(Located logits, const Var& labels, const CrossEntropyOptions& options = {});

// The others take a prediction and a target of one shape and dtype; counted: elements. Of bf16 they are computed in
// f32, as CrossEntropy is.
Loss MeanSquaredError(Located prediction, const Var& target);
Loss MeanAbsoluteError(Located prediction, const Var& target);  // L1
// -(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))), computed as t softplus(-x) + (1 - t) softplus(x), of
// which neither term cancels.
Loss BinaryCrossEntropyWithLogits(Located logits, const Var& target);

}  // namespace gemmill
