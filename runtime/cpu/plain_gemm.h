// Gemm: the matrix product that every MatMul is brought to; PlainGemm computes it with plain loops, for f64 and for
// what oneDNN does not take or gets wrong.
#pragma once

#include <compare>
#include <cstdint>

#include "gemmill/runtime/spec.h"

namespace gemmill::cpu {

// C [batch, M, N] = A [batch, M, K] B [batch, K, N], all contiguous and none empty. With trans_a a matrix of A lies in
// memory as (K, M), with trans_b one of B as (N, K). An input that is not batched has one matrix, used for every
// product.
struct Gemm {
  DType dtype = DType::kF32;
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool trans_a = false;
  bool trans_b = false;
  bool batched_a = false;
  bool batched_b = false;
  auto operator<=>(const Gemm&) const = default;
};

// oneDNN's kernels (2.6.3) address a block of up to 64 rows with 32 bits: beyond 2^31 bytes they crash or leave rows
// out. A row is as memory has it, whatever the flags say.
bool OneDnnCanAddress(const Gemm& gemm);

// Computes bf16 in f32, and adds blocks of terms in f64. Floating dtypes only.
void PlainGemm(const Gemm& gemm, const void* a, const void* b, void* c);

}  // namespace gemmill::cpu
