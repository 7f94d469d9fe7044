// The header of a safetensors file, from JSON that anybody may have written. Parsed event by event: nothing is built
// but what a header can hold, whatever the depth or the number of what is there instead.
#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/json.h"
#include "gemmill/runtime/safetensors.h"
#include "gemmill/runtime/safetensors_types.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

// What the file has may be as long as the file.
std::string Shortened(absl::string_view text) {
  constexpr size_t kShown = 100;
  return absl::StrCat(text.substr(0, kShown), text.size() > kShown ? "..." : "");
}

// A name of the file's, fit to be printed.
std::string Quoted(absl::string_view name) { return absl::StrCat("'", absl::CHexEscape(Shortened(name)), "'"); }

class HeaderReader {
 public:
  using Json = nlohmann::json;

  bool start_object(std::size_t /*unused*/) {
    if (place_ == Place::kStart) return Go(Place::kHeader);
    if (place_ == Place::kHeader && key_ == kSafetensorsMetadata) return Go(Place::kMetadata);
    if (place_ == Place::kHeader) {
      header_.entries.emplace_back().name = key_;
      begin_ = end_ = std::nullopt;
      seen_.clear();
      return Go(Place::kEntry);
    }
    return Unexpected("an object");
  }

  bool end_object() {
    if (place_ == Place::kEntry && !EndEntry()) return false;
    return Go(place_ == Place::kHeader ? Place::kEnd : Place::kHeader);
  }

  bool start_array(std::size_t /*unused*/) {
    if (place_ == Place::kEntry && key_ == "shape") return Go(Place::kShape);
    if (place_ == Place::kEntry && key_ == "data_offsets") return Go(Place::kOffsets);
    return Unexpected("an array");
  }

  bool end_array() {
    if (place_ == Place::kOffsets && !end_.has_value()) return Fail("expected two numbers");
    return Go(Place::kEntry);
  }

