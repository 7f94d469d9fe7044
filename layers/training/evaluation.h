// Sums over a data set, in evaluation mode and without gradients.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/data/dataset.h"
#include "gemmill/layers/training/micro_batch.h"

namespace gemmill {

struct Evaluation {
  double loss = 0;
  int64_t samples = 0;
  double seconds = 0;
};

struct ClassifierEvaluation : Evaluation {
  double accuracy = 0;
};

// What a model says of each sample: class logits [samples, classes].
using LogitsFunction = std::function<Var(const Inputs&)>;

// Mean cross-entropy and the share of samples whose largest logit is their label, over a data set with field "label"
// (or `label`), `batch` samples at a time, in evaluation mode. Labels of -100 (CrossEntropyOptions::ignore_index) do
// not count. Runs eagerly. `precision` is that of training, where the two are to agree.
absl::StatusOr<ClassifierEvaluation> EvaluateClassifier(const LogitsFunction& logits, const Dataset& dataset,
                                                        int64_t batch, Device device = {},
                                                        absl::string_view label = "label",
                                                        Precision precision = Precision::kF32,
                                                        Caller caller = Caller::Here());

// Scalars of a batch, each to be summed over all batches.
using BatchSums = std::function<std::vector<Var>(const Inputs& inputs, int64_t samples)>;

// The sums over `dataset`, `batch` samples at a time, the last batch with fewer; with `replay`, `sums` is recorded once
// for each size of batch.
absl::StatusOr<std::vector<double>> SumOver(const Dataset& dataset, int64_t batch, Device device, bool replay,
                                            const BatchSums& sums);

class Stopwatch {
 public:
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace gemmill
