// When a training run saves itself: every so many steps, at its end, when its validation is the best so far, and on
// Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

// From then on, the first SIGINT or SIGTERM makes Interrupted() true, and the second ends the process.
void CatchInterrupts();
bool Interrupted();

struct CheckpointOptions {
  std::string save;        // empty: nowhere
  int64_t save_every = 0;  // steps; 0: at the end alone
  int64_t keep = 0;
  std::string save_best;  // empty: nowhere
  int64_t patience = 0;   // evaluations without a better one after which training is to stop; 0: never
};

class RunCheckpoints {
 public:
  // An error if the files cannot be written where they are to be.
  static absl::StatusOr<RunCheckpoints> Create(const CheckpointOptions& options);

  // What validation has shown so far, for the checkpoint's metadata and from there.
  std::string BestText() const;
  absl::Status TakeBest(const std::string& text);

  // A checkpoint now if one is due after `step`. One that fails is told on standard error, and the run goes on.
  void AfterStep(const Module& model, const Trainer& trainer, BatchPosition next,
                 const std::function<Metadata()>& metadata);
  // A checkpoint whatever the step, unless the last one is of this moment.
  absl::Status AtEnd(const Module& model, const Trainer& trainer, BatchPosition next, const Metadata& metadata) const;
  // Takes note of a validation: a higher accuracy is better, and the lower loss of two with the same. Saves the best,
  // and says whether patience has run out.
  bool AfterValidation(const Evaluation& evaluation, const Module& model, const Trainer& trainer, BatchPosition next,
                       const std::function<Metadata()>& metadata);
  bool OutOfPatience() const { return options_.patience > 0 && since_best_ >= options_.patience; }

 private:
  explicit RunCheckpoints(const CheckpointOptions& options) : options_(options) {}

  CheckpointOptions options_;
  int64_t saved_step_ = -1;  // of the last checkpoint, and where it goes on
  BatchPosition saved_next_;
  bool any_ = false;
  double best_accuracy_ = 0;
  double best_loss_ = 0;
  int64_t since_best_ = 0;
};

}  // namespace gemmill::examples