  bool key(std::string& key) {
    key_ = std::move(key);
    if (place_ == Place::kHeader && !names_.insert(key_).second) return Fail("it is there twice");
    if (place_ == Place::kMetadata && header_.metadata.contains(key_)) return Fail("it is there twice");
    if (place_ == Place::kEntry) {
      if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") {
        return Fail("unknown; expected dtype, shape and data_offsets");
      }
      if (!seen_.insert(key_).second) return Fail("it is there twice");
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(key_, std::move(value));
      return true;
    }
    if (place_ != Place::kEntry || key_ != "dtype") return Unexpected("a string");
    const auto* type = std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                                    [&](const SafetensorsType& known) { return known.name == value; });
    if (type == std::end(kSafetensorsTypes)) {
      return Fail(absl::StrCat(Quoted(value), " is no type of the format (F32, BF16, I64, ...)"));
    }
    type_ = type;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return Unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat(value, " is more than any file holds"));
    }
    const int64_t number = static_cast<int64_t>(value);
    if (place_ == Place::kShape) {
      header_.entries.back().shape.push_back(number);
    } else if (!begin_.has_value()) {
      begin_ = number;
    } else if (!end_.has_value()) {
      end_ = number;
    } else {
      return Fail("expected two numbers, not more");
    }
    return true;
  }
  bool number_integer(int64_t value) { return Unexpected(absl::StrCat("the negative number ", value)); }
  bool number_float(double /*unused*/, const std::string& text) {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40), ", which is no 64-bit integer,"));
  }
  bool boolean(bool value) { return Unexpected(value ? "true" : "false"); }
  bool null() { return Unexpected("null"); }
  bool binary(Json::binary_t& /*unused*/) { return Unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string& /*unused*/, const Json::exception& /*unused*/) {
    place_ = Place::kStart;
    return Fail(absl::StrCat("not JSON in UTF-8, at its byte ", position));
  }

  absl::StatusOr<SafetensorsHeader> Finish(bool parsed, int64_t data_bytes) {
    if (!parsed) return error_;
    std::sort(header_.entries.begin(), header_.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    int64_t end = 0;
    for (const SafetensorsEntry& entry : header_.entries) {
      if (entry.offset != end) {
        return InvalidArgument("tensor ", Quoted(entry.name), ", data_offsets: it begins at byte ", entry.offset,
                               entry.offset < end ? ", inside the one before it, which ends at "
                                                  : ", after a hole: the one before it ends at ",
                               end);
      }
      end += entry.bytes;  // data_offsets[1], which fits
    }
    if (end != data_bytes) {
      return InvalidArgument(end > data_bytes ? "truncated" : "trailing bytes", ": its tensors end at byte ", end,
                             " after the header, and the file has ", data_bytes);
    }
    return std::move(header_);
  }

 private:
  enum class Place : uint8_t { kStart, kHeader, kMetadata, kEntry, kShape, kOffsets, kEnd };

  bool Go(Place place) {
    place_ = place;
    return true;
  }

  bool Fail(absl::string_view what) {
    std::string where = "header";
    if (place_ == Place::kHeader) {
      where = key_ == kSafetensorsMetadata ? key_ : absl::StrCat("tensor ", Quoted(key_));
    } else if (place_ == Place::kMetadata) {
      where = absl::StrCat(kSafetensorsMetadata, ", ", Quoted(key_));
    } else if (place_ != Place::kStart) {
      where = absl::StrCat("tensor ", Quoted(header_.entries.back().name), ", ", Quoted(key_));
    }
    error_ = InvalidArgument(where, ": ", what);
    return false;
  }

  bool Unexpected(absl::string_view what) {
    const char* expected = "an object";
    if (place_ == Place::kMetadata || (place_ == Place::kEntry && key_ == "dtype")) expected = "a string";
    if (place_ == Place::kEntry && key_ != "dtype") expected = "an array of numbers";
    if (place_ == Place::kShape || place_ == Place::kOffsets) expected = "a number that is at least 0";
    return Fail(absl::StrCat("it has ", what, " where ", expected, " belongs"));
  }

  bool EndEntry() {
    SafetensorsEntry& entry = header_.entries.back();
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (seen_.count(field) > 0) continue;
      key_ = field;
      return Fail("missing");
    }
    entry.type = type_->name;
    entry.dtype = type_->dtype;
    key_ = "data_offsets";
    if (*begin_ > *end_) return Fail(absl::StrCat("it begins at ", *begin_, " and ends before, at ", *end_));
    entry.offset = *begin_;
    entry.bytes = *end_ - *begin_;
    key_ = "shape";
    const absl::StatusOr<int64_t> count = CheckedNumElements(entry.shape, type_->bits);
    if (!count.ok()) {
      return Fail(absl::StrCat(Shortened(entry.ToString()), " has more elements than 64 bits can count"));
    }
    const int64_t bits = *count * type_->bits;
    if (bits % 8 != 0) return Fail(absl::StrCat(Shortened(entry.ToString()), " takes no whole number of bytes"));
    if (bits / 8 != entry.bytes) {
      return Fail(absl::StrCat(Shortened(entry.ToString()), " takes ", bits / 8, " bytes, and data_offsets give it ",
                               entry.bytes));
    }
    return true;
  }

  Place place_ = Place::kStart;
  std::string key_;  // the last one
  SafetensorsHeader header_;
  std::set<std::string> names_;
  // Of the entry that is being read.
  std::set<std::string> seen_;
  const SafetensorsType* type_ = nullptr;
  std::optional<int64_t> begin_;
  std::optional<int64_t> end_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t data_bytes) {
  if (json.empty() || json[0] != '{') return InvalidArgument("header: it does not begin with '{'");
  return CatchExceptions([&] {
    HeaderReader reader;
    const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
    return reader.Finish(parsed, data_bytes);
  });
}

std::string SafetensorsEntry::ToString() const { return absl::StrCat(type, ShapeString(shape)); }

}  // namespace gemmill
