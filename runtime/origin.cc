#include "gemmill/runtime/origin.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace gemmill {

std::string Caller::ToString() const {
  const char* slash = std::strrchr(file, '/');
  return absl::StrCat(slash == nullptr ? file : slash + 1, ":", line);
}

const char* RoleName(GemmRole role) {
  static constexpr const char* kNames[] = {"forward", "dgrad", "wgrad"};
  return kNames[static_cast<int>(role)];
}

std::string Origin::ToString() const {
  return absl::StrCat(caller.ToString(), layer.empty() ? "" : ", layer ", layer,
                      role == GemmRole::kForward ? "" : absl::StrCat(" (", RoleName(role), ")"));
}

}  // namespace gemmill
