// StepMemory: what the steps of a training run hold in memory, for any micro-batch, from recordings alone: no step is
// run, and nothing is allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/layers/module.h"
#include "gemmill/layers/training/evaluation.h"
#include "gemmill/layers/training/optimizer.h"
#include "gemmill/runtime/plan.h"
#include "gemmill/runtime/program.h"
#include "gemmill/runtime/schedule/calibration.h"
#include "gemmill/runtime/schedule/micro_batch_choice.h"
#include "gemmill/runtime/sized_program.h"

namespace gemmill {

struct MemoryItem {
  std::string name;  // "fc1.weight", "MatMul [512, 512]"
  std::string
      role;  // "parameter", "gradient", "optimizer state", "activation", "activation gradient", "workspace", ...
  int64_t bytes = 0;
  std::string layer;
};

// What a trainer holds for as long as it trains: parameters, frozen ones too, each tensor once; the totals that
// gradients are added up in; the optimizer's state; and what changes from step to step.
std::vector<MemoryItem> LastingMemory(absl::Span<const NamedParameter> all, const Trained& trained,
                                      const Optimizer& optimizer);

// The norm of all gradients, as its one output.
absl::StatusOr<Program> GradientNormProgram(absl::Span<const Tensor> gradients, Caller caller);

// The Programs that share one arena.
struct StepPrograms {
  using OfSamples = std::function<absl::StatusOr<Program>(int64_t samples)>;
  OfSamples first;       // a step's first micro-batch
  OfSamples further;     // one that adds to the totals
  OfSamples counting;    // what is computed before of a step in parts; empty: nothing
  OfSamples evaluation;  // of a micro-batch, without gradients
  std::function<absl::StatusOr<Program>()> norm;
};

// What kernels ask for beside their outputs.
using WorkspaceModel = std::function<absl::StatusOr<std::vector<int64_t>>(const Program& program)>;

// Of a GPU that is not there: each GEMM may have cuBLASLt's workspace of the size that NVIDIA recommends (32 MiB from
// Hopper on, 4 MiB before; cuBLAS documentation, "cublasSetWorkspace"), shared by all as they run one after the other;
// kernels of our own reduce within a block and ask for none.
WorkspaceModel GpuWorkspaces(int64_t gemm_bytes);

struct StepMemoryOptions {
  StepPrograms programs;
  std::vector<MemoryItem> lasting;
  std::vector<NamedParameter> parameters;  // to tell constants from
  std::vector<Tensor> totals;              // global sums too
  WorkspaceModel workspaces = CheckedWorkspaceBytes;
  bool copies_inputs = false;  // a device of its own, which gets each micro-batch's inputs
  Calibration calibration;
  int64_t global_batch = 0;
};

// What a training run computes.
struct TrainedModel {
  std::vector<NamedParameter> all;  // frozen and tied ones too
  Trained trained;
  int64_t whole_batch = 0;  // samples of a step; micro-batches of fewer are parts of one
  LossFunction loss;
  BatchSums evaluation;
  std::vector<FieldSpec> fields;  // of any number of samples
  bool passes = true;
};

// The Programs of its steps and what it holds, for the kernels and the memory of the CPU; calibration and global batch
// are the caller's to fill in.
absl::StatusOr<StepMemoryOptions> StepMemoryOf(const TrainedModel& model, const Optimizer& optimizer, Caller caller);

class StepMemory {
 public:
  explicit StepMemory(StepMemoryOptions options);

  struct Peak {
    int64_t micro_batch = 0;
    int64_t lasting_bytes = 0;
    int64_t other_bytes = 0;  // constants
    int64_t input_bytes = 0;  // of a micro-batch, on a device of its own
    int64_t arena_bytes = 0;
    double seconds = 0;            // of a step, predicted
    std::vector<MemoryItem> live;  // what is live in the arena at its fullest, largest first

    int64_t bytes() const { return lasting_bytes + other_bytes + input_bytes + arena_bytes; }
  };
  // By recording the steps.
  absl::StatusOr<Peak> At(int64_t micro_batch);
  absl::StatusOr<StepPrediction> Exactly(int64_t micro_batch);
  absl::StatusOr<int64_t> ArenaBytes(int64_t micro_batch);
  // From recordings for two samples and for the global batch, where these differ in dimensions alone; else by
  // recording. It errs where a model does another thing only for sizes between, so what is used of it is to be
  // confirmed (Exactly).
  absl::StatusOr<StepPrediction> Predict(int64_t micro_batch);

  // All of what is live at the peak, largest first; parameters that training reserves are in it.
  std::vector<MemoryItem> LiveAtPeak(const Peak& peak) const;
  const StepMemoryOptions& options() const { return options_; }

 private:
  // Of a step's programs for one size; null where there is none.
  struct Sources {
    const Program* first = nullptr;
    const Program* further = nullptr;
    const Program* counting = nullptr;
    const Program* evaluation = nullptr;
    bool tell_live = false;  // fill in Peak::live
  };
  struct Sized {
    SizedProgram first;
    SizedProgram further;
    std::optional<SizedProgram> counting;
    std::optional<SizedProgram> evaluation;
  };
  absl::StatusOr<Peak> PeakOf(int64_t micro_batch, const Sources& sources);
  absl::StatusOr<std::optional<Sized>> MakeSized() const;
  absl::StatusOr<std::optional<SizedProgram>> SizedOf(const StepPrograms::OfSamples& program) const;
  int64_t ConstantBytes(const Program& program) const;

  StepMemoryOptions options_;
  std::unordered_set<const Buffer*> known_;  // parameters and totals
  int64_t norm_arena_bytes_ = -1;            // once it is planned: it is the same for every size
  std::map<int64_t, int64_t> arena_bytes_;   // of sizes that were asked for
  bool sized_made_ = false;
  std::optional<Sized> sized_;
};

// A table of the largest.
std::string MemoryTable(absl::Span<const MemoryItem> items, size_t most_rows = 12);

}  // namespace gemmill
