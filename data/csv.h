// CSV (RFC 4180, and what spreadsheets and programs really write): quoted fields with commas, newlines and doubled
// quotes; LF, CRLF or CR; with or without a final newline and a UTF-8 byte order mark; blank lines and blanks around
// fields are left out. Anything doubtful is an error that names line and column: never a guess, never a silently
// missing row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/data/dataset.h"

namespace gemmill {

// A column by the name that the header gives it, or by its index: 0 is the first, -1 the last.
using CsvColumn = std::variant<std::string, int64_t>;

enum class CsvHeader {
  // Yes if a column is asked for by name, or if every field of the first row can only be a name: it is not empty, no
  // number, and does not begin as numbers do ("1.2.3", "5 cm"). Any other first row is data, and an error where that
  // cannot be.
  kAuto,
  kYes,
  kNo,
};

struct CsvOptions {
  // One of the two must be set: the column that holds the class, or one or several that hold regression targets. All
  // other columns are features, in their order.
  std::optional<CsvColumn> label = {};
  std::vector<CsvColumn> targets = {};
  char delimiter = ',';
  CsvHeader header = CsvHeader::kAuto;
  // What the labels may be, in the order of their numbers; for a test set, the training set's class_names(). Without
  // it, labels that are all integers are taken as they are, and others numbered in sorted order.
  std::vector<std::string> class_names = {};
  // Refuse nan and infinity.
  bool check_finite = true;
};

// Fields: "x" f32 [samples, features], and "label" i64 [samples] or "target" f32 [samples, targets]. Errors begin with
// the path.
absl::StatusOr<Dataset> ReadCsv(const std::string& path, const CsvOptions& options);

// The same from text in memory; errors begin with `name`.
absl::StatusOr<Dataset> ParseCsv(absl::string_view text, absl::string_view name, const CsvOptions& options);

}  // namespace gemmill
