// JSON as Gemmill writes it. For .cc files of Gemmill alone: what is installed does not need the library.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace gemmill {

// Names come from users: bytes that are no UTF-8 are replaced instead of thrown about.
inline std::string JsonText(const nlohmann::json& value, int indent = 1) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace gemmill
