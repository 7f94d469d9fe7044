// Kernel: an op made ready for given specs on a given device. Everything that depends on shapes is decided when it is
// made; running it touches only bytes, and may be done any number of times, with other buffers of the same specs.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gemmill/runtime/spec.h"
#include "gemmill/runtime/stream.h"

namespace gemmill {

using Specs = absl::Span<const Spec>;

// Addresses on the kernel's device, as many as the op has inputs and outputs, at least 1 element's alignment each.
// An output may be the same address as an input only where MayRunInPlace (execute.h) says so.
struct KernelArguments {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  void* workspace = nullptr;  // workspace_bytes of scratch, 64-byte aligned

  template <typename T>
  const T* in(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* out(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

struct Kernel {
  std::function<absl::Status(const KernelArguments&, Stream&)> run;
  int64_t workspace_bytes = 0;
};

}  // namespace gemmill
