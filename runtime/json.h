// JSON as Gemmill writes and reads it. For .cc files of Gemmill alone: what is installed does not need the library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace gemmill {

// Names come from users: bytes that are no UTF-8 are replaced instead of thrown about.
inline std::string JsonText(const nlohmann::json& value, int indent = 1) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// A discarded value where `text` is no JSON.
inline nlohmann::json ParseJson(absl::string_view text) {
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// The member of an object, or nothing where there is none of exactly that kind: a string, a bool, a whole number of
// T's range, any number for a floating T, or a list of such.
template <typename T>
std::optional<T> JsonAs(const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (value.is_string()) return value.get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (value.is_boolean()) return value.get<bool>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (value.is_number()) return value.get<T>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
    if (value.is_number_integer()) return value.get<int64_t>();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    if (value.is_number_unsigned()) return value.get<uint64_t>();
  } else {
    if (!value.is_array()) return std::nullopt;
    T list;
    for (const nlohmann::json& item : value) {
      const std::optional<typename T::value_type> entry = JsonAs<typename T::value_type>(item);
      if (!entry.has_value()) return std::nullopt;
      list.push_back(*entry);
    }
    return list;
  }
  return std::nullopt;
}
template <typename T>
std::optional<T> JsonValue(const nlohmann::json& object, const std::string& key) {
  if (!object.is_object() || !object.contains(key)) return std::nullopt;
  return JsonAs<T>(object[key]);
}

// Takes the fields of a JSON object that somebody else may have written, and keeps the names of those that are not
// there or not of their kind.
class JsonFields {
 public:
  explicit JsonFields(absl::string_view text) : object_(ParseJson(text)) {}

  // Whether there is such a field at all, and it; for what may be left out.
  bool Has(const char* name) const { return object_.is_object() && object_.contains(name); }
  // Those of an object inside this one.
  JsonFields Inside(const char* name) const {
    JsonFields inner("");
    if (Has(name)) inner.object_ = object_[name];
    return inner;
  }

  template <typename T>
  void Take(const char* name, T& value) {
    std::optional<T> found = JsonValue<T>(object_, name);
    Require(name, found.has_value());
    if (found.has_value()) value = *std::move(found);
  }
  // For what a field must be beside its kind.
  void Require(const char* name, bool valid) {
    if (!valid) wrong_.emplace_back(name);
  }
  bool ok() const { return wrong_.empty(); }
  std::string wrong() const { return absl::StrJoin(wrong_, ", "); }

 private:
  nlohmann::json object_;
  std::vector<std::string> wrong_;
};

}  // namespace gemmill
