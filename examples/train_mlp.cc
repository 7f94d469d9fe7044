// Trains a classifier of fully-connected layers on images in IDX files: the bundled digits, or MNIST with --data.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "gemmill/examples/image_data.h"
#include "gemmill/examples/memory_options.h"
#include "gemmill/examples/model_text.h"
#include "gemmill/examples/resume_flags.h"
#include "gemmill/examples/run_checkpoints.h"
#include "gemmill/examples/run_log.h"
#include "gemmill/examples/run_options.h"
#include "gemmill/examples/run_state.h"
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
ABSL_FLAG(int64_t, experts, 0, "of a Mixture-of-Experts block behind the first hidden layer; 0: no block");
ABSL_FLAG(int64_t, top_k, 2, "of --experts: how many each sample goes to");
ABSL_FLAG(std::string, routing, "softmax_renormalized",
          "of --experts: softmax, softmax_renormalized, top_k_softmax or sigmoid");
ABSL_FLAG(double, balance_loss, 0.01, "of --experts: coefficient of the load-balancing loss");
ABSL_FLAG(int64_t, statistics_every, 0, "of --experts: steps between lines on their loads in --metrics; 0: none");
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
ABSL_FLAG(std::string, precision, "f32", "f32, or bf16: GEMMs and activations in bf16, weights and updates in f32");
ABSL_FLAG(double, validation_share, 0, "share of the training samples held out for validation; 0: none");
ABSL_FLAG(std::string, save, "", "checkpoint file, written at the end and on Ctrl-C");
ABSL_FLAG(int64_t, save_every, 0, "steps between checkpoints on the way; 0: none");
ABSL_FLAG(int64_t, keep, 0, "how many older checkpoints to keep beside --save, as FILE.step-S");
ABSL_FLAG(std::string, save_best, "", "checkpoint file of the best epoch by validation accuracy");
ABSL_FLAG(int64_t, patience, 0, "epochs without a better validation after which training stops; 0: never");
ABSL_FLAG(std::string, resume, "", "checkpoint to go on from; flags that are not given are taken from it");
ABSL_FLAG(bool, restart_schedule, false, "with --resume: the schedule begins anew, over the steps that are left");
ABSL_FLAG(bool, hash, false, "print a hash of all losses and the final weights");
ABSL_FLAG(std::string, metrics, "", "file for a JSON line per step and evaluation");
ABSL_FLAG(std::string, profile, "", "file for a trace of the last steps, which opens in Perfetto; prints a table too");

