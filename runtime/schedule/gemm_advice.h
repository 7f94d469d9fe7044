// What would make a GEMM of given sizes run better, in words.
#pragma once

#include <string>
#include <vector>

#include "gemmill/runtime/cost.h"
#include "gemmill/runtime/schedule/roofline.h"

namespace gemmill {

// Remarks, each with the size that would help; empty where there is nothing to say:
// - alignment: sizes that are no multiple of 16 bytes,
// - tile quantisation (GPUs): tiles at the edges that are mostly empty,
// - wave quantisation (GPUs): multiprocessors without a tile, all the time or in the last wave,
// - small sizes: from which on memory would not be the bound.
// Sizes are called M, N and K as `gemm` has them.
std::vector<std::string> GemmAdvice(const GemmShape& gemm, const Roofline& roofline);

}  // namespace gemmill
