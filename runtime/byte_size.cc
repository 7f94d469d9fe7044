#include "gemmill/runtime/byte_size.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr char kForms[] = "such as 1073741824, 512MB or 1.5GiB (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)";

struct Unit {
  const char* name;
  int64_t bytes;
};

// A unit that ends with another comes before it.
constexpr Unit kUnits[] = {{"KiB", int64_t{1} << 10},
                           {"MiB", int64_t{1} << 20},
                           {"GiB", int64_t{1} << 30},
                           {"TiB", int64_t{1} << 40},
                           {"KB", 1'000},
                           {"MB", 1'000'000},
                           {"GB", 1'000'000'000},
                           {"TB", 1'000'000'000'000},
                           {"B", 1}};

// Digits, with at most one point between them.
bool IsDecimal(absl::string_view text) {
  if (text.empty() || !absl::ascii_isdigit(text.front()) || !absl::ascii_isdigit(text.back())) return false;
  int points = 0;
  for (const char c : text) {
    if (c == '.') ++points;
    if (c != '.' && !absl::ascii_isdigit(c)) return false;
  }
  return points <= 1;
}

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  absl::string_view number = absl::StripAsciiWhitespace(text);
  int64_t unit = 1;
  for (const Unit& known : kUnits) {
    if (!absl::EndsWithIgnoreCase(number, known.name)) continue;
    number.remove_suffix(absl::string_view(known.name).size());
    number = absl::StripTrailingAsciiWhitespace(number);
    unit = known.bytes;
    break;
  }
  const std::string given = absl::CHexEscape(text.substr(0, 100));
  if (!IsDecimal(number)) return InvalidArgument("'", given, "' is no size in bytes; expected one ", kForms);
  int64_t whole = 0;
  if (absl::SimpleAtoi(number, &whole) && !__builtin_mul_overflow(whole, unit, &whole)) return whole;
  double parts = std::numeric_limits<double>::infinity();
  const bool fraction = absl::StrContains(number, '.') && absl::SimpleAtod(number, &parts);
  // 2^63 itself does not fit.
  if (!fraction || !(std::round(parts * static_cast<double>(unit)) < 0x1p63)) {
    return InvalidArgument("'", given, "' is more bytes than 64 bits can count; expected a size ", kForms);
  }
  return std::llround(parts * static_cast<double>(unit));
}

absl::StatusOr<int64_t> ParseByteBudget(absl::string_view text, int64_t total) {
  absl::string_view share = absl::StripAsciiWhitespace(text);
  const std::string given = absl::CHexEscape(text.substr(0, 100));
  int64_t bytes = 0;
  if (absl::ConsumeSuffix(&share, "%")) {
    share = absl::StripTrailingAsciiWhitespace(share);
    double percent = 0;
    if (!IsDecimal(share) || !absl::SimpleAtod(share, &percent) || percent > 100) {
      return InvalidArgument("'", given, "' is no share; expected one such as 50%, at most 100%");
    }
    bytes = percent == 100 ? total : static_cast<int64_t>(static_cast<double>(total) * percent / 100);
  } else {
    absl::StatusOr<int64_t> size = ParseByteSize(text);
    if (!size.ok()) return absl::Status(size.status().code(), absl::StrCat(size.status().message(), ", or 50%"));
    bytes = *size;
  }
  if (bytes == 0)
    return InvalidArgument("'", given, "' leaves no bytes; expected a share such as 50%, or a size ", kForms);
  return bytes;
}

}  // namespace gemmill
