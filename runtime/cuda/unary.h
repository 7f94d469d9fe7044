// Elementwise functions of one element.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gemmill/runtime/op.h"

namespace gemmill::cuda {

// y[i] = fn(x[i]) for i < n, for f32, bf16 and f64 on `stream`; x and y may be the same address. Other dtypes are
// cudaErrorInvalidValue.
cudaError_t LaunchUnary(UnaryFn fn, DType dtype, const void* x, void* y, int64_t n, cudaStream_t stream);

}  // namespace gemmill::cuda
