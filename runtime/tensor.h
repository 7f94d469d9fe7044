// Tensor: bytes with a Spec. A handle to a reference-counted, contiguous buffer on a device; copying a Tensor shares
// the bytes. No gradients and no math: those are Var's (autograd/var.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/spec.h"
#include "gemmill/runtime/status.h"

namespace gemmill {

// Bytes on a device, freed with the last reference. Alignment is 64 bytes.
class Buffer {
 public:
  // Uninitialised bytes; ResourceExhausted when the device has none left.
  static absl::StatusOr<std::shared_ptr<Buffer>> Allocate(int64_t bytes, Device device);
  // Zeros that take no memory until they are written (ReserveBytes).
  static absl::StatusOr<std::shared_ptr<Buffer>> Reserve(int64_t bytes, Device device);
  // Bytes that somebody else owns and keeps alive.
  static std::shared_ptr<Buffer> Borrow(void* data, int64_t bytes, Device device);

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // Whom the bytes count to (MemoryAccountScope); null: to nobody.
  const MemoryAccount* account() const { return account_.get(); }

  // Counts the writes in place (optimizer updates), so that a graph can tell that a value it recorded has changed.
  int64_t version() const { return version_; }
  void MarkWritten() { ++version_; }

 private:
  enum class Owner : uint8_t { kAllocation, kReservation, kSomebodyElse };
  Buffer(void* data, int64_t bytes, Device device, Owner owner);

  void* data_;
  int64_t bytes_;
  Device device_;
  Owner owner_;
  int64_t version_ = 0;
  std::shared_ptr<MemoryAccount> account_;
};

class Tensor {
 public:
  Tensor() = default;  // no bytes; valid() is false

  static absl::StatusOr<Tensor> Empty(const Spec& spec);  // uninitialised
  static absl::StatusOr<Tensor> Zeros(const Spec& spec);
  static absl::StatusOr<Tensor> Reserve(const Spec& spec);  // zeros, see Buffer::Reserve
  // A copy of `values`, whose count must be the shape's.
  template <typename T>
  static absl::StatusOr<Tensor> From(absl::Span<const T> values, const Shape& shape, Device device = {});
  template <typename T>
  static absl::StatusOr<Tensor> From(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return From(absl::Span<const T>(values), shape, device);
  }
  // A tensor over borrowed bytes, which must outlive it.
  static Tensor View(void* data, const Spec& spec);

  bool valid() const { return buffer_ != nullptr; }
  const Spec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  Device device() const { return spec_.device; }
  int64_t num_elements() const { return spec_.num_elements(); }

  // The address on the tensor's device. Only code of that device (runtime/cpu, runtime/cuda) may follow it.
  void* data() const { return buffer_ == nullptr ? nullptr : static_cast<char*>(buffer_->data()) + offset_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

  // The same bytes under another shape of as many elements.
  absl::StatusOr<Tensor> Reshaped(const Shape& shape) const;
  // Entries [start, stop) of dimension 0, which share this tensor's bytes; 0 <= start <= stop <= shape()[0].
  absl::StatusOr<Tensor> Rows(int64_t start, int64_t stop) const;
  // The values on the host, in order. T must be the dtype's C++ type.
  template <typename T>
  absl::StatusOr<std::vector<T>> ToVector() const;
  // Values of any dtype, converted.
  absl::StatusOr<std::vector<double>> ToDoubles() const;
  absl::StatusOr<Tensor> To(Device device) const;
  // Overwrites this tensor's bytes with those of `source`, which has the same shape and dtype.
  absl::Status CopyFrom(const Tensor& source);

 private:
  Tensor(std::shared_ptr<Buffer> buffer, Spec spec, int64_t offset = 0)
      : buffer_(std::move(buffer)), offset_(offset), spec_(std::move(spec)) {}
  static absl::StatusOr<Tensor> FromBytes(const void* host, int64_t count, const Spec& spec);
  absl::Status CheckRead(DType asked) const;
  // `count` values on the host; ResourceExhausted when it has no room for them.
  template <typename T>
  static absl::StatusOr<std::vector<T>> HostVector(int64_t count);

  std::shared_ptr<Buffer> buffer_;
  int64_t offset_ = 0;  // bytes
  Spec spec_;
};

template <typename T>
absl::StatusOr<Tensor> Tensor::From(absl::Span<const T> values, const Shape& shape, Device device) {
  return FromBytes(values.data(), static_cast<int64_t>(values.size()), Spec{shape, DTypeOf<T>::value, device});
}

template <typename T>
absl::StatusOr<std::vector<T>> Tensor::ToVector() const {
  GM_RETURN_IF_ERROR(CheckRead(DTypeOf<T>::value));
  GM_ASSIGN_OR_RETURN(std::vector<T> values, HostVector<T>(num_elements()));
  GM_RETURN_IF_ERROR(CopyToHost(data(), values.data(), spec_.bytes(), spec_.device));
  return values;
}

template <typename T>
absl::StatusOr<std::vector<T>> Tensor::HostVector(int64_t count) {
  GM_RETURN_IF_ERROR(CheckFits(count * static_cast<int64_t>(sizeof(T)), Device::Cpu()));
  return CatchExceptions(
      [&]() -> absl::StatusOr<std::vector<T>> { return std::vector<T>(static_cast<size_t>(count)); });
}

}  // namespace gemmill
