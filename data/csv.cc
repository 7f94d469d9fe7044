#include "gemmill/data/csv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "gemmill/data/byte_stream.h"
#include "gemmill/data/csv_rows.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

// Text from a file, fit for a message.
std::string Shown(absl::string_view text) {
  constexpr size_t kLongest = 40;
  return absl::StrCat("'", absl::Utf8SafeCEscape(text.substr(0, kLongest)), text.size() > kLongest ? "..." : "", "'");
}

std::string ShownColumn(const CsvColumn& column) {
  const std::string* name = std::get_if<std::string>(&column);
  return name != nullptr ? Shown(*name) : absl::StrCat("index ", std::get<int64_t>(column));
}

// A decimal number, nan and infinity among them; SimpleAtod would take hexadecimal ones too.
bool IsNumber(absl::string_view text, double* value) {
  return text.find_first_of("xX") == absl::string_view::npos && absl::SimpleAtod(text, value);
}

// Whether a field can only be a column's name; one that is empty or begins as numbers do may be data gone wrong.
bool IsSurelyName(absl::string_view text) {
  double ignored;
  if (text.empty() || IsNumber(text, &ignored)) return false;
  const size_t first = text.find_first_not_of("+-.");
  return first == absl::string_view::npos || !absl::ascii_isdigit(static_cast<unsigned char>(text[first]));
}

absl::StatusOr<float> ParseNumber(absl::string_view text, bool check_finite) {
  double value;
  if (text.empty()) return InvalidArgument("the field is empty, expected a number");
  if (!IsNumber(text, &value)) return InvalidArgument(Shown(text), " is not a number");
  if (!std::isfinite(value) && check_finite) return InvalidArgument(Shown(text), " is not a finite number");
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
    return InvalidArgument(Shown(text), " is too large for f32");
  }
  return static_cast<float>(value);
}

// What each column is for.
class Columns {
 public:
  // Decides from the options and the first row, which is the header if has_header() then says so.
  static absl::StatusOr<Columns> Create(const std::vector<std::string>& first_row, const CsvOptions& options) {
    Columns columns;
    columns.count_ = static_cast<int64_t>(first_row.size());
    std::vector<CsvColumn> asked = options.targets;
    if (options.label.has_value()) asked.push_back(*options.label);
    const bool by_name =
        std::any_of(asked.begin(), asked.end(), [](const CsvColumn& column) { return column.index() == 0; });
    if (by_name && options.header == CsvHeader::kNo) {
      return InvalidArgument("a column is asked for by name, but header is kNo");
    }
    columns.has_header_ = by_name || options.header == CsvHeader::kYes;
    if (columns.has_header_) GM_RETURN_IF_ERROR(columns.SetNames(first_row));
    GM_RETURN_IF_ERROR(columns.Resolve(asked));
    if (!columns.has_header_ && options.header == CsvHeader::kAuto) {
      columns.has_header_ = std::all_of(first_row.begin(), first_row.end(), IsSurelyName);
      if (columns.has_header_) GM_RETURN_IF_ERROR(columns.SetNames(first_row));
    }
    return columns;
  }

  int64_t count() const { return count_; }
  bool has_header() const { return has_header_; }
  const std::vector<int64_t>& asked() const { return asked_; }
  const std::vector<int64_t>& features() const { return features_; }

  // "column 'width'", or "column index 2" where there is no header.
  std::string Describe(int64_t column) const {
    return names_.empty() ? absl::StrCat("column index ", column) : absl::StrCat("column ", Shown(names_[column]));
  }

 private:
  absl::Status SetNames(const std::vector<std::string>& names) {
    std::map<std::string, int64_t> seen;
    for (int64_t i = 0; i < count_; ++i) {
      const auto [first, is_new] = seen.emplace(names[i], i);
      if (!is_new) {
        return InvalidArgument("the columns of index ", first->second, " and ", i, " are both named ", Shown(names[i]));
      }
    }
    names_ = names;
    return absl::OkStatus();
  }

