// Trains a classifier of fully-connected layers on images in IDX files: the bundled digits, or MNIST with --data.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "gemmill/examples/memory_options.h"
#include "gemmill/examples/run_log.h"
#include "gemmill/examples/run_options.h"
#include "gemmill/gemmill.h"

ABSL_FLAG(std::string, data, GEMMILL_SAMPLES, "directory with MNIST's four IDX files, .gz or not");
ABSL_FLAG(int64_t, epochs, 0, "passes over the training set; 0: 5, or as many as make 1,000 steps");
ABSL_FLAG(int64_t, global_batch, 0, "samples per optimizer step; 0: samples / 128, but 32 to 128");
ABSL_FLAG(std::string, micro_batch, "auto",
          "samples per forward and backward pass, accumulated; auto: the fastest that fits into memory, 0: the global "
          "batch");
ABSL_FLAG(
    std::string, memory_budget, "",
    "most memory of the training, such as 2GiB, 512MB or 50%; @FILE reads it from a file before every step; empty: "
    "what the machine has left");
ABSL_FLAG(bool, tune_micro_batch, false, "of --micro_batch auto: time sizes on the first steps instead of predicting");
ABSL_FLAG(std::string, hidden, "512,512", "widths of the hidden layers");
ABSL_FLAG(std::string, activation, "gelu", "gelu, gelu_tanh, relu, tanh, silu or sigmoid");
ABSL_FLAG(double, dropout, 0, "share of hidden units dropped in training");
ABSL_FLAG(std::string, optimizer, "adamw", "adamw or sgd");
ABSL_FLAG(double, learning_rate, 0, "0: 1e-3 for adamw, 0.1 for sgd");
ABSL_FLAG(double, momentum, 0.9, "of sgd");
ABSL_FLAG(std::string, schedule, "cosine",
          "constant, cosine (after a warm-up of 5% of the steps) or step (x 0.1 each third)");
ABSL_FLAG(double, weight_decay, 0.01, "of weights, not of biases");
ABSL_FLAG(double, clip_norm, 0, "global norm that gradients are clipped to; 0: none");
ABSL_FLAG(int64_t, seed, 1, "of initial weights, order of samples and dropout");
ABSL_FLAG(int64_t, threads, 0, "0: as many as this process may use");
ABSL_FLAG(std::string, device, "auto", "cpu, cuda or auto");
ABSL_FLAG(bool, check_numerics, false, "stop at the first op that makes a NaN or infinity, and name it");
ABSL_FLAG(std::string, metrics, "", "file for a JSON line per step and evaluation");
ABSL_FLAG(std::string, profile, "", "file for a trace of the last steps, which opens in Perfetto; prints a table too");

