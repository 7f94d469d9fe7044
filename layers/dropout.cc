#include "gemmill/layers/dropout.h"

#include "absl/strings/str_cat.h"

namespace gemmill {

absl::StatusOr<Dropout> Dropout::Create(const DropoutOptions& options) {
  if (!(options.rate >= 0 && options.rate < 1)) {
    return InvalidArgument("Dropout: rate is ", options.rate, ", expected 0 <= rate < 1");
  }
  return Dropout(options);
}

Dropout::Dropout(const DropoutOptions& options) : Module(absl::StrCat("Dropout ", options.rate)), options_(options) {}

Var Dropout::operator()(Located x) const {
  const LayerScope scope(name());
  return ApplyDropout(x, options_);
}

}  // namespace gemmill
