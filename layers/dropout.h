// Dropout as a layer.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/layers/module.h"

namespace gemmill {

// In training drops elements with probability `rate` and scales the others by 1 / (1 - rate): Srivastava et al. (2014).
// In evaluation, the identity. Its place in the model (the path of its layer) and `stream` tell it from other dropouts;
// outside any model, and where one layer is used twice, only `stream` does.
class Dropout : public Module {
 public:
  static absl::StatusOr<Dropout> Create(const DropoutOptions& options);
  Var operator()(Located x) const;

 private:
  explicit Dropout(const DropoutOptions& options);

  DropoutOptions options_;
};

}  // namespace gemmill
