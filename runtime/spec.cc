#include "gemmill/runtime/spec.h"

#include <limits>

#include "absl/strings/str_join.h"
#include "gemmill/runtime/status.h"

namespace gemmill {

int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

bool IsFloating(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF64; }

std::string ShapeString(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

int64_t NumElements(const Shape& shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t dimension : shape) {
    empty = empty || dimension == 0;
    if (__builtin_mul_overflow(count, dimension, &count)) count = std::numeric_limits<int64_t>::max();
  }
  return empty ? 0 : count;
}

absl::StatusOr<int64_t> CheckedNumElements(const Shape& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  bool empty = false;
  for (int64_t dimension : shape) {
    if (dimension < 0) return InvalidArgument("shape ", ShapeString(shape), " has a negative dimension");
    empty = empty || dimension == 0;
  }
  if (empty) return 0;
  for (int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return InvalidArgument("shape ", ShapeString(shape), " has more elements than 64 bits can count");
    }
  }
  return bytes / element_bytes;
}

std::string Device::ToString() const { return kind == Kind::kCpu ? "cpu" : absl::StrCat("cuda:", index); }

std::string Spec::ToString() const { return absl::StrCat(DTypeName(dtype), ShapeString(shape)); }

}  // namespace gemmill
