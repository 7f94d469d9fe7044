#include "gemmill/examples/run_checkpoints.h"

#include <csignal>
#include <iostream>
#include <limits>

#include "gemmill/runtime/file.h"
#include "gemmill/runtime/json.h"

namespace gemmill::examples {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void Tell(const absl::Status& status, const char* what) {
  if (!status.ok()) std::cerr << "error: " << what << ": " << std::string(status.message()) << "; training goes on\n";
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

absl::StatusOr<RunCheckpoints> RunCheckpoints::Create(const CheckpointOptions& options) {
  if (options.save.empty() && options.save_every > 0) return InvalidArgument("--save_every needs --save FILE");
  if (options.save.empty() && options.keep > 0) return InvalidArgument("--keep needs --save FILE");
  if (!options.save.empty() && options.save == options.save_best) {
    return InvalidArgument("--save and --save_best are both ", options.save, ", expected two files");
  }
  if (!options.save.empty()) GM_RETURN_IF_ERROR(Annotate(CheckCanWrite(options.save), "--save: "));
  if (!options.save_best.empty()) GM_RETURN_IF_ERROR(Annotate(CheckCanWrite(options.save_best), "--save_best: "));
  return RunCheckpoints(options);
}

std::string RunCheckpoints::BestText() const {
  return JsonText({{"any", any_}, {"accuracy", best_accuracy_}, {"loss", best_loss_}, {"since", since_best_}}, -1);
}

absl::Status RunCheckpoints::TakeBest(const std::string& text) {
  JsonFields fields(text);
  fields.Take("any", any_);
  fields.Take("accuracy", best_accuracy_);
  fields.Take("since", since_best_);
  // JSON has null for a loss that is no number.
  best_loss_ = JsonValue<double>(ParseJson(text), "loss").value_or(std::numeric_limits<double>::quiet_NaN());
  if (fields.ok()) return absl::OkStatus();
  return InvalidArgument("--resume: what the checkpoint says of the best validation has no valid ", fields.wrong(),
                         ": ", text);
}

void RunCheckpoints::AfterStep(const Module& model, const Trainer& trainer, BatchPosition next,
                               const std::function<Metadata()>& metadata) {
  const int64_t step = trainer.steps();
  if (options_.save_every == 0 || step % options_.save_every != 0 || step == saved_step_) return;
  const absl::Status saved = SaveCheckpoint(options_.save, model, trainer, next, metadata(), options_.keep);
  if (saved.ok()) {
    saved_step_ = step;
    saved_next_ = next;
  }
  Tell(saved, "the checkpoint was not saved");
}

absl::Status RunCheckpoints::AtEnd(const Module& model, const Trainer& trainer, BatchPosition next,
                                   const Metadata& metadata) const {
  const bool same_step = saved_step_ == trainer.steps();
  if (options_.save.empty() || (same_step && saved_next_ == next)) return absl::OkStatus();
  return SaveCheckpoint(options_.save, model, trainer, next, metadata, same_step ? 0 : options_.keep);
}

bool RunCheckpoints::AfterValidation(const Evaluation& evaluation, const Module& model, const Trainer& trainer,
                                     BatchPosition next, const std::function<Metadata()>& metadata) {
  const bool better = !any_ || evaluation.accuracy.value_or(0) > best_accuracy_ ||
                      (evaluation.accuracy.value_or(0) == best_accuracy_ && evaluation.loss < best_loss_);
  if (!better) {
    ++since_best_;
    return OutOfPatience();
  }
  any_ = true;
  best_accuracy_ = evaluation.accuracy.value_or(0);
  best_loss_ = evaluation.loss;
  since_best_ = 0;
  if (!options_.save_best.empty()) {
    Tell(SaveCheckpoint(options_.save_best, model, trainer, next, metadata()), "the best was not saved");
  }
  return false;
}

}  // namespace gemmill::examples