  absl::Status Resolve(const std::vector<CsvColumn>& asked) {
    std::vector<bool> taken(static_cast<size_t>(count_), false);
    for (const CsvColumn& column : asked) {
      GM_ASSIGN_OR_RETURN(const int64_t index, Find(column));
      if (taken[index]) return InvalidArgument("column ", ShownColumn(column), " is asked for twice");
      taken[index] = true;
      asked_.push_back(index);
    }
    for (int64_t i = 0; i < count_; ++i) {
      if (!taken[i]) features_.push_back(i);
    }
    if (features_.empty()) return InvalidArgument("no column is left for features");
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Find(const CsvColumn& column) const {
    if (const int64_t* index = std::get_if<int64_t>(&column)) {
      if (*index >= -count_ && *index < count_) return *index < 0 ? *index + count_ : *index;
      return OutOfRange("there is no column of index ", *index, " in a file of ", count_, " columns");
    }
    const auto found = std::find(names_.begin(), names_.end(), std::get<std::string>(column));
    if (found != names_.end()) return found - names_.begin();
    std::string known;
    for (size_t i = 0; i < names_.size() && i < 20; ++i) absl::StrAppend(&known, i == 0 ? "" : ", ", Shown(names_[i]));
    return absl::NotFoundError(absl::StrCat("there is no column ", ShownColumn(column), "; there is ", known,
                                            names_.size() > 20 ? ", ..." : ""));
  }

  int64_t count_ = 0;
  bool has_header_ = false;
  std::vector<std::string> names_;
  std::vector<int64_t> asked_;  // the label's, or the targets' in the order asked for
  std::vector<int64_t> features_;
};

// Turns the texts of a label column into numbers.
class Labels {
 public:
  explicit Labels(std::vector<std::string> class_names)
      : names_(std::move(class_names)), names_given_(!names_.empty()) {
    for (size_t i = 0; i < names_.size(); ++i) numbers_.emplace(names_[i], static_cast<int64_t>(i));
  }

  absl::Status Add(const std::string& text, int64_t line) {
    if (text.empty()) return InvalidArgument("the field is empty, expected a class");
    if (names_given_) {
      const auto found = numbers_.find(text);
      if (found == numbers_.end()) {
        return InvalidArgument(Shown(text), " is none of the ", names_.size(), " classes given");
      }
      values_.push_back(found->second);
      return absl::OkStatus();
    }
    double number;
    int64_t value = 0;
    const bool is_integer = absl::SimpleAtoi(text, &value);
    if (!is_integer && IsNumber(text, &number) && std::isfinite(number)) {
      return InvalidArgument(Shown(text), " is a number but no integer, so no class; for regression ask for targets");
    }
    if (first_line_ == 0) first_line_ = line;
    if (first_line_ == line) integers_ = is_integer;
    if (is_integer != integers_) {
      return InvalidArgument(Shown(text), is_integer ? " is an integer" : " is no integer",
                             ", unlike the class in line ", first_line_, "; if both are right, list class_names");
    }
    if (is_integer) values_.push_back(value);
    if (!is_integer) texts_.push_back(text);
    return absl::OkStatus();
  }

