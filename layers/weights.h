// Weights in safetensors files, under the names and in the layouts that a Module gives its parameters: "fc1.weight"
// [outputs, inputs], "fc1.bias" [outputs], as PyTorch has them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/layers/linear.h"
#include "gemmill/layers/module.h"
#include "gemmill/runtime/safetensors.h"

namespace gemmill {

// Text that goes with the tensors of a file.
using Metadata = std::map<std::string, std::string>;

// What a file calls a parameter where it does not have the parameter's own name: parameter -> name in the file.
using WeightNames = std::map<std::string, std::string>;

// All parameters, frozen ones too. A tied one stands under the first of its names only.
absl::StatusOr<std::vector<NamedTensor>> Weights(const Module& model, const WeightNames& names = {});

absl::Status SaveWeights(const std::string& path, const Module& model, const Metadata& metadata = {},
                         const WeightNames& names = {});

// Overwrites the model's parameters with those of the file: each must be there (a tied one under any of its names), in
// its shape, and nothing else but a checkpoint's optimizer state; floating values are converted to the parameter's
// dtype. The error says all that is wrong, and then no parameter has changed.
absl::Status LoadWeights(const Safetensors& file, const Module& model, const WeightNames& names = {});

// What the names of an optimizer's state begin with (training/checkpoint.h).
inline constexpr char kOptimizerPrefix[] = "optimizer.";

// What a model file's metadata says of the model under the key "gemmill.model", so that it can be built again.
inline constexpr char kModelKey[] = "gemmill.model";
std::string ModelText(const MlpOptions& options);
// The options that a file's metadata has; an error that says what is missing or wrong.
absl::StatusOr<MlpOptions> MlpOptionsOf(const Safetensors& file);

// The model of a file and its weights.
absl::StatusOr<Mlp> LoadMlp(const Safetensors& file, Device device = {});

}  // namespace gemmill
