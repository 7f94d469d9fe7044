// Checkpoints: a run that is resumed goes on with the bits of one that never stopped.
#include "gemmill/layers/training/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/data/testing.h"
#include "tests/layers/training.h"

namespace gemmill {
namespace {

using testing::HasSubstr;

struct TrainingSetup {
  DType dtype = DType::kF32;
  float dropout = 0;
  int64_t micro_batch = 0;
  bool freeze = false;
  bool trace = true;
  Schedule schedule = Schedule::Constant();
  std::function<std::shared_ptr<Optimizer>()> optimizer = [] { return std::make_shared<AdamW>(); };
  uint64_t seed = 4;
  int64_t global_batch = 8;
  std::vector<int64_t> sizes = {5, 16, 3};
};

// Model, trainer and loader of a run over 20 samples: an epoch has two whole batches and a short one.
class Training {
 public:
  explicit Training(const TrainingSetup& setup, uint64_t weights_seed = 1)
      : model_(Must(Mlp::Create({.sizes = setup.sizes, .activation = Activation::kGelu, .dropout = setup.dropout},
                                {.seed = weights_seed, .dtype = setup.dtype}))) {
    if (setup.freeze) {
      EXPECT_TRUE(model_.Freeze([](const std::string& name) { return name == "fc1.bias"; }).ok());
    }
    const DType dtype = setup.dtype;
    const auto loss = [this, dtype](const Inputs& in) {
      return CrossEntropy(model_(Cast(in["x"], dtype)), in["label"]);
    };
    trainer_ = std::make_unique<Trainer>(Must(Trainer::Make(model_, setup.optimizer(), loss,
                                                            {.global_batch = setup.global_batch,
                                                             .micro_batch = setup.micro_batch,
                                                             .clip_norm = 0.7,
                                                             .schedule = setup.schedule,
                                                             .seed = setup.seed,
                                                             .trace = setup.trace})));
    const Batch all = ClassificationBatch(20, 3);
    loader_ = std::make_unique<Loader>(
        Must(Loader::Create(Must(Dataset::Create(all.fields)), {.global_batch = setup.global_batch, .seed = 9})));
  }

  std::vector<double> Steps(int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const Batch batch = loader_->Next();
      const StepReport report = MustStep(*trainer_, batch);
      next_ = batch.next;
      losses.insert(losses.end(), {report.loss, report.learning_rate, report.gradient_norm});
    }
    return losses;
  }
  absl::Status Save(const std::string& path, int64_t keep = 0) const {
    return SaveCheckpoint(path, model_, *trainer_, next_, {}, keep);
  }
  absl::Status Restore(const std::string& path) {
    GM_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(path));
    GM_ASSIGN_OR_RETURN(const Progress progress, RestoreCheckpoint(file, model_, *trainer_));
    next_ = progress.next;
    return loader_->Seek(progress.next);
  }
  std::vector<std::vector<double>> Weights() const { return Snapshot(model_); }
  std::vector<std::vector<double>> State() const {
    std::vector<std::vector<double>> values;
    for (const Optimizer::State& state : trainer_->optimizer().state()) values.push_back(Doubles(state.value));
    return values;
  }
  Trainer& trainer() { return *trainer_; }

 private:
  Mlp model_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Loader> loader_;
  BatchPosition next_;
};

std::vector<std::pair<const char*, TrainingSetup>> TrainingSetups() {
  const auto sgd = [] { return std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1, .momentum = 0.9f}); };
  const auto plain = [] { return std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1}); };
  return {{"adamw", {}},
          {"sgd with momentum", {.optimizer = sgd}},
          {"sgd without state", {.optimizer = plain}},
          {"dropout in micro-batches", {.dropout = 0.3f, .micro_batch = 3}},
          {"cosine", {.schedule = Schedule::WarmupCosine(4, 12)}},
          {"bf16 with masters", {.dtype = DType::kBf16}},
          {"frozen bias", {.freeze = true}},
          {"eager", {.dropout = 0.2f, .trace = false}}};
}

TEST(CheckpointTest, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.safetensors";
  for (const auto& [name, setup] : TrainingSetups()) {
    for (int before : {0, 1, 2, 3, 7}) {
      SCOPED_TRACE(testing::Message() << name << ", stopped after " << before);
      Training whole(setup);
      whole.Steps(before);
      Training stopped(setup);
      stopped.Steps(before);
      ASSERT_TRUE(stopped.Save(path).ok());
      Training resumed(setup, /*weights_seed=*/77);
      const absl::Status restored = resumed.Restore(path);
      ASSERT_TRUE(restored.ok()) << restored;
      EXPECT_EQ(resumed.trainer().steps(), before);
      EXPECT_EQ(resumed.Steps(6), whole.Steps(6));
      EXPECT_EQ(resumed.Weights(), whole.Weights());
      EXPECT_EQ(resumed.State(), whole.State());
    }
  }
}

TEST(CheckpointTest, SameSeedSameBits) {
  for (const auto& [name, setup] : TrainingSetups()) {
    SCOPED_TRACE(name);
    Training first(setup);
    const std::vector<double> losses = first.Steps(8);
    for (int run = 1; run < 5; ++run) {
      Training other(setup);
      EXPECT_EQ(other.Steps(8), losses);
      EXPECT_EQ(other.Weights(), first.Weights());
    }
  }
}