namespace gemmill::examples {
namespace {

// Flags kept in checkpoints. With --resume, the fixed ones may not differ; epochs may grow; the others may differ, and
// those of how it is computed change the bits.
constexpr const char* kFixedFlags[] = {"hidden",       "activation",       "dropout",      "optimizer", "learning_rate",
                                       "momentum",     "schedule",         "weight_decay", "clip_norm", "seed",
                                       "global_batch", "validation_share", "precision",    "experts",   "top_k",
                                       "routing",      "balance_loss"};
constexpr const char* kEpochsFlag[] = {"epochs"};
constexpr const char* kComputingFlags[] = {"micro_batch", "threads", "device"};
constexpr const char* kFreeFlags[] = {"data",       "check_numerics", "metrics",  "save",          "keep",
                                      "save_every", "save_best",      "patience", "memory_budget", "statistics_every"};
// Metadata keys of a checkpoint.
constexpr char kFlagsKey[] = "train_mlp.flags";
constexpr char kRunKey[] = "train_mlp.run";
constexpr char kBestKey[] = "train_mlp.best";

absl::StatusOr<MemoryOptions> MemoryFlags() {
  return ParseMemoryOptions(absl::GetFlag(FLAGS_micro_batch), absl::GetFlag(FLAGS_memory_budget),
                            absl::GetFlag(FLAGS_tune_micro_batch), absl::GetFlag(FLAGS_check_numerics));
}

absl::Status CheckFlags(const std::set<std::string>& given) {
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
  GM_RETURN_IF_ERROR(CheckRange("validation_share", absl::GetFlag(FLAGS_validation_share), 0, 0.9));
  GM_RETURN_IF_ERROR(CheckRange("save_every", absl::GetFlag(FLAGS_save_every), 0));
  GM_RETURN_IF_ERROR(CheckRange("keep", absl::GetFlag(FLAGS_keep), 0));
  GM_RETURN_IF_ERROR(CheckRange("patience", absl::GetFlag(FLAGS_patience), 0));
  GM_RETURN_IF_ERROR(CheckRange("experts", absl::GetFlag(FLAGS_experts), given.count("experts") > 0 ? 1 : 0));
  GM_RETURN_IF_ERROR(CheckRange("statistics_every", absl::GetFlag(FLAGS_statistics_every), 0));
  for (const char* flag : {"top_k", "routing", "balance_loss", "statistics_every"}) {
    if (given.count(flag) > 0 && absl::GetFlag(FLAGS_experts) == 0) {
      return InvalidArgument("--", flag, " is of --experts, which is 0; give --experts N, 1 or more");
    }
  }
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

// The checkpoint of --resume, if there is one, after the flags have been taken from it.
struct Stored {
  std::optional<Safetensors> file;
  RunState run;
  Progress progress;

  std::string Text(const char* key) const {
    const std::string* const text = file->Text(key);
    return text == nullptr ? "" : *text;
  }
};

absl::StatusOr<Stored> OpenStored(const std::set<std::string>& given) {
  Stored stored;
  const std::string path = absl::GetFlag(FLAGS_resume);
  if (path.empty()) {
    if (absl::GetFlag(FLAGS_restart_schedule)) return InvalidArgument("--restart_schedule needs --resume FILE");
    return stored;
  }
  GM_ASSIGN_OR_RETURN(stored.file, Safetensors::Open(path));
  GM_ASSIGN_OR_RETURN(stored.progress, ProgressOf(*stored.file));
  GM_ASSIGN_OR_RETURN(stored.run, RunState::Parse(stored.Text(kRunKey)));
  ResumedFlags flags(stored.Text(kFlagsKey), path, given);
  for (const char* name : kFixedFlags) flags.MustBeTheSame(name);
  flags.MayGrow("epochs");
  for (const char* name : kComputingFlags) flags.MayDiffer(name);
  for (const char* name : kFreeFlags) flags.MayDiffer(name);
  GM_RETURN_IF_ERROR(flags.status());
  absl::PrintF("resumed from %s after step %d\n", path, stored.progress.steps);
  for (const char* name : kComputingFlags) {
    if (flags.Differs(name)) absl::PrintF("--%s differs from before: the bits may not be the same\n", name);
  }
  return stored;
}

// The block of experts, if there is to be one.
absl::StatusOr<std::optional<MoeOptions>> ExpertFlags() {
  if (absl::GetFlag(FLAGS_experts) == 0) return std::nullopt;
  const absl::StatusOr<Routing> routing = ParseRouting(absl::GetFlag(FLAGS_routing));
  if (!routing.ok()) return Annotate(routing.status(), "--routing: ");
  return MoeOptions{.experts = absl::GetFlag(FLAGS_experts),
                    .top_k = absl::GetFlag(FLAGS_top_k),
                    .routing = *routing,
                    .balance_loss = absl::GetFlag(FLAGS_balance_loss)};
}

// Flags that are 0 for "as it fits" become what fits, so that a checkpoint tells what was used.
void SettleFlags(const Dataset& train) {
  if (absl::GetFlag(FLAGS_global_batch) == 0) {
    absl::SetFlag(&FLAGS_global_batch, std::min(std::clamp<int64_t>(train.size() / 128, 32, 128), train.size()));
  }
  if (absl::GetFlag(FLAGS_learning_rate) == 0) {
    absl::SetFlag(&FLAGS_learning_rate, absl::GetFlag(FLAGS_optimizer) == "sgd" ? 0.1 : 1e-3);
  }
}

// What a checkpoint of this run says beside what SaveCheckpoint adds.
absl::StatusOr<Metadata> RunMetadata(const MlpOptions& model, const Dataset& train) {
  GM_ASSIGN_OR_RETURN(const Normalization input, train.normalization("x"));
  Metadata metadata{{kModelKey, ModelText(model)}, {kInputKey, InputText(input)}};
  if (!train.class_names().empty()) metadata[kClassesKey] = ClassesText(train.class_names());
  return metadata;
}

absl::Status Train(const std::set<std::string>& given) {
  GM_ASSIGN_OR_RETURN(Stored stored, OpenStored(given));
  GM_RETURN_IF_ERROR(CheckFlags(given));
  const bool resumed = stored.file.has_value();
  if (absl::GetFlag(FLAGS_threads) > 0)
    GM_RETURN_IF_ERROR(SetNumThreads(static_cast<int>(absl::GetFlag(FLAGS_threads))));
  const absl::StatusOr<Device> parsed = Device::Parse(absl::GetFlag(FLAGS_device));
  if (!parsed.ok()) return Annotate(parsed.status(), "--device: ");
  const Device device = *parsed;
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> hidden, ParseSizes("hidden", absl::GetFlag(FLAGS_hidden)));
  const absl::StatusOr<Activation> activation = ParseActivation(absl::GetFlag(FLAGS_activation));
  if (!activation.ok()) return Annotate(activation.status(), "--activation: ");
  const absl::StatusOr<Precision> precision = ParsePrecision(absl::GetFlag(FLAGS_precision));
  if (!precision.ok()) return Annotate(precision.status(), "--precision: ");
  GM_ASSIGN_OR_RETURN(RunCheckpoints checkpoints, RunCheckpoints::Create({.save = absl::GetFlag(FLAGS_save),
                                                                          .save_every = absl::GetFlag(FLAGS_save_every),
                                                                          .keep = absl::GetFlag(FLAGS_keep),
                                                                          .save_best = absl::GetFlag(FLAGS_save_best),
                                                                          .patience = absl::GetFlag(FLAGS_patience)}));

  GM_ASSIGN_OR_RETURN(const ImageData data,
                      LoadImages(absl::GetFlag(FLAGS_data), absl::GetFlag(FLAGS_validation_share)));
  SettleFlags(data.train);
  RunState run = stored.run;
  if (resumed || !absl::GetFlag(FLAGS_save).empty() || !absl::GetFlag(FLAGS_save_best).empty()) {
    GM_ASSIGN_OR_RETURN(run.data_hash, HashOf(data.train));
  }
  if (resumed && run.data_hash != stored.run.data_hash) {
    return InvalidArgument("--resume: ", absl::GetFlag(FLAGS_data),
                           " has other training samples than the checkpoint's");
  }
  GM_ASSIGN_OR_RETURN(std::shared_ptr<Optimizer> optimizer, MakeOptimizer());
  const uint64_t seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
  const int64_t global_batch = absl::GetFlag(FLAGS_global_batch);
  GM_RETURN_IF_ERROR(CheckRange("global_batch", global_batch, 1, data.train.size()));
  GM_ASSIGN_OR_RETURN(const MemoryOptions memory, MemoryFlags());
  GM_RETURN_IF_ERROR(CheckRange("micro_batch", memory.micro_batch.samples, 0, global_batch));
  GM_ASSIGN_OR_RETURN(Loader loader, Loader::Create(data.train, {.global_batch = global_batch, .seed = seed}));
  const int64_t steps_per_epoch = loader.batches_per_epoch();
  if (absl::GetFlag(FLAGS_epochs) == 0) {
    absl::SetFlag(&FLAGS_epochs, std::max<int64_t>(5, (999 + steps_per_epoch) / steps_per_epoch));
  }
  const int64_t epochs = absl::GetFlag(FLAGS_epochs);
  // All steps are counted in 64 bits, and some more that schedules round up to.
  GM_RETURN_IF_ERROR(CheckRange("epochs", epochs, 0, (INT64_MAX - 2) / steps_per_epoch));
  const int64_t steps = epochs * steps_per_epoch;
  if (!resumed) run.schedule_steps = steps;
  if (absl::GetFlag(FLAGS_restart_schedule)) {
    run.schedule_first = stored.progress.steps;
    run.schedule_steps = std::max<int64_t>(1, steps - stored.progress.steps);
  }
  GM_ASSIGN_OR_RETURN(const Schedule schedule, MakeSchedule(run.schedule_steps));

  MlpOptions options{.activation = *activation, .dropout = static_cast<float>(absl::GetFlag(FLAGS_dropout))};
  options.sizes.push_back(data.pixels);
  options.sizes.insert(options.sizes.end(), hidden.begin(), hidden.end());
  options.sizes.push_back(data.classes);
  GM_ASSIGN_OR_RETURN(options.moe, ExpertFlags());
  GM_ASSIGN_OR_RETURN(const Mlp model, Mlp::Create(options, {.seed = seed, .device = device}));
  GM_ASSIGN_OR_RETURN(RunLog log, RunLog::Open(absl::GetFlag(FLAGS_metrics), /*append=*/resumed));
  absl::Status told;
  GM_ASSIGN_OR_RETURN(
      Trainer trainer,
      Trainer::Make(model, optimizer, [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); },
                    {.global_batch = global_batch,
                     .micro_batch = memory.micro_batch,
                     .clip_norm = absl::GetFlag(FLAGS_clip_norm),
                     .schedule = schedule.StartingAt(run.schedule_first),
                     .precision = *precision,
                     .seed = seed,
                     .check_numerics = absl::GetFlag(FLAGS_check_numerics),
                     .evaluation = ClassifierSums([&](const Inputs& in) { return model(in["x"]); }),
                     .memory_budget = memory.budget,
                     .tune_micro_batch = memory.tune,
                     .on_plan = [&](const PlanEvent& event) { told.Update(log.Plan(event)); }}));
  GM_ASSIGN_OR_RETURN(Metadata metadata, RunMetadata(options, data.train));
  BatchPosition next;
  if (resumed) {
    GM_ASSIGN_OR_RETURN(const Progress progress, RestoreCheckpoint(*stored.file, model, trainer));
    GM_RETURN_IF_ERROR(loader.Seek(progress.next));
    GM_RETURN_IF_ERROR(checkpoints.TakeBest(stored.Text(kBestKey)));
    next = progress.next;
    stored.file.reset();
  }
  Profile profile;
  const std::string profile_path = absl::GetFlag(FLAGS_profile);
  if (!profile_path.empty()) {
    GM_RETURN_IF_ERROR(
        Annotate(profile.Write(profile_path), "--profile: "));  // an empty one, to fail now or not at all
    trainer.SetWatch(profile.Watch());
  }

