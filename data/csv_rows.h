// The lexical half of CSV: text to rows of fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmill {

class CsvRows {
 public:
  CsvRows(absl::string_view text, char delimiter);

  // The next row that is not blank; false at the end. `line` is then where the row begins, counted from 1.
  absl::StatusOr<bool> Next(std::vector<std::string>& fields);
  int64_t line() const { return row_line_; }

 private:
  bool AtLineEnd() const;
  void SkipLineEnd();
  void SkipBlanks();
  absl::StatusOr<std::string> Quoted();
  absl::StatusOr<std::string> Plain();

  absl::string_view rest_;
  char delimiter_;
  int64_t line_ = 1;
  int64_t row_line_ = 0;
};

}  // namespace gemmill