  std::vector<int64_t> Numbers() {
    if (texts_.empty()) return values_;
    for (const std::string& text : texts_) numbers_.emplace(text, 0);
    for (auto& [name, number] : numbers_) {
      number = static_cast<int64_t>(names_.size());
      names_.push_back(name);
    }
    for (const std::string& text : texts_) values_.push_back(numbers_.at(text));
    return values_;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  bool names_given_;
  std::map<std::string, int64_t> numbers_;  // of the names, sorted
  bool integers_ = false;
  int64_t first_line_ = 0;
  std::vector<std::string> texts_;
  std::vector<int64_t> values_;
};

absl::Status CheckOptions(absl::string_view text, const CsvOptions& options) {
  if (options.label.has_value() == !options.targets.empty()) {
    return InvalidArgument("set either label or targets, the column or columns to be predicted");
  }
  if (absl::string_view("\"\r\n", 4).find(options.delimiter) != absl::string_view::npos) {
    return InvalidArgument("the delimiter is character ", static_cast<int>(options.delimiter),
                           ", expected no quote, line end or NUL");
  }
  if (IsGzip(text)) return InvalidArgument("this is gzip data; unpack it first");
  return absl::OkStatus();
}

absl::StatusOr<Dataset> Parse(absl::string_view text, const CsvOptions& options) {
  GM_RETURN_IF_ERROR(CheckOptions(text, options));
  CsvRows rows(text, options.delimiter);
  std::vector<std::string> row;
  GM_ASSIGN_OR_RETURN(bool more, rows.Next(row));
  if (!more) return InvalidArgument("the file is empty");
  const int64_t first_line = rows.line();
  const absl::StatusOr<Columns> created = Columns::Create(row, options);
  if (!created.ok()) return Annotate(created.status(), "line ", rows.line(), ": ");
  const Columns& columns = *created;
  if (columns.has_header()) {
    GM_ASSIGN_OR_RETURN(more, rows.Next(row));
    if (!more) return InvalidArgument("there is no row after the header");
  }

  std::vector<float> x;
  std::vector<float> targets;
  Labels labels(options.class_names);
  const auto add_numbers = [&](const std::vector<int64_t>& which, std::vector<float>& values) -> absl::Status {
    for (int64_t column : which) {
      const absl::StatusOr<float> value = ParseNumber(row[column], options.check_finite);
      if (!value.ok()) {
        const bool maybe_header = rows.line() == first_line && options.header == CsvHeader::kAuto;
        return InvalidArgument("line ", rows.line(), ", ", columns.Describe(column), ": ", value.status().message(),
                               maybe_header ? "; if this line is a header, set header to kYes" : "");
      }
      values.push_back(*value);
    }
    return absl::OkStatus();
  };
  int64_t samples = 0;
  for (; more; ++samples) {
    if (static_cast<int64_t>(row.size()) != columns.count()) {
      return InvalidArgument("line ", rows.line(), " has ", row.size(), " fields, expected ", columns.count(),
                             " as in the first row");
    }
    GM_RETURN_IF_ERROR(add_numbers(columns.features(), x));
    if (options.label.has_value()) {
      const int64_t column = columns.asked()[0];
      GM_RETURN_IF_ERROR(
          Annotate(labels.Add(row[column], rows.line()), "line ", rows.line(), ", ", columns.Describe(column), ": "));
    } else {
      GM_RETURN_IF_ERROR(add_numbers(columns.asked(), targets));
    }
    GM_ASSIGN_OR_RETURN(more, rows.Next(row));
  }

  std::vector<Field> fields(2);
  GM_ASSIGN_OR_RETURN(Tensor x_values, Tensor::From(x, {samples, static_cast<int64_t>(columns.features().size())}));
  fields[0] = {"x", std::move(x_values)};
  if (options.label.has_value()) {
    GM_ASSIGN_OR_RETURN(Tensor values, Tensor::From(labels.Numbers(), {samples}));
    fields[1] = {"label", std::move(values)};
  } else {
    GM_ASSIGN_OR_RETURN(Tensor values, Tensor::From(targets, {samples, static_cast<int64_t>(columns.asked().size())}));
    fields[1] = {"target", std::move(values)};
  }
  return Dataset::Create(std::move(fields), {.check_finite = options.check_finite, .class_names = labels.names()});
}

}  // namespace

absl::StatusOr<Dataset> ParseCsv(absl::string_view text, absl::string_view name, const CsvOptions& options) {
  absl::StatusOr<Dataset> dataset = CatchExceptions([&] { return Parse(text, options); });
  if (!dataset.ok()) return Annotate(dataset.status(), name, ": ");
  return dataset;
}

absl::StatusOr<Dataset> ReadCsv(const std::string& path, const CsvOptions& options) {
  GM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseCsv(text, path, options);
}

}  // namespace gemmill
