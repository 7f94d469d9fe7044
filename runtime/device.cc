#include "gemmill/runtime/device.h"

#include "gemmill/runtime/spec.h"
#include "gemmill/runtime/status.h"

#ifdef GEMMILL_WITH_CUDA
#include "gemmill/runtime/cuda/device.h"
#include "gemmill/runtime/cuda/missing.h"
#endif

namespace gemmill {
namespace {

// Why no model can be trained on a GPU by this build on this machine, or the GPU.
absl::StatusOr<Device> UsableCuda() {
#ifdef GEMMILL_WITH_CUDA
  const absl::StatusOr<std::vector<int>>& devices = cuda::UsableDevices();
  if (!devices.ok()) return Annotate(devices.status(), "device cuda: ");
  if (cuda::WithoutKernel::kSize > 0) {
    return absl::UnimplementedError(absl::StrCat("device cuda: the CUDA backend lacks ", cuda::WithoutKernel::kSize,
                                                 " ops (runtime/cuda/missing.h); use cpu"));
  }
  return Device{Device::Kind::kCuda, (*devices)[0]};
#else
  return absl::FailedPreconditionError(
      "device cuda: this build has no CUDA (configure with GEMMILL_WITH_CUDA); use cpu");
#endif
}

}  // namespace

bool HasFastBf16(Device device) {
  if (device.kind != Device::Kind::kCpu) return true;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

absl::StatusOr<Device> Device::Default() {
  const absl::StatusOr<Device> cuda = UsableCuda();
  return cuda.ok() ? *cuda : Device::Cpu();
}

absl::StatusOr<Device> Device::Parse(absl::string_view name) {
  if (name == "auto") return Default();
  if (name == "cpu") return Device::Cpu();
  if (name == "cuda") return UsableCuda();
  return InvalidArgument("device is \"", name, "\", expected cpu, cuda or auto");
}

}  // namespace gemmill
