// Reading a host tensor of any dtype with one loop.
#pragma once

#include <utility>

#include "gemmill/runtime/spec.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

// fn(p), where p points to the values of `tensor` in their C++ type.
template <typename Fn>
void VisitValues(const Tensor& tensor, Fn&& fn) {
  const void* data = tensor.data();
  switch (tensor.dtype()) {
    case DType::kF32:
      return std::forward<Fn>(fn)(static_cast<const float*>(data));
    case DType::kBf16:
      return std::forward<Fn>(fn)(static_cast<const bf16*>(data));
    case DType::kF64:
      return std::forward<Fn>(fn)(static_cast<const double*>(data));
    case DType::kI32:
      return std::forward<Fn>(fn)(static_cast<const int32_t*>(data));
    case DType::kI64:
      return std::forward<Fn>(fn)(static_cast<const int64_t*>(data));
    case DType::kU8:
      return std::forward<Fn>(fn)(static_cast<const uint8_t*>(data));
  }
}

inline double AsDouble(bf16 value) { return static_cast<float>(value); }
template <typename T>
double AsDouble(T value) {
  return static_cast<double>(value);
}

}  // namespace gemmill