  absl::PrintF(
      "%s\n%d training and %d test samples, %d classes; %s of %s, global batch %d, "
      "%s, %s, %s\n",
      Summary(model), data.train.size(), data.test.size(), data.classes, Count(epochs, "epoch"),
      Count(steps_per_epoch, "step"), global_batch, PrecisionName(*precision), device.ToString(),
      Count(NumThreads(), "thread"));
  if (*precision == Precision::kBf16 && !HasFastBf16(device)) {
    absl::PrintF("this processor has no bf16 instructions (AVX512_BF16): bf16 is slower here than f32\n");
  }
  if (run.schedule_first + run.schedule_steps < steps && absl::GetFlag(FLAGS_schedule) != "constant") {
    absl::PrintF("the schedule was made for %d steps and stays so; --restart_schedule makes another for the rest\n",
                 run.schedule_steps);
  }
  if (absl::GetFlag(FLAGS_validation_share) > 0) {
    absl::PrintF("%d training samples are held out for validation\n", data.validation.size());
  } else if (!absl::GetFlag(FLAGS_save_best).empty() || absl::GetFlag(FLAGS_patience) > 0) {
    absl::PrintF("the test set chooses the best; --validation_share 0.1 holds out training samples for that\n");
  }
  CatchInterrupts();

  const std::function<Metadata()> metadata_now = [&] {
    metadata[kFlagsKey] = FlagsText({kFixedFlags, kEpochsFlag, kComputingFlags, kFreeFlags});
    metadata[kRunKey] = run.Text();
    metadata[kBestKey] = checkpoints.BestText();
    return metadata;
  };
  Average loss_of_epoch, rate_of_epoch, rate;
  bool stopped_early = checkpoints.OutOfPatience();
  while (next.epoch < epochs && !stopped_early && !Interrupted()) {
    const Batch batch = loader.Next();
    const int64_t epoch = batch.position.epoch + 1;
    GM_ASSIGN_OR_RETURN(const StepReport report, trainer.Step(batch));
    GM_RETURN_IF_ERROR(told);
    next = batch.next;
    run.AddLoss(report.loss);
    GM_RETURN_IF_ERROR(log.Step(report, epoch, steps));
    const int64_t every = absl::GetFlag(FLAGS_statistics_every);
    if (model.moe().has_value() && every > 0 && report.step % every == 0) {
      GM_RETURN_IF_ERROR(log.Experts({*model.moe()->statistics()}, report.step));
    }
    const double samples = static_cast<double>(report.samples);
    loss_of_epoch.Add(report.loss * samples, samples);
    rate_of_epoch.Add(samples, report.seconds);
    rate.Add(samples, report.seconds);
    if (batch.last_in_epoch) {
      GM_ASSIGN_OR_RETURN(const Evaluation validation, trainer.Evaluate(data.validation));
      GM_RETURN_IF_ERROR(
          log.Evaluated(validation, trainer.steps(), epoch, epochs, loss_of_epoch.value(), rate_of_epoch.value()));
      loss_of_epoch = rate_of_epoch = Average();
      stopped_early = checkpoints.AfterValidation(validation, model, trainer, next, metadata_now);
    }
    checkpoints.AfterStep(model, trainer, next, metadata_now);
  }
  GM_RETURN_IF_ERROR(checkpoints.AtEnd(model, trainer, next, metadata_now()));
  if (Interrupted() && next.epoch < epochs) {
    const std::string save = absl::GetFlag(FLAGS_save);
    return absl::CancelledError(absl::StrCat("stopped after step ", trainer.steps(), "; ",
                                             save.empty() ? "there is no --save FILE to go on from"
                                                          : absl::StrCat("go on with: train_mlp --resume ", save)));
  }

  if (stopped_early) {
    absl::PrintF("stopped: no better validation in %d epochs\n", absl::GetFlag(FLAGS_patience));
  }
  absl::PrintF("trained %d steps in %.1f s, %.0f samples/s\n", trainer.steps(), rate.weight, rate.value());
  if (absl::GetFlag(FLAGS_hash)) {
    GM_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(model, run.loss_hash));
    absl::PrintF("training hash %016x\n", hash);
  }
  GM_ASSIGN_OR_RETURN(const Evaluation test, trainer.Evaluate(data.test));
  absl::PrintF("test accuracy %.4f\n", test.accuracy.value_or(0));
  if (!profile_path.empty()) {
    GM_RETURN_IF_ERROR(profile.Write(profile_path));
    absl::PrintF("\n%.1f s in recorded steps:\n%s", profile.seconds(), profile.Table());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gemmill::examples

int main(int argc, char** argv) {
  const std::set<std::string> given = gemmill::examples::GivenFlags(argc, argv);
  gemmill::examples::ParseFlags(argc, argv, "train_mlp trains a classifier of fully-connected layers.", "train_mlp.cc");
  return gemmill::examples::ExitCode(gemmill::examples::Train(given));
}
