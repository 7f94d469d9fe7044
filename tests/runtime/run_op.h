// Runs one op on tensors made of plain numbers, for tests that compare it with a loop written out.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/infer.h"
#include "gemmill/runtime/stream.h"
#include "gemmill/runtime/tensor.h"
#include "gemmill/runtime/threads.h"
#include "gtest/gtest.h"

namespace gemmill {

// The value, or a failed test and an empty value.
template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  ADD_FAILURE() << value.status();
  return T{};
}

// The message of an error, which is expected.
inline std::string Message(const absl::Status& status) {
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

template <typename T>
Tensor TensorOf(const std::vector<double>& values, const Shape& shape) {
  std::vector<T> typed;
  for (double value : values) typed.push_back(static_cast<T>(value));
  return ValueOf(Tensor::From(typed, shape));
}

template <>
inline Tensor TensorOf<bf16>(const std::vector<double>& values, const Shape& shape) {
  std::vector<bf16> typed;
  for (double value : values) typed.push_back(bf16(static_cast<float>(value)));
  return ValueOf(Tensor::From(typed, shape));
}

inline Tensor MakeTensor(const std::vector<double>& values, const Shape& shape, DType dtype = DType::kF32) {
  switch (dtype) {
    case DType::kF32:
      return TensorOf<float>(values, shape);
    case DType::kBf16:
      return TensorOf<bf16>(values, shape);
    case DType::kF64:
      return TensorOf<double>(values, shape);
    case DType::kI32:
      return TensorOf<int32_t>(values, shape);
    case DType::kI64:
      return TensorOf<int64_t>(values, shape);
    case DType::kU8:
      return TensorOf<uint8_t>(values, shape);
  }
  return {};
}

inline std::vector<double> Doubles(const Tensor& tensor) { return ValueOf(tensor.ToDoubles()); }

inline absl::StatusOr<std::vector<Tensor>> TryOp(const Op& op, const std::vector<Tensor>& inputs) {
  return Execute(op, inputs, Stream::Default(Device::Cpu()));
}

// The outputs; an error fails the test and gives invalid tensors.
inline std::vector<Tensor> RunOp(const Op& op, const std::vector<Tensor>& inputs) {
  absl::StatusOr<std::vector<Tensor>> outputs = TryOp(op, inputs);
  if (outputs.ok()) return *std::move(outputs);
  ADD_FAILURE() << outputs.status();
  return std::vector<Tensor>(8);
}

// Uniform in [low, high), the same for a seed whatever the standard library.
inline std::vector<double> RandomDoubles(int64_t count, double low, double high, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = low + (high - low) * (static_cast<double>(generator()) * 0x1p-32);
  return values;
}

// Sets the number of threads while it lives.
class WithThreads {
 public:
  explicit WithThreads(int threads) : before_(NumThreads()) { EXPECT_TRUE(SetNumThreads(threads).ok()); }
  ~WithThreads() { EXPECT_TRUE(SetNumThreads(before_).ok()); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

}  // namespace gemmill
