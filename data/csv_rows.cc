#include "gemmill/data/csv_rows.h"

#include <utility>

#include "absl/strings/match.h"
#include "gemmill/runtime/status.h"

namespace gemmill {

CsvRows::CsvRows(absl::string_view text, char delimiter) : rest_(text), delimiter_(delimiter) {
  if (absl::StartsWith(rest_, "\xEF\xBB\xBF")) rest_.remove_prefix(3);
}

bool CsvRows::AtLineEnd() const { return rest_.empty() || rest_[0] == '\n' || rest_[0] == '\r'; }

void CsvRows::SkipLineEnd() {
  if (rest_.empty()) return;
  rest_.remove_prefix(absl::StartsWith(rest_, "\r\n") ? 2 : 1);
  ++line_;
}

void CsvRows::SkipBlanks() {
  while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t') && rest_[0] != delimiter_) rest_.remove_prefix(1);
}

absl::StatusOr<std::string> CsvRows::Quoted() {
  const int64_t start = line_;
  std::string field;
  rest_.remove_prefix(1);
  while (true) {
    if (rest_.empty()) return InvalidArgument("line ", start, ": a quoted field is not closed");
    const char c = rest_[0];
    if (absl::StartsWith(rest_, "\"\"")) {
      rest_.remove_prefix(1);
    } else if (c == '"') {
      break;
    }
    rest_.remove_prefix(1);
    field.push_back(c);
    // CRLF counts once, at its LF.
    if (c == '\n' || (c == '\r' && !absl::StartsWith(rest_, "\n"))) ++line_;
  }
  rest_.remove_prefix(1);
  SkipBlanks();
  if (!AtLineEnd() && rest_[0] != delimiter_) {
    return InvalidArgument("line ", line_, ": text after the closing quote of a field; a quote inside one is doubled");
  }
  return field;
}

absl::StatusOr<std::string> CsvRows::Plain() {
  std::string field;
  while (!AtLineEnd() && rest_[0] != delimiter_) {
    if (rest_[0] == '"') {
      return InvalidArgument("line ", line_,
                             ": a quote in a field that does not begin with one; quote the whole field");
    }
    field.push_back(rest_[0]);
    rest_.remove_prefix(1);
  }
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.pop_back();
  return field;
}

absl::StatusOr<bool> CsvRows::Next(std::vector<std::string>& fields) {
  fields.clear();
  for (SkipBlanks(); AtLineEnd(); SkipBlanks()) {
    if (rest_.empty()) return false;
    SkipLineEnd();
  }
  row_line_ = line_;
  while (true) {
    SkipBlanks();
    const bool quoted = !rest_.empty() && rest_[0] == '"';
    GM_ASSIGN_OR_RETURN(std::string field, quoted ? Quoted() : Plain());
    fields.push_back(std::move(field));
    if (AtLineEnd()) break;
    rest_.remove_prefix(1);
  }
  SkipLineEnd();
  return true;
}

}  // namespace gemmill
