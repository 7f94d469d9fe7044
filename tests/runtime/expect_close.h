// Comparisons of tensors with expected numbers and with other runs of the same op.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/runtime/run_op.h"

namespace gemmill {

// Half a unit in the last place of a stored value, relative to it, and some room for f32 arithmetic.
inline double RelativeTolerance(DType dtype) {
  return dtype == DType::kBf16 ? 0x1p-8 : dtype == DType::kF64 ? 1e-12 : 2e-6;
}

// Each element within relative * |expected| + absolute. A NaN expects a NaN, an infinity itself.
inline void ExpectClose(const Tensor& got, const std::vector<double>& expected, double relative, double absolute) {
  ASSERT_TRUE(got.valid());
  const std::vector<double> values = Doubles(got);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(expected[i])) {
      ASSERT_NEAR(values[i], expected[i], relative * std::fabs(expected[i]) + absolute)
          << "element " << i << " of " << got.spec().ToString();
    } else {
      ASSERT_TRUE(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])))
          << "element " << i << " of " << got.spec().ToString() << " is " << values[i] << ", expected " << expected[i];
    }
  }
}

inline bool SameBits(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() &&
         (a.num_elements() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.spec().bytes())) == 0);
}

// The outputs of `op`, which five runs must give to the bit, with `threads` threads.
inline std::vector<Tensor> RunRepeatedly(const Op& op, const std::vector<Tensor>& inputs, int threads) {
  const WithThreads with_threads(threads);
  const std::vector<Tensor> first = RunOp(op, inputs);
  for (int run = 1; run < 5; ++run) {
    const std::vector<Tensor> again = RunOp(op, inputs);
    EXPECT_EQ(again.size(), first.size());
    for (size_t i = 0; i < std::min(again.size(), first.size()); ++i) {
      EXPECT_TRUE(SameBits(again[i], first[i])) << "output " << i << " differs in run " << run;
    }
  }
  return first;
}

}  // namespace gemmill
