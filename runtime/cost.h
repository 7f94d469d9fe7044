// Cost: the arithmetic and the traffic of an op, from its specs alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
  int64_t bytes = 0;              // every input read and every output written once
  std::optional<GemmShape> gemm;  // of an op that is one
};

// `inputs` and `outputs` as Infer relates them. What a grouped GEMM does depends on its offsets: here every row belongs
// to an expert.
OpCost Cost(const Op& op, Specs inputs, Specs outputs);

// The GEMMs that an op consists of: one, or of a grouped one an expert's each, whose rows are `loads`, or where there
// are none as even as they can be.
std::vector<GemmShape> GemmsOf(const Op& op, Specs inputs, Specs outputs, absl::Span<const int64_t> loads = {});

}  // namespace gemmill