TEST(CheckpointTest, RestoresIntoARunThatHasTrained) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.safetensors";
  Training run{TrainingSetup()};
  run.Steps(3);
  ASSERT_TRUE(run.Save(path).ok());
  const std::vector<double> losses = run.Steps(4);
  ASSERT_TRUE(run.Restore(path).ok());
  EXPECT_EQ(run.Steps(4), losses);
}

TEST(CheckpointTest, AnotherRunIsRefusedAndNothingChanges) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.safetensors";
  Training saved{TrainingSetup()};
  saved.Steps(2);
  ASSERT_TRUE(saved.Save(path).ok());
  const auto expect_refused = [&](const TrainingSetup& setup, const std::string& what) {
    Training other(setup, 77);
    other.Steps(1);
    const auto weights = other.Weights();
    const auto state = other.State();
    const absl::Status status = other.Restore(path);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_THAT(std::string(status.message()), HasSubstr("run.safetensors"));
    EXPECT_EQ(other.Weights(), weights);
    EXPECT_EQ(other.State(), state);
    EXPECT_EQ(other.trainer().steps(), 1);
  };
  expect_refused({.optimizer = [] { return std::make_shared<Sgd>(); }}, "the optimizer is Sgd, the checkpoint's AdamW");
  expect_refused({.seed = 5}, "the seed is 5, the checkpoint's 4");
  expect_refused({.global_batch = 10}, "global_batch is 10, the checkpoint's 8");
  expect_refused({.sizes = {5, 12, 3}}, "exp_avg.fc1.weight is F32[16, 5], expected f32[12, 5]");
  expect_refused({.freeze = true}, "the optimizer has no optimizer.exp_avg.fc1.bias");
  expect_refused({.dtype = DType::kBf16}, "master");
}

TEST(CheckpointTest, WeightsAloneAreNoCheckpoint) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/weights.safetensors";
  ASSERT_TRUE(SaveWeights(path, Classifier()).ok());
  EXPECT_THAT(std::string(Training{TrainingSetup()}.Restore(path).message()),
              HasSubstr("weights.safetensors is no checkpoint"));
}

TEST(CheckpointTest, HostileTrainingTextIsAnError) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/bad.safetensors";
  const std::string good =
      R"({"step":1,"epoch":0,"first_sample":8,"global_batch":8,"micro_batch":8,"seed":4,"optimizer":"AdamW","optimizer_steps":0})";
  for (const std::string key :
       {"step", "epoch", "first_sample", "global_batch", "micro_batch", "seed", "optimizer", "optimizer_steps"}) {
    std::string renamed = good;
    renamed.replace(good.find("\"" + key + "\""), key.size() + 2, "\"x\"");
    ASSERT_TRUE(SaveWeights(path, Classifier(), {{"gemmill.training", renamed}}).ok());
    EXPECT_THAT(std::string(Training{TrainingSetup()}.Restore(path).message()), HasSubstr(key));
  }
  for (const std::string text : {R"({"step":-1)", R"({"step":1e300)", R"({"step":"1")"}) {
    ASSERT_TRUE(SaveWeights(path, Classifier(), {{"gemmill.training", text + good.substr(good.find(','))}}).ok());
    EXPECT_THAT(std::string(Training{TrainingSetup()}.Restore(path).message()), HasSubstr("no valid step"));
  }
  // A place that the data set does not have is the Loader's to refuse.
  std::string beyond = good;
  beyond.replace(beyond.find("\"first_sample\":8"), 16, "\"first_sample\":999");
  ASSERT_TRUE(SaveWeights(path, Classifier(), {{"gemmill.training", beyond}}).ok());
  EXPECT_THAT(std::string(Training{TrainingSetup()}.Restore(path).message()), HasSubstr("sample 999"));
}

TEST(CheckpointTest, KeepsTheNewestOfTheOlder) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.safetensors";
  Training run{TrainingSetup()};
  const auto exists = [&](int step) { return std::filesystem::exists(path + ".step-" + std::to_string(step)); };
  for (int step = 1; step <= 5; ++step) {
    run.Steps(1);
    ASSERT_TRUE(run.Save(path, /*keep=*/2).ok());
  }
  EXPECT_FALSE(exists(2));
  EXPECT_TRUE(exists(4));
  const Safetensors newest = Must(Safetensors::Open(path));
  EXPECT_EQ(Must(ProgressOf(newest)).steps, 5);
  const Safetensors older = Must(Safetensors::Open(path + ".step-4"));
  EXPECT_EQ(Must(ProgressOf(older)).steps, 4);
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "run.safetensors" || name.find(".step-") != std::string::npos) << name;
    EXPECT_EQ(name.find(".link"), std::string::npos) << name;
  }
}

TEST(CheckpointTest, ASaveThatFailsLeavesTheCheckpointAndTheRun) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.safetensors";
  Training run{TrainingSetup()};
  run.Steps(2);
  ASSERT_TRUE(run.Save(path).ok());
  const std::vector<double> losses = run.Steps(2);
  EXPECT_THAT(std::string(run.Save(directory.path() + "/nowhere/run.safetensors").message()), HasSubstr("nowhere"));
  EXPECT_FALSE(CheckCanWrite(directory.path() + "/nowhere/run.safetensors").ok());
  EXPECT_FALSE(CheckCanWrite(directory.path()).ok());
  EXPECT_TRUE(CheckCanWrite(path).ok());
  const std::vector<double> more = run.Steps(2);
  ASSERT_TRUE(run.Restore(path).ok());
  EXPECT_EQ(run.Steps(2), losses);
  EXPECT_EQ(run.Steps(2), more);
}

}  // namespace
}  // namespace gemmill
