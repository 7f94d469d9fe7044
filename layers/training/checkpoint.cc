#include "gemmill/layers/training/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/runtime/json.h"

namespace gemmill {
namespace {

constexpr char kTrainingKey[] = "gemmill.training";

// What the metadata has under kTrainingKey.
struct Training {
  Progress progress;
  int64_t global_batch = 0;
  int64_t micro_batch = 0;
  uint64_t seed = 0;
  std::string optimizer;
  int64_t optimizer_steps = 0;
};

std::string TrainingText(const Training& training) {
  const nlohmann::json text = {{"step", training.progress.steps},
                               {"epoch", training.progress.next.epoch},
                               {"first_sample", training.progress.next.first_sample},
                               {"global_batch", training.global_batch},
                               {"micro_batch", training.micro_batch},
                               {"seed", training.seed},
                               {"optimizer", training.optimizer},
                               {"optimizer_steps", training.optimizer_steps}};
  return JsonText(text, -1);
}

absl::StatusOr<Training> TrainingOf(const Safetensors& file) {
  const std::string* const text = file.Text(kTrainingKey);
  if (text == nullptr) {
    return InvalidArgument(file.path(), " is no checkpoint: its metadata has no ", kTrainingKey);
  }
  JsonFields fields(*text);
  Training training;
  fields.Take("step", training.progress.steps);
  fields.Take("epoch", training.progress.next.epoch);
  fields.Take("first_sample", training.progress.next.first_sample);
  fields.Take("global_batch", training.global_batch);
  fields.Take("micro_batch", training.micro_batch);
  fields.Take("seed", training.seed);
  fields.Take("optimizer", training.optimizer);
  fields.Take("optimizer_steps", training.optimizer_steps);
  fields.Require("step", training.progress.steps >= 0);
  fields.Require("optimizer_steps", training.optimizer_steps >= 0);
  if (fields.ok()) return training;
  return InvalidArgument(file.path(), ": ", kTrainingKey, " in its metadata has no valid ", fields.wrong(), ": ",
                         *text);
}

std::string StateName(const Optimizer::State& state) {
  return absl::StrCat(kOptimizerPrefix, state.kind, ".", state.parameter);
}

// Gives the file at `path` the name of its step too.
absl::Status KeepUnderItsStep(const std::string& path) {
  const absl::StatusOr<Safetensors> file = Safetensors::Open(path);
  if (!file.ok()) return absl::OkStatus();  // none, or nothing that could be resumed from
  const absl::StatusOr<Progress> progress = ProgressOf(*file);
  if (!progress.ok()) return absl::OkStatus();
  const std::string kept = absl::StrCat(path, ".step-", progress->steps);
  const std::string temporary = kept + ".link";
  std::remove(temporary.c_str());
  if (link(path.c_str(), temporary.c_str()) != 0 || std::rename(temporary.c_str(), kept.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot keep ", path, " as ", kept));
  }
  std::remove(temporary.c_str());  // renaming a file onto itself leaves both names
  return absl::OkStatus();
}

// Removes all but the `keep` youngest of the files `path`.step-S.
absl::Status RemoveOldest(const std::string& path, int64_t keep) {
  const std::filesystem::path whole(path);
  const std::string prefix = whole.filename().string() + ".step-";
  std::vector<std::tuple<int64_t, int64_t, int64_t, std::string>> found;  // by time, then step
  std::error_code error;
  const std::filesystem::path directory = whole.has_parent_path() ? whole.parent_path() : ".";
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t step = 0;
    struct stat status;
    if (!absl::StartsWith(name, prefix) || !absl::SimpleAtoi(name.substr(prefix.size()), &step)) continue;
    if (stat(entry->path().c_str(), &status) != 0) continue;
    found.emplace_back(status.st_mtim.tv_sec, status.st_mtim.tv_nsec, step, entry->path().string());
  }
  std::sort(found.begin(), found.end());
  for (int64_t i = 0; i + keep < std::ssize(found); ++i) {
    const std::string& oldest = std::get<3>(found[static_cast<size_t>(i)]);
    if (std::remove(oldest.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", oldest));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& path, const Module& model, const Trainer& trainer, BatchPosition next,
                            const Metadata& metadata, int64_t keep) {
  GM_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, Weights(model));
  for (const Optimizer::State& state : trainer.optimizer().state()) tensors.push_back({StateName(state), state.value});
  Metadata all = metadata;
  all["format"] = "pt";  // names and layouts are PyTorch's; the usual readers ask for this
  all[kTrainingKey] = TrainingText({.progress = {trainer.steps(), next},
                                    .global_batch = trainer.options().global_batch,
                                    .micro_batch = trainer.micro_batch(),
                                    .seed = trainer.options().seed,
                                    .optimizer = trainer.optimizer().Name(),
                                    .optimizer_steps = trainer.optimizer().steps()});
  if (keep > 0) GM_RETURN_IF_ERROR(KeepUnderItsStep(path));
  GM_RETURN_IF_ERROR(WriteSafetensors(path, tensors, all));
  return keep > 0 ? RemoveOldest(path, keep) : absl::OkStatus();
}

absl::StatusOr<Progress> ProgressOf(const Safetensors& file) {
  GM_ASSIGN_OR_RETURN(const Training training, TrainingOf(file));
  return training.progress;
}

absl::StatusOr<Progress> RestoreCheckpoint(const Safetensors& file, const Module& model, Trainer& trainer) {
  GM_ASSIGN_OR_RETURN(const Training training, TrainingOf(file));
  std::vector<std::string> faults;
  const auto same = [&](const char* what, const auto& stored, const auto& ours) {
    if (stored != ours) faults.push_back(absl::StrCat(what, " is ", ours, ", the checkpoint's ", stored));
  };
  same("the optimizer", training.optimizer, trainer.optimizer().Name());
  same("the seed", training.seed, trainer.options().seed);
  same("global_batch", training.global_batch, trainer.options().global_batch);

  std::vector<Optimizer::State> state;
  if (training.optimizer_steps > 0 && faults.empty()) {
    GM_ASSIGN_OR_RETURN(state, trainer.MakeOptimizerState());
  }
  std::set<std::string> known;
  for (const Optimizer::State& one : state) {
    const std::string name = StateName(one);
    known.insert(name);
    const SafetensorsEntry* const entry = file.Find(name);
    if (entry == nullptr) {
      faults.push_back(absl::StrCat(name, " is not there"));
    } else if (entry->dtype != one.value.dtype() || entry->shape != one.value.shape()) {
      faults.push_back(absl::StrCat(name, " is ", entry->ToString(), ", expected ", one.value.spec().ToString()));
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!faults.empty()) break;
    if (absl::StartsWith(entry.name, kOptimizerPrefix) && known.count(entry.name) == 0) {
      faults.push_back(absl::StrCat("the optimizer has no ", entry.name));
    }
  }
  if (!faults.empty()) {
    return InvalidArgument(file.path(), " is of another run: ", absl::StrJoin(faults, "; "));
  }
  GM_RETURN_IF_ERROR(LoadWeights(file, model));
  for (Optimizer::State& one : state) {
    GM_RETURN_IF_ERROR(file.ReadInto(StateName(one), one.value));
    one.value.buffer()->MarkWritten();
  }
  trainer.ResumeMicroBatch(training.micro_batch);
  trainer.SetSteps(training.progress.steps, training.optimizer_steps);
  return training.progress;
}

}  // namespace gemmill
