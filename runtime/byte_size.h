// Sizes in bytes as people write them, in flags and options.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmill {

// "123", "512MB", "1.5GiB": a number and a unit, of B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of
// 1024), in either case; none is B. A fraction of a byte is rounded.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

// A size, or a share of `total` such as "50%", at most 100%. 0 is refused: nothing fits into it.
absl::StatusOr<int64_t> ParseByteBudget(absl::string_view text, int64_t total);

}  // namespace gemmill
