// Normalization found from data.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/data/dataset.h"

namespace gemmill {

enum class Statistics {
  kPerFeature,  // one mean and deviation for each element of a sample
  kGlobal,      // one for the whole field
};

// The Normalization that gives field `name` of `train`, as stored, mean 0 and (population) standard deviation 1; a
// feature that never changes becomes 0. Apply it to every split, so that all are measured by the training set:
//   GM_ASSIGN_OR_RETURN(Normalization n, Standardize(train, "x"));
//   GM_ASSIGN_OR_RETURN(train, train.WithNormalization("x", n));
//   GM_ASSIGN_OR_RETURN(test, test.WithNormalization("x", n));
absl::StatusOr<Normalization> Standardize(const Dataset& train, absl::string_view name,
                                          Statistics statistics = Statistics::kPerFeature);

}  // namespace gemmill