namespace gemmill::examples {
namespace {

absl::StatusOr<MemoryOptions> MemoryFlags() {
  return ParseMemoryOptions(absl::GetFlag(FLAGS_micro_batch), absl::GetFlag(FLAGS_memory_budget),
                            absl::GetFlag(FLAGS_tune_micro_batch), absl::GetFlag(FLAGS_check_numerics));
}

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_data).empty()) {
    return InvalidArgument("--data is empty, expected a directory with MNIST's four IDX files");
  }
  GM_RETURN_IF_ERROR(CheckRange("epochs", absl::GetFlag(FLAGS_epochs), 0));
  GM_RETURN_IF_ERROR(CheckRange("global_batch", absl::GetFlag(FLAGS_global_batch), 0));
  GM_RETURN_IF_ERROR(MemoryFlags().status());
  GM_RETURN_IF_ERROR(CheckRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  GM_RETURN_IF_ERROR(CheckRange("seed", absl::GetFlag(FLAGS_seed), 0));
  GM_RETURN_IF_ERROR(CheckRange("learning_rate", absl::GetFlag(FLAGS_learning_rate), 0, 1e6));
  GM_RETURN_IF_ERROR(CheckRange("weight_decay", absl::GetFlag(FLAGS_weight_decay), 0, 1e6));
  GM_RETURN_IF_ERROR(CheckRange("clip_norm", absl::GetFlag(FLAGS_clip_norm), 0, 1e30));
  GM_RETURN_IF_ERROR(CheckRange("dropout", absl::GetFlag(FLAGS_dropout), 0, 0.999));
  GM_RETURN_IF_ERROR(CheckRange("momentum", absl::GetFlag(FLAGS_momentum), 0, 0.9999));
  if (!absl::GetFlag(FLAGS_profile).empty() && absl::GetFlag(FLAGS_check_numerics)) {
    return InvalidArgument("--profile is of recorded steps, and --check_numerics runs eagerly; give one of them");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Optimizer>> MakeOptimizer() {
  const std::string name = absl::GetFlag(FLAGS_optimizer);
  const double rate = absl::GetFlag(FLAGS_learning_rate);
  const float decay = static_cast<float>(absl::GetFlag(FLAGS_weight_decay));
  if (name == "adamw") {
    return std::make_shared<AdamW>(AdamWOptions{.learning_rate = rate > 0 ? rate : 1e-3, .weight_decay = decay});
  }
  if (name == "sgd") {
    return std::make_shared<Sgd>(SgdOptions{.learning_rate = rate > 0 ? rate : 0.1,
                                            .momentum = static_cast<float>(absl::GetFlag(FLAGS_momentum)),
                                            .weight_decay = decay});
  }
  return InvalidArgument("--optimizer is \"", name, "\", expected adamw or sgd");
}

absl::StatusOr<Schedule> MakeSchedule(int64_t steps) {
  const std::string name = absl::GetFlag(FLAGS_schedule);
  if (name == "constant") return Schedule::Constant();
  if (name == "cosine") return Schedule::WarmupCosine(steps / 20, steps);
  if (name == "step") return Schedule::Step((steps + 2) / 3, 0.1);
  return InvalidArgument("--schedule is \"", name, "\", expected constant, cosine or step");
}

absl::Status Train() {
  GM_RETURN_IF_ERROR(CheckFlags());
  const uint64_t seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
  if (absl::GetFlag(FLAGS_threads) > 0)
    GM_RETURN_IF_ERROR(SetNumThreads(static_cast<int>(absl::GetFlag(FLAGS_threads))));
  GM_ASSIGN_OR_RETURN(const Device device, Device::Parse(absl::GetFlag(FLAGS_device)));
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> hidden, ParseSizes("hidden", absl::GetFlag(FLAGS_hidden)));
  GM_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(absl::GetFlag(FLAGS_activation)));
  GM_ASSIGN_OR_RETURN(std::shared_ptr<Optimizer> optimizer, MakeOptimizer());

  GM_ASSIGN_OR_RETURN(const Dataset train, LoadIdxDirectory(absl::GetFlag(FLAGS_data), Split::kTrain));
  GM_ASSIGN_OR_RETURN(const int64_t classes, train.NumClasses());
  GM_ASSIGN_OR_RETURN(const Dataset test,
                      LoadIdxDirectory(absl::GetFlag(FLAGS_data), Split::kTest, {.classes = classes}));
  GM_ASSIGN_OR_RETURN(const Tensor pixels, train.field("x"));
  GM_ASSIGN_OR_RETURN(const Tensor test_pixels, test.field("x"));
  if (pixels.shape()[1] != test_pixels.shape()[1]) {
    return InvalidArgument(absl::GetFlag(FLAGS_data), ": training images have ", pixels.shape()[1],
                           " pixels, test images ", test_pixels.shape()[1]);
  }

  const int64_t asked = absl::GetFlag(FLAGS_global_batch);
  const int64_t fallback = std::min(std::clamp<int64_t>(train.size() / 128, 32, 128), train.size());
  const int64_t global_batch = asked > 0 ? asked : fallback;
  GM_ASSIGN_OR_RETURN(Loader loader, Loader::Create(train, {.global_batch = global_batch, .seed = seed}));
  const int64_t steps_per_epoch = loader.batches_per_epoch();
  const int64_t epochs = absl::GetFlag(FLAGS_epochs) > 0
                             ? absl::GetFlag(FLAGS_epochs)
                             : std::max<int64_t>(5, (999 + steps_per_epoch) / steps_per_epoch);
  // All steps are counted in 64 bits, and some more that schedules round up to.
  GM_RETURN_IF_ERROR(CheckRange("epochs", epochs, 0, (INT64_MAX - 2) / steps_per_epoch));
  const int64_t steps = epochs * steps_per_epoch;
  GM_ASSIGN_OR_RETURN(const Schedule schedule, MakeSchedule(steps));

  std::vector<int64_t> sizes{pixels.shape()[1]};
  sizes.insert(sizes.end(), hidden.begin(), hidden.end());
  sizes.push_back(classes);
  GM_ASSIGN_OR_RETURN(const Mlp model, Mlp::Create({.sizes = sizes,
                                                    .activation = activation,
                                                    .dropout = static_cast<float>(absl::GetFlag(FLAGS_dropout))},
                                                   {.seed = seed, .device = device}));
  GM_ASSIGN_OR_RETURN(const MemoryOptions memory, MemoryFlags());
  GM_ASSIGN_OR_RETURN(RunLog log, RunLog::Open(absl::GetFlag(FLAGS_metrics)));
  absl::Status told;
  GM_ASSIGN_OR_RETURN(
      Trainer trainer,
      Trainer::Make(model, optimizer, [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); },
                    {.global_batch = global_batch,
                     .micro_batch = memory.micro_batch,
                     .clip_norm = absl::GetFlag(FLAGS_clip_norm),
                     .schedule = schedule,
                     .seed = seed,
                     .check_numerics = absl::GetFlag(FLAGS_check_numerics),
                     .evaluation = ClassifierSums([&](const Inputs& in) { return model(in["x"]); }),
                     .memory_budget = memory.budget,
                     .tune_micro_batch = memory.tune,
                     .on_plan = [&](const PlanEvent& event) { told.Update(log.Plan(event)); }}));
  Profile profile;
  const std::string profile_path = absl::GetFlag(FLAGS_profile);
  if (!profile_path.empty()) {
    GM_RETURN_IF_ERROR(
        Annotate(profile.Write(profile_path), "--profile: "));  // an empty one, to fail now or not at all
    trainer.SetWatch(profile.Watch());
  }

  absl::PrintF(
      "%s\n%d training and %d test samples, %d classes; %d epochs of %d steps, global batch %d, %s, %d threads\n",
      Summary(model), train.size(), test.size(), classes, epochs, steps_per_epoch, global_batch, device.ToString(),
      NumThreads());
  Evaluation evaluation;
  double seconds = 0;
  int64_t samples = 0;
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    double loss_sum = 0;
    double epoch_seconds = 0;
    int64_t epoch_samples = 0;
    for (const Batch& batch : loader) {
      GM_ASSIGN_OR_RETURN(const StepReport report, trainer.Step(batch));
      GM_RETURN_IF_ERROR(told);
      GM_RETURN_IF_ERROR(log.Step(report, epoch, steps));
      loss_sum += report.loss * static_cast<double>(report.samples);
      epoch_seconds += report.seconds;
      epoch_samples += report.samples;
    }
    seconds += epoch_seconds;
    samples += epoch_samples;
    GM_ASSIGN_OR_RETURN(evaluation, trainer.Evaluate(test));
    GM_RETURN_IF_ERROR(log.Evaluated(evaluation, trainer.steps(), epoch, epochs,
                                     loss_sum / static_cast<double>(epoch_samples),
                                     static_cast<double>(epoch_samples) / epoch_seconds));
  }
  absl::PrintF("trained %d steps in %.1f s, %.0f samples/s\n", trainer.steps(), seconds,
               static_cast<double>(samples) / seconds);
  absl::PrintF("test accuracy %.4f\n", evaluation.accuracy);
  if (!profile_path.empty()) {
    GM_RETURN_IF_ERROR(profile.Write(profile_path));
    absl::PrintF("\n%.1f s in recorded steps:\n%s", profile.seconds(), profile.Table());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gemmill::examples

int main(int argc, char** argv) {
  gemmill::examples::ParseFlags(argc, argv, "train_mlp trains a classifier of fully-connected layers.", "train_mlp.cc");
  return gemmill::examples::ExitCode(gemmill::examples::Train());
}
