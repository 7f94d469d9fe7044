// Uses a classifier that train_mlp saved: accuracy on labelled images, or the classes of images without labels.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "gemmill/examples/model_text.h"
#include "gemmill/examples/run_options.h"
#include "gemmill/gemmill.h"

ABSL_FLAG(std::string, model, "", "file written by train_mlp --save or --save_best");
ABSL_FLAG(std::string, data, "", "directory with MNIST's four IDX files, .gz or not: accuracy on its test images");
ABSL_FLAG(std::string, input, "", "IDX file of images [samples, ...], .gz or not: a line with the class of each");
ABSL_FLAG(int64_t, batch, 1024, "samples at a time");
ABSL_FLAG(int64_t, threads, 0, "0: as many as this process may use");
ABSL_FLAG(std::string, device, "auto", "cpu, cuda or auto");

namespace gemmill::examples {
namespace {

// The images of an IDX file as a data set with field "x" [samples, pixels].
absl::StatusOr<Dataset> Images(const std::string& path) {
  GM_ASSIGN_OR_RETURN(const Tensor images, ReadIdx(path));
  if (images.spec().rank() < 2) {
    return InvalidArgument(path, ": images are ", images.spec().ToString(), ", expected [samples, ...]");
  }
  const int64_t samples = images.shape()[0];
  if (images.num_elements() == 0) return InvalidArgument(path, ": it has no images");
  GM_ASSIGN_OR_RETURN(Tensor rows, images.Reshaped({samples, images.num_elements() / samples}));
  return Dataset::Create({{"x", std::move(rows)}});
}

struct Prediction {
  std::vector<int64_t> classes;
  std::vector<double> probabilities;
};

absl::StatusOr<Prediction> Predict(const Mlp& model, const Dataset& images, Device device) {
  Prediction prediction;
  const int64_t batch_size = std::min(absl::GetFlag(FLAGS_batch), images.size());
  GM_ASSIGN_OR_RETURN(Loader loader, Loader::Create(images, {.global_batch = batch_size, .shuffle = false}));
  const NoGradScope no_grad;
  for (const Batch& batch : loader) {
    GM_RETURN_IF_ERROR(batch.status);
    const Var likelihood = Softmax(model(Inputs(batch.fields, device)["x"]), -1);
    GM_ASSIGN_OR_RETURN(const std::vector<int64_t> classes, ArgMax(likelihood, -1).ToVector<int64_t>());
    const Var likeliest = Max(likelihood, {.axes = {-1}});
    GM_ASSIGN_OR_RETURN(const std::vector<float> most, likeliest.ToVector<float>());
    prediction.classes.insert(prediction.classes.end(), classes.begin(), classes.end());
    prediction.probabilities.insert(prediction.probabilities.end(), most.begin(), most.end());
  }
  return prediction;
}

void PrintAccuracy(const std::vector<int64_t>& predicted, const std::vector<int64_t>& labels,
                   const std::vector<std::string>& names, int64_t classes) {
  std::vector<int64_t> count(static_cast<size_t>(classes)), right(count);
  int64_t all_right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const size_t label = static_cast<size_t>(labels[i]);
    ++count[label];
    if (predicted[i] != labels[i]) continue;
    ++right[label];
    ++all_right;
  }
  for (size_t c = 0; c < count.size(); ++c) {
    const std::string name = c < names.size() ? names[c] : absl::StrCat(c);
    absl::PrintF("class %-10s %6d of %6d right  %.4f\n", name, right[c], count[c],
                 count[c] == 0 ? 0 : static_cast<double>(right[c]) / static_cast<double>(count[c]));
  }
  absl::PrintF("test accuracy %.4f\n", static_cast<double>(all_right) / static_cast<double>(labels.size()));
}

absl::Status Run() {
  const std::string path = absl::GetFlag(FLAGS_model), data = absl::GetFlag(FLAGS_data),
                    input = absl::GetFlag(FLAGS_input);
  if (path.empty()) return InvalidArgument("--model is empty, expected a file that train_mlp --save wrote");
  if (data.empty() == input.empty()) return InvalidArgument("expected either --data DIR or --input FILE");
  GM_RETURN_IF_ERROR(CheckRange("batch", absl::GetFlag(FLAGS_batch), 1));
  GM_RETURN_IF_ERROR(CheckRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  if (absl::GetFlag(FLAGS_threads) > 0)
    GM_RETURN_IF_ERROR(SetNumThreads(static_cast<int>(absl::GetFlag(FLAGS_threads))));
  GM_ASSIGN_OR_RETURN(const Device device, Device::Parse(absl::GetFlag(FLAGS_device)));

  GM_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(path));
  GM_ASSIGN_OR_RETURN(const Mlp model, LoadMlp(file, device));
  GM_ASSIGN_OR_RETURN(const Normalization normalization, InputOf(file));
  GM_ASSIGN_OR_RETURN(const std::vector<std::string> names, ClassesOf(file));
  const int64_t classes = model.layers().back().weight().shape()[0];

  absl::StatusOr<Dataset> dataset =
      data.empty() ? Images(input) : LoadIdxDirectory(data, Split::kTest, {.classes = classes});
  GM_RETURN_IF_ERROR(dataset.status());
  GM_ASSIGN_OR_RETURN(const Tensor images, dataset->field("x"));
  const int64_t pixels = model.layers()[0].weight().shape()[1];
  if (images.shape()[1] != pixels) {
    return InvalidArgument(data.empty() ? input : data, ": images have ", images.shape()[1], " pixels, the model of ",
                           path, " takes ", pixels);
  }
  GM_ASSIGN_OR_RETURN(const Dataset prepared, dataset->WithNormalization("x", normalization));
  GM_ASSIGN_OR_RETURN(const Prediction prediction, Predict(model, prepared, device));
  if (data.empty()) {
    for (size_t i = 0; i < prediction.classes.size(); ++i) {
      const size_t c = static_cast<size_t>(prediction.classes[i]);
      absl::PrintF("image %d  class %s  probability %.4f\n", i, c < names.size() ? names[c] : absl::StrCat(c),
                   prediction.probabilities[i]);
    }
    return absl::OkStatus();
  }
  GM_ASSIGN_OR_RETURN(const Tensor label, dataset->field("label"));
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> labels, label.ToVector<int64_t>());
  PrintAccuracy(prediction.classes, labels, names, classes);
  return absl::OkStatus();
}

}  // namespace
}  // namespace gemmill::examples

int main(int argc, char** argv) {
  gemmill::examples::ParseFlags(argc, argv, "predict uses a classifier that train_mlp saved.", "predict.cc");
  return gemmill::examples::ExitCode(gemmill::examples::Run());
}
