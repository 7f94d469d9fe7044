// What a step's plan says is what the process takes: its resident memory, as the system counts it.
#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gemmill/runtime/cpu/memory.h"
#include "tests/layers/training.h"
#include "tests/memory/count_allocations.h"

namespace gemmill {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

// A line of /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    if (word != name + ":") continue;
    int64_t kibibytes = 0;
    file >> kibibytes;
    return kibibytes << 10;
  }
  return -1;
}

// Starts the peak of resident memory (VmHWM) anew.
bool ResetResidentPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// Weights, gradients, optimizer state, batch and arena.
int64_t PlannedBytes(const Trainer& trainer) {
  int64_t bytes = 0;
  for (const Replay* recording : trainer.recordings()) bytes = std::max(bytes, recording->plan().peak_bytes());
  for (const Optimizer::State& state : trainer.optimizer().state()) bytes += state.value.spec().bytes();
  return bytes;
}

void ExpectResidentIsPlanned(const MlpOptions& options, int64_t samples) {
  if (!CanCountAllocations()) GTEST_SKIP() << "sanitizers take memory of their own";
  cpu::ReleaseKept();  // of tests before
  malloc_trim(0);
  if (!ResetResidentPeak()) GTEST_SKIP() << "this system does not let a process reset its peak";
  const int64_t before = StatusBytes("VmRSS");
  ASSERT_GT(before, 0);

  const Mlp model = Mlp::Create(options, {.seed = 1}).value();
  const int64_t inputs = options.sizes.front();
  Batch batch;
  batch.samples = batch.global_samples = samples;
  batch.fields = {{"x", Tensor::Zeros(Spec{{samples, inputs}}).value()},
                  {"label", Tensor::Zeros(Spec{{samples}, DType::kI64}).value()}};
  Trainer trainer =
      Trainer::Create(model, AdamW(), ClassificationLoss(model), {.global_batch = samples, .micro_batch = samples})
          .value();
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(trainer.Step(batch).ok());

  const int64_t grown = StatusBytes("VmHWM") - before;
  const int64_t planned = PlannedBytes(trainer);
  EXPECT_GE(planned, 256 * kMebibyte);
  EXPECT_NEAR(static_cast<double>(grown), static_cast<double>(planned),
              0.03 * static_cast<double>(planned) + 32 * kMebibyte);
}

TEST(ResidentTest, MostlyWeightsAndTheirState) { ExpectResidentIsPlanned({.sizes = {4096, 4096, 10}}, 64); }

TEST(ResidentTest, MostlyActivations) {
  ExpectResidentIsPlanned({.sizes = {64, 64, 64, 64, 64, 64, 64, 10}, .activation = Activation::kGelu}, 1 << 17);
}

}  // namespace
}  // namespace gemmill
