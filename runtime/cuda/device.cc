#include "gemmill/runtime/cuda/device.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmill::cuda {
namespace {

absl::Status NoUsableGpu(absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat("no usable GPU: ", reason));
}

absl::StatusOr<std::vector<int>> FindUsableDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return NoUsableGpu(cudaGetErrorString(error));

  std::vector<int> usable;
  std::vector<std::string> reasons;
  for (int device = 0; device < count; ++device) {
    int major = 0;
    int minor = 0;
    cudaError_t asked = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (asked == cudaSuccess) asked = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (asked != cudaSuccess) {
      reasons.push_back(absl::StrCat("GPU ", device, ": ", cudaGetErrorString(asked)));
    } else if (major * 10 + minor < kLowestComputeCapability) {
      reasons.push_back(absl::StrCat("GPU ", device, " has compute capability ", major, ".", minor, ", and ",
                                     kLowestComputeCapability / 10, ".", kLowestComputeCapability % 10, " is needed"));
    } else {
      usable.push_back(device);
    }
  }
  if (usable.empty()) return NoUsableGpu(reasons.empty() ? "there is none" : absl::StrJoin(reasons, "; "));
  return usable;
}

}  // namespace

const absl::StatusOr<std::vector<int>>& UsableDevices() {
  static const absl::StatusOr<std::vector<int>>& devices = *new absl::StatusOr<std::vector<int>>(FindUsableDevices());
  return devices;
}

}  // namespace gemmill::cuda
