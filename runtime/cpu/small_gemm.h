// SmallGemm: f32 products so small that a library's call costs more than their arithmetic. One thread.
#pragma once

#include "gemmill/runtime/cpu/plain_gemm.h"

namespace gemmill::cpu {

// Whether SmallGemm takes this product and is the fastest at it (measured: see small_gemm.cc).
bool IsSmall(const Gemm& gemm);

void SmallGemm(const Gemm& gemm, const float* a, const float* b, float* c);

}  // namespace gemmill::cpu
