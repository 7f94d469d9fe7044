// Cost: the arithmetic and the traffic of an op, from its specs alone.
#pragma once

#include <cstdint>
#include <optional>

#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"

namespace gemmill {

// C [M, N] = A [M, K] B [K, N], `batch` times.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  bool operator==(const GemmShape&) const = default;
};

struct OpCost {
  // A multiply-add counts as 2, a transcendental function as 1; of a FusedMatMul its GEMM alone, so that rates compare.
  int64_t flops = 0;
  int64_t bytes = 0;  // every input read and every output written once
  std::optional<GemmShape> gemm;
};

// `inputs` and `outputs` as Infer relates them.
OpCost Cost(const Op& op, Specs inputs, Specs outputs);

}  // namespace gemmill
