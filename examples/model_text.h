// What a classifier's model file says in its metadata beside the model itself: how its inputs are made of stored
// values, and what its classes are called.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

inline constexpr char kInputKey[] = "gemmill.input";
inline constexpr char kClassesKey[] = "gemmill.classes";

std::string InputText(const Normalization& input);
absl::StatusOr<Normalization> InputOf(const Safetensors& file);

std::string ClassesText(const std::vector<std::string>& names);
// Empty where the file has no names.
absl::StatusOr<std::vector<std::string>> ClassesOf(const Safetensors& file);

}  // namespace gemmill::examples
