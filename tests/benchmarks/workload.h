// The training steps that the programs of this folder measure.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/gemmill.h"

namespace gemmill {

struct Workload {
  std::vector<int64_t> sizes;
  int64_t batch;
  bool sgd;     // else AdamW
  int threads;  // 0: the default
  Precision precision = Precision::kF32;

  std::string name() const {
    return absl::StrCat(absl::StrJoin(sizes, "-"), "/", batch, precision == Precision::kBf16 ? "/bf16" : "");
  }
  int thread_count() const { return threads > 0 ? threads : DefaultNumThreads(); }
};

inline const std::vector<Workload> kWorkloads = {
    {{784, 512, 512, 10}, 64, false, 0},   {{784, 512, 512, 10}, 256, false, 0},
    {{784, 512, 512, 10}, 1024, false, 0}, {{1024, 1024, 1024, 1024}, 1024, false, 0},
    {{8, 8, 8, 8, 8}, 8, true, 1},         {{1024, 1024, 1024, 1024}, 1024, false, 0, Precision::kBf16},
};

// A rate at which two trainings that round differently stay together: at 1e-3 AdamW learns this noise by heart within
// twenty steps, and losses were up to 7e-5 apart.
inline AdamWOptions AdamWSettings() { return {.learning_rate = 1e-4f}; }
inline SgdOptions SgdSettings() { return {.learning_rate = 1e-3}; }

inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Check(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// A model with its initial weights, a batch of noise with labels, and their trainer.
class Training {
 public:
  explicit Training(const Workload& workload)
      : model_(Check(Mlp::Create({.sizes = workload.sizes, .activation = Activation::kRelu}, {.seed = 1}))) {
    std::vector<int64_t> classes(static_cast<size_t>(workload.batch));
    for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int64_t>(i) % workload.sizes.back();
    const Var x =
        Check(MakeParameter({workload.batch, workload.sizes[0]}, Initializer::kNormal, {.seed = 2}, /*scale=*/0.1));
    batch_.samples = workload.batch;
    batch_.fields = {{"x", Check(x.Value())}, {"label", Check(Tensor::From(classes, {workload.batch}))}};
    std::shared_ptr<Optimizer> optimizer = std::make_shared<AdamW>(AdamWSettings());
    if (workload.sgd) optimizer = std::make_shared<Sgd>(SgdSettings());
    trainer_ = std::make_unique<Trainer>(Check(Trainer::Make(
        model_, optimizer, [this](const Inputs& in) { return CrossEntropy(model_(in["x"]), in["label"]); },
        {.global_batch = workload.batch, .precision = workload.precision})));
  }
  Training(const Training&) = delete;  // the trainer's loss points here
  Training& operator=(const Training&) = delete;

  // A step as a user's loop takes it: everything but reading the data.
  double Step() { return Check(trainer_->Step(batch_)).loss; }
  // Recording, and the checks of recordings that Trainer makes in its first ten steps.
  void WarmUp() {
    for (int i = 0; i < 11; ++i) Step();
  }

  const Mlp& model() const { return model_; }
  const Batch& batch() const { return batch_; }

 private:
  Mlp model_;
  Batch batch_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace gemmill
