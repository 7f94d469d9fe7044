// From a DType at run time to a C++ type at compile time, and from stored values to the type they are computed in.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "gemmill/runtime/spec.h"

namespace gemmill::cpu {

// What values stored as T are computed in: f32 for bf16, T itself for the others.
template <typename T>
using ComputeType = std::conditional_t<std::is_same_v<T, bf16>, float, T>;

template <typename T>
ComputeType<T> Load(const T& stored) {
  return static_cast<ComputeType<T>>(stored);
}

template <typename T>
T Store(ComputeType<T> value) {
  return static_cast<T>(value);
}

template <typename T>
struct TypeTag {
  using Type = T;
};

// DispatchAny(dtype, [&](auto tag) { using T = typename decltype(tag)::Type; ... }): calls f with the tag of dtype's
// type.
template <typename F>
auto DispatchAny(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kBf16:
      return f(TypeTag<bf16>{});
    case DType::kF64:
      return f(TypeTag<double>{});
    case DType::kI32:
      return f(TypeTag<int32_t>{});
    case DType::kI64:
      return f(TypeTag<int64_t>{});
    case DType::kU8:
      return f(TypeTag<uint8_t>{});
  }
  __builtin_unreachable();
}

// As DispatchAny, where Infer allows f32, bf16 and f64 only.
template <typename F>
auto DispatchFloating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kBf16:
      return f(TypeTag<bf16>{});
    default:
      return f(TypeTag<double>{});
  }
}

// As DispatchAny, for an index: i32 or i64.
template <typename F>
auto DispatchIndex(DType dtype, F&& f) {
  return dtype == DType::kI32 ? f(TypeTag<int32_t>{}) : f(TypeTag<int64_t>{});
}

// Calls f with a tag of an unsigned type of as many bytes as dtype has, for ops that move values without looking at
// them.
template <typename F>
auto DispatchBytes(DType dtype, F&& f) {
  switch (SizeOf(dtype)) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    default:
      return f(TypeTag<uint64_t>{});
  }
}

// Calls f(std::integral_constant<Enum, e>{}) with the e that equals `value`, one of the first kCount of Enum (an enum
// or int).
template <typename Enum, int kCount, typename F>
auto DispatchEnum(Enum value, F&& f) {
  return [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    decltype(f(std::integral_constant<Enum, Enum{}>{})) result{};
    static_cast<void>(((static_cast<int>(value) == kIndex &&
                        (result = f(std::integral_constant<Enum, static_cast<Enum>(kIndex)>{}), true)) ||
                       ...));
    return result;
  }
  (std::make_integer_sequence<int, kCount>{});
}

}  // namespace gemmill::cpu
