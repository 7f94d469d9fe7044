// Images to train a classifier on: what trains it, what tests it, and what validates it on the way.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

struct ImageData {
  Dataset train;
  Dataset test;
  Dataset validation;  // the test set, unless training samples are held out
  int64_t pixels = 0;
  int64_t classes = 0;
};

// MNIST's four files in `directory`. Of the training samples, the share `validation_share` is held out, the same ones
// each time.
absl::StatusOr<ImageData> LoadImages(const std::string& directory, double validation_share);

}  // namespace gemmill::examples
