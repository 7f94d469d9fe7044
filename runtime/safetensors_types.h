// The element types of safetensors files. For .cc files of Gemmill alone.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "gemmill/runtime/spec.h"

namespace gemmill {

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, as the reference library has it
inline constexpr char kSafetensorsMetadata[] = "__metadata__";

struct SafetensorsType {
  const char* name;
  int64_t bits;
  std::optional<DType> dtype = std::nullopt;
};

// In the order of the reference library, which writes the last first.
inline constexpr SafetensorsType kSafetensorsTypes[] = {
    {"BOOL", 8},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"U8", 8, DType::kU8},
    {"I8", 8},
    {"F8_E5M2", 8},
    {"F8_E4M3", 8},
    {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"I16", 16},
    {"U16", 16},
    {"F16", 16},
    {"BF16", 16, DType::kBf16},
    {"I32", 32, DType::kI32},
    {"U32", 32},
    {"F32", 32, DType::kF32},
    {"C64", 64},
    {"F64", 64, DType::kF64},
    {"I64", 64, DType::kI64},
    {"U64", 64},
};

}  // namespace gemmill
