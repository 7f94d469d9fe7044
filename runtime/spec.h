// What a value is without its bytes: DType, Shape, Device and Spec, the three together.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmill {

enum class DType : uint8_t { kF32, kBf16, kF64, kI32, kI64, kU8 };

// 16 bits of storage, the upper half of an f32. All arithmetic is done in f32; storing rounds to nearest even.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  constexpr explicit bf16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
    // A NaN keeps a set mantissa bit, which rounding could carry away.
    bits = static_cast<uint16_t>((word & 0x7FFFFFFF) > 0x7F800000 ? (word >> 16) | 0x40 : rounded);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBf16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

int64_t SizeOf(DType dtype);         // bytes of one element
const char* DTypeName(DType dtype);  // "f32", "bf16", ...
bool IsFloating(DType dtype);        // f32, bf16, f64

// Dimensions, outermost first. {} is a scalar. Tensors are always contiguous in this order.
using Shape = absl::InlinedVector<int64_t, 6>;

std::string ShapeString(const Shape& shape);  // "[32, 784]"
int64_t NumElements(const Shape& shape);      // product of the dimensions; 1 for a scalar; at most INT64_MAX
// The product, or an error for a negative dimension or a product (times `element_bytes`) beyond int64.
absl::StatusOr<int64_t> CheckedNumElements(const Shape& shape, int64_t element_bytes = 1);

// Where bytes live and ops run.
struct Device {
  enum class Kind : uint8_t { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;

  static Device Cpu() { return {}; }
  // CUDA if this build has it and a usable GPU is present, else the CPU.
  static absl::StatusOr<Device> Default();
  // "cpu", "cuda" or "auto" (Default). An error says why a GPU cannot be used.
  static absl::StatusOr<Device> Parse(absl::string_view name);

  std::string ToString() const;  // "cpu", "cuda:0"
  bool operator==(const Device&) const = default;
};

struct Spec {
  Shape shape = {};
  DType dtype = DType::kF32;
  Device device = {};

  int64_t num_elements() const { return NumElements(shape); }
  int64_t bytes() const { return num_elements() * SizeOf(dtype); }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  std::string ToString() const;  // "f32[32, 784]"
  bool operator==(const Spec&) const = default;
};

}  // namespace gemmill
