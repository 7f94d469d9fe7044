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
  uint64_t hash = 14695981039346656037u;  // FNV-1a of the layer's path
  for (const char c : CurrentLayer()) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  DropoutOptions options = options_;
  options.stream = static_cast<int64_t>(hash + static_cast<uint64_t>(options_.stream));
  return ApplyDropout(x, options);
}

}  // namespace gemmill
