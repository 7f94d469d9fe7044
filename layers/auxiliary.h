// What layers of a training step have to say beside their outputs: losses of their own, and sums over the step's whole
// global batch. A Trainer listens by itself; a loop of one's own opens an AuxiliaryScope:
//
//   AuxiliaryScope auxiliary;
//   const Var loss = CrossEntropy(model(x), label) + auxiliary.Mean();
//   ... Grad, optimizer.Apply ...
//   GM_RETURN_IF_ERROR(auxiliary.AfterStep());  // statistics and balancing biases
//
// Where nobody listens, as in evaluation, layers say nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gemmill/layers/loss.h"
#include "gemmill/layers/module.h"

namespace gemmill {

class AuxiliaryScope {
 public:
  // Sums of a global batch: by StepSum, f64 [size].
  using Sums = std::vector<std::pair<std::shared_ptr<const StepSum>, Var>>;

  // The scope sees the whole global batch.
  AuxiliaryScope();
  // It sees a part. `global` are the sums over all parts, and `count` is that of the loss.
  AuxiliaryScope(Sums global, Var count);
  ~AuxiliaryScope();
  AuxiliaryScope(const AuxiliaryScope&) = delete;
  AuxiliaryScope& operator=(const AuxiliaryScope&) = delete;

  // The innermost of this thread, or null.
  static AuxiliaryScope* Current();

  // For layers: adds `values` f64 [size] to their sum. Returns the sum over the global batch as far as it is known: of
  // all parts, or of what the scope has seen.
  Var Add(const std::shared_ptr<const StepSum>& sum, const Var& values);
  // A term of the loss: sum / count, where both are over the global batch. `count` is that, and `sum` of this part.
  void AddLoss(Var sum, Var count);

  // For whoever listens. What AddLoss was given, as one number, to be added to the mean of a loss; 0 where there was
  // nothing.
  Var Mean() const;
  // The same to be added to a sum: multiplied by the loss's count, `count` unless that of all parts is known.
  bool has_losses() const { return !losses_.empty(); }
  Var TimesCount(const Var& count) const;
  // What was added to `sum`; zeros where nothing was.
  Var SumOf(const std::shared_ptr<const StepSum>& sum, Device device) const;
  // Tells each StepSum of its values.
  absl::Status AfterStep() const;

 private:
  Sums sums_;
  std::vector<Loss> losses_;
  const Sums global_;
  const Var count_;
  AuxiliaryScope* const before_;
};

}  // namespace gemmill
