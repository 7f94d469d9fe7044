// Sums over a data set, in evaluation mode and without gradients.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/data/dataset.h"
#include "gemmill/data/loader.h"
#include "gemmill/layers/training/micro_batch.h"
#include "gemmill/runtime/replay.h"

namespace gemmill {

struct Evaluation {
  double loss = 0;
  std::optional<double> accuracy;  // of classifiers (ClassifierSums)
  int64_t samples = 0;
  double seconds = 0;
};

// What a model says of each sample: class logits [samples, classes].
using LogitsFunction = std::function<Var(const Inputs&)>;

// Mean cross-entropy and the share of samples whose largest logit is their label, over a data set with field "label"
// (or `label`), `batch` samples at a time, in evaluation mode. Labels of -100 (CrossEntropyOptions::ignore_index) do
// not count. Runs eagerly. `precision` is that of training, where the two are to agree.
absl::StatusOr<Evaluation> EvaluateClassifier(const LogitsFunction& logits, const Dataset& dataset, int64_t batch,
                                              Device device = {}, absl::string_view label = "label",
                                              Precision precision = Precision::kF32, Caller caller = Caller::Here());

// Scalars of a batch, each to be summed over all batches.
using BatchSums = std::function<std::vector<Var>(const Inputs& inputs, int64_t samples)>;

// The sum of a loss and its count.
BatchSums LossSums(LossFunction loss, Caller caller = Caller::Here());

// Of classes: the loss's sum and count, and how many samples' largest logit is their label.
BatchSums ClassifierSums(LogitsFunction logits, const std::string& label = "label", Caller caller = Caller::Here());

// The same in `precision`; `copies` are its weights (precision.h).
BatchSums InPrecision(BatchSums sums, Precision precision, std::shared_ptr<Bf16Copies> copies);

// Their Program for `samples` with `fields`, passes included.
absl::StatusOr<Program> EvaluationProgram(const BatchSums& sums, absl::Span<const FieldSpec> fields, int64_t samples);

// BatchSums recorded for each size of batch, and replayed in one arena.
class RecordedSums {
 public:
  // With `grow` the arena becomes as large as they need; else batches that need more are computed in parts.
  RecordedSums(BatchSums sums, std::shared_ptr<Arena> arena, bool grow)
      : sums_(std::move(sums)), arena_(std::move(arena)), grow_(grow) {}

  // Adds the sums of samples [start, stop) to `totals`.
  absl::Status Add(const Batch& batch, int64_t start, int64_t stop, std::vector<double>& totals);

 private:
  struct Recorded {
    std::vector<FieldSpec> fields;
    Replay replay;
  };
  absl::StatusOr<Replay*> ReplayOf(std::vector<FieldSpec> fields, int64_t samples);

  BatchSums sums_;
  std::shared_ptr<Arena> arena_;
  bool grow_;
  std::vector<std::unique_ptr<Recorded>> recorded_;
};

// The sums over `dataset`, `batch` samples at a time, the last batch with fewer; with `replay`, `sums` is recorded once
// for each size of batch.
absl::StatusOr<std::vector<double>> SumOver(const Dataset& dataset, int64_t batch, Device device, bool replay,
                                            const BatchSums& sums);
// As above, with what is recorded kept for the next time.
absl::StatusOr<std::vector<double>> SumOver(const Dataset& dataset, int64_t batch, RecordedSums& recorded);

class Stopwatch {
 public:
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace gemmill
