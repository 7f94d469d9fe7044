// Checkpoints: a training run at one moment, in one safetensors file that is also a model file (weights.h). Beside the
// weights it holds the optimizer's state as "optimizer.exp_avg.fc1.weight", and in its metadata what the Trainer and
// the Loader need to go on as if the run had never stopped:
//
//   GM_RETURN_IF_ERROR(SaveCheckpoint(path, model, trainer, batch.next));
//   ...
//   GM_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(path));
//   GM_ASSIGN_OR_RETURN(const Progress progress, RestoreCheckpoint(file, model, trainer));
//   GM_RETURN_IF_ERROR(loader.Seek(progress.next));
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/data/loader.h"
#include "gemmill/layers/training/trainer.h"
#include "gemmill/layers/weights.h"

namespace gemmill {

// How far a run has come, as its checkpoint tells.
struct Progress {
  int64_t steps = 0;
  BatchPosition next;  // where the next step's batch begins
};

// Writes `path`, whole or not at all. `metadata` is the program's own; keys "format" and "gemmill.training" are taken.
// With `keep`, the file that was there stays as `path`.step-S, S its step, and of such files the newest `keep`.
absl::Status SaveCheckpoint(const std::string& path, const Module& model, const Trainer& trainer, BatchPosition next,
                            const Metadata& metadata = {}, int64_t keep = 0);

// How far the run of a checkpoint had come; an error if the file is none.
absl::StatusOr<Progress> ProgressOf(const Safetensors& file);

// Makes weights, optimizer and trainer what they were. The model, the optimizer's kind, seed and global batch must be
// those of the checkpoint, whose bits the run then goes on with; the error names what differs, and then nothing has
// changed.
absl::StatusOr<Progress> RestoreCheckpoint(const Safetensors& file, const Module& model, Trainer& trainer);

}  // namespace gemmill
