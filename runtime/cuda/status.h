// CUDA's errors as absl::Status.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmill::cuda {

// OK for cudaSuccess. Else "<what>: <CUDA's description> (<its name>)", ResourceExhausted where memory ran out and
// Internal otherwise. `what` says what was being done: "launching gelu_erf".
absl::Status ToStatus(cudaError_t error, absl::string_view what);

}  // namespace gemmill::cuda
