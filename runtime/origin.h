// Origin: where a Step came from. Reports and errors name it.
#pragma once

#include <cstdint>
#include <string>

namespace gemmill {

// A place in the user's source, captured by default arguments.
struct Caller {
  const char* file = "";
  int line = 0;
  static Caller Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  std::string ToString() const;  // "train.cc:12"
};

// Which GEMM of a layer an op is (README, "architecture").
enum class GemmRole : uint8_t { kForward, kDgrad, kWgrad };
const char* RoleName(GemmRole role);

struct Origin {
  std::string layer = {};  // "mlp.fc1"; empty outside any layer
  GemmRole role = GemmRole::kForward;
  Caller caller = {};
  std::string ToString() const;  // "train.cc:12, layer mlp.fc1"
};

}  // namespace gemmill
