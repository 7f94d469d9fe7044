// Which GPUs can be used. No other file of the CUDA backend may be asked for anything before this one has named a
// device.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace gemmill::cuda {

// The compute capability that the kernels need, as major * 10 + minor.
inline constexpr int kLowestComputeCapability = 80;

// CUDA's indices of the usable GPUs, at least one; or FailedPrecondition, "no usable GPU: <reason>". Looked up once.
const absl::StatusOr<std::vector<int>>& UsableDevices();

}  // namespace gemmill::cuda
