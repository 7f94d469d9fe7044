// A grouped GEMM in pieces that threads share out among themselves, by oneDNN.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "gemmill/runtime/kernel.h"

namespace gemmill::cpu {

// For each expert, of its rows x [rows, K] and y [rows, N]: y = x w, w [K, N] or with trans_b [N, K]; or, with `wgrad`,
// w [N, K] = y^T x. Inputs are x, w and offsets, or y, x and offsets. None of n, k and experts is 0.
struct GroupedGemm {
  DType dtype = DType::kF32;
  int64_t experts = 0;
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool trans_b = false;
  bool wgrad = false;
};

// Its kernel, which takes offsets as they should be and writes the rows of experts alone; none where oneDNN has nothing
// for it.
absl::StatusOr<std::optional<Kernel>> PreparePieces(const GroupedGemm& gemm);

}  // namespace gemmill::cpu
