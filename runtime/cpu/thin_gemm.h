// ThinGemm: f32 products of a few rows with a large matrix, where a library's time goes into bringing the matrix into
// an order of its own. Here it is read, or written, just once and as it lies. One thread.
#pragma once

#include <cstdint>

namespace gemmill::cpu {

// Whether these functions are the fastest here for so many rows (measured: see thin_gemm.cc).
bool IsThin(int64_t rows);
bool IsThinUntransposed(int64_t rows);

// y [rows, n] = x [rows, k] w^T, w [n, k]. `workspace` is of ThinWorkspaceFloats(k).
void ThinTransposed(int64_t rows, int64_t n, int64_t k, const float* x, const float* w, float* y, float* workspace);
int64_t ThinWorkspaceFloats(int64_t k);

// y [rows, n] = x [rows, k] w, w [k, n].
void ThinUntransposed(int64_t rows, int64_t n, int64_t k, const float* x, const float* w, float* y);

// w [n, k] = y^T x of y [rows, ...], whose rows begin `y_stride` apart, and x [rows, k]. `past_caches`: w is part of
// something larger than the caches, and goes around them.
void ThinOuter(int64_t rows, int64_t n, int64_t k, const float* y, int64_t y_stride, const float* x, float* w,
               bool past_caches);

}  // namespace gemmill::cpu
