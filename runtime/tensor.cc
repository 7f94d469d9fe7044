#include "gemmill/runtime/tensor.h"

#include <cstring>
#include <utility>

namespace gemmill {

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Allocate(int64_t bytes, Device device) {
  GM_ASSIGN_OR_RETURN(void* data, AllocateBytes(bytes, device));
  std::shared_ptr<Buffer> buffer(new Buffer(data, bytes, device, Owner::kAllocation));
  buffer->account_ = MemoryAccountScope::Current();
  if (buffer->account_ != nullptr) buffer->account_->Add(bytes);
  return buffer;
}

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Reserve(int64_t bytes, Device device) {
  GM_ASSIGN_OR_RETURN(void* data, ReserveBytes(bytes, device));
  return std::shared_ptr<Buffer>(new Buffer(data, bytes, device, Owner::kReservation));
}

std::shared_ptr<Buffer> Buffer::Borrow(void* data, int64_t bytes, Device device) {
  return std::shared_ptr<Buffer>(new Buffer(data, bytes, device, Owner::kSomebodyElse));
}

Buffer::Buffer(void* data, int64_t bytes, Device device, Owner owner)
    : data_(data), bytes_(bytes), device_(device), owner_(owner) {}

Buffer::~Buffer() {
  if (owner_ == Owner::kAllocation) FreeBytes(data_, bytes_, device_);
  if (account_ != nullptr) account_->Subtract(bytes_);
  if (owner_ == Owner::kReservation) UnreserveBytes(data_, bytes_, device_);
}

absl::StatusOr<Tensor> Tensor::Empty(const Spec& spec) {
  GM_RETURN_IF_ERROR(CheckedNumElements(spec.shape, SizeOf(spec.dtype)).status());
  GM_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, Buffer::Allocate(spec.bytes(), spec.device));
  return Tensor(std::move(buffer), spec);
}

absl::StatusOr<Tensor> Tensor::Zeros(const Spec& spec) {
  GM_ASSIGN_OR_RETURN(const Tensor host, Empty(Spec{spec.shape, spec.dtype, Device::Cpu()}));
  // All-zero bytes are the zero of every dtype.
  std::memset(host.data(), 0, static_cast<size_t>(spec.bytes()));
  return host.To(spec.device);
}

absl::StatusOr<Tensor> Tensor::Reserve(const Spec& spec) {
  GM_RETURN_IF_ERROR(CheckedNumElements(spec.shape, SizeOf(spec.dtype)).status());
  GM_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, Buffer::Reserve(spec.bytes(), spec.device));
  return Tensor(std::move(buffer), spec);
}

Tensor Tensor::View(void* data, const Spec& spec) {
  return Tensor(Buffer::Borrow(data, spec.bytes(), spec.device), spec);
}

absl::StatusOr<Tensor> Tensor::FromBytes(const void* host, int64_t count, const Spec& spec) {
  GM_ASSIGN_OR_RETURN(const int64_t expected, CheckedNumElements(spec.shape, SizeOf(spec.dtype)));
  if (count != expected) {
    return InvalidArgument(count, " values given for shape ", ShapeString(spec.shape), ", which has ", expected);
  }
  GM_ASSIGN_OR_RETURN(Tensor tensor, Empty(spec));
  GM_RETURN_IF_ERROR(CopyFromHost(host, tensor.data(), spec.bytes(), spec.device));
  return tensor;
}

absl::Status Tensor::CheckRead(DType asked) const {
  if (!valid()) return absl::FailedPreconditionError("an empty Tensor has no values to read");
  if (asked != dtype()) {
    return InvalidArgument("a tensor of ", DTypeName(dtype()), " was read as ", DTypeName(asked));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Tensor::ToDoubles() const {
  const auto convert = [this]<typename T>(T) -> absl::StatusOr<std::vector<double>> {
    GM_ASSIGN_OR_RETURN(const std::vector<T> values, ToVector<T>());
    GM_ASSIGN_OR_RETURN(std::vector<double> doubles, HostVector<double>(num_elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, bf16>) {
        doubles[i] = static_cast<float>(values[i]);
      } else {
        doubles[i] = static_cast<double>(values[i]);
      }
    }
    return doubles;
  };
  switch (dtype()) {
    case DType::kF32:
      return convert(float{});
    case DType::kBf16:
      return convert(bf16{});
    case DType::kF64:
      return convert(double{});
    case DType::kI32:
      return convert(int32_t{});
    case DType::kI64:
      return convert(int64_t{});
    case DType::kU8:
      return convert(uint8_t{});
  }
  return absl::InternalError("unknown dtype");
}

absl::StatusOr<Tensor> Tensor::Reshaped(const Shape& shape) const {
  GM_ASSIGN_OR_RETURN(const int64_t count, CheckedNumElements(shape, SizeOf(dtype())));
  if (!valid() || count != num_elements()) {
    return InvalidArgument("cannot reshape ", spec_.ToString(), " to ", ShapeString(shape), ", which has ", count,
                           " elements");
  }
  return Tensor(buffer_, Spec{shape, spec_.dtype, spec_.device}, offset_);
}

absl::StatusOr<Tensor> Tensor::Rows(int64_t start, int64_t stop) const {
  if (!valid() || spec_.rank() == 0 || start < 0 || start > stop || stop > shape()[0]) {
    return InvalidArgument("rows ", start, " to ", stop, " of ", spec_.ToString());
  }
  Spec rows = spec_;
  rows.shape[0] = 1;
  const int64_t row_bytes = rows.bytes();
  rows.shape[0] = stop - start;
  return Tensor(buffer_, std::move(rows), offset_ + start * row_bytes);
}

absl::StatusOr<Tensor> Tensor::To(Device device) const {
  if (!valid()) return absl::FailedPreconditionError("an empty Tensor has no values to move");
  if (device == spec_.device) return *this;
  if (spec_.device != Device::Cpu() && device != Device::Cpu()) {
    GM_ASSIGN_OR_RETURN(const Tensor host, To(Device::Cpu()));
    return host.To(device);
  }
  GM_ASSIGN_OR_RETURN(Tensor moved, Empty(Spec{spec_.shape, spec_.dtype, device}));
  GM_RETURN_IF_ERROR(device == Device::Cpu() ? CopyToHost(data(), moved.data(), spec_.bytes(), spec_.device)
                                             : CopyFromHost(data(), moved.data(), spec_.bytes(), device));
  return moved;
}

absl::Status Tensor::CopyFrom(const Tensor& source) {
  if (!valid() || !source.valid() || source.shape() != shape() || source.dtype() != dtype()) {
    return InvalidArgument("cannot copy ", source.spec().ToString(), " into ", spec_.ToString());
  }
  GM_ASSIGN_OR_RETURN(const Tensor here, source.To(spec_.device));
  buffer_->MarkWritten();
  return CopyOnDevice(here.data(), data(), spec_.bytes(), spec_.device);
}

}  // namespace gemmill
