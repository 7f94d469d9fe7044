#include "gemmill/runtime/cpu/plain_gemm.h"

#include <algorithm>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/lanes.h"
#include "gemmill/runtime/cpu/parallel.h"

namespace gemmill::cpu {
namespace {

// The tile of C that is summed in registers: rows, and vectors of columns.
constexpr int64_t kRows = 4;
constexpr int64_t kVectors = 4;

// Where element (row, column) of a matrix lies.
struct Strides {
  int64_t row;
  int64_t column;
};

// The tile of C at `c` of `rows` rows and `columns` columns. Sums always run over a whole tile, padded with zeros: the
// inner loops have constant counts, and unrolled they keep the sums in registers.
template <typename T, typename C = ComputeType<T>>
void ComputeTile(const Gemm& gemm, const T* a, Strides strides_a, const T* b, Strides strides_b, T* c, int64_t rows,
                 int64_t columns) {
  Lanes<C> sum[kRows][kVectors] = {};
  T b_row[kVectors * kLanes<C>] = {};
  const T* row = b_row;
  for (int64_t k = 0; k < gemm.k; ++k) {
    if (strides_b.column == 1 && columns == kVectors * kLanes<C>) {
      row = b + k * strides_b.row;
    } else {
      for (int64_t j = 0; j < columns; ++j) b_row[j] = b[k * strides_b.row + j * strides_b.column];
    }
    Lanes<C> b_lanes[kVectors];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) LoadLanes<C>(row + j * kLanes<C>, AllLanes<C>(), C{0}, b_lanes[j]);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      const C value = i < rows ? Load(a[i * strides_a.row + k * strides_a.column]) : C{0};
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) sum[i][j] += value * b_lanes[j];
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) {
      const int64_t count = std::min(kLanes<C>, columns - j * kLanes<C>);
      if (i < rows && count > 0) StoreLanes<C>(sum[i][j], c + i * gemm.n + j * kLanes<C>, count);
    }
  }
}

template <typename T>
void Run(const Gemm& gemm, const T* a, const T* b, T* c) {
  constexpr int64_t kColumns = kVectors * kLanes<ComputeType<T>>;
  const Strides strides_a = gemm.trans_a ? Strides{1, gemm.m} : Strides{gemm.k, 1};
  const Strides strides_b = gemm.trans_b ? Strides{1, gemm.k} : Strides{gemm.n, 1};
  const int64_t tile_rows = (gemm.m + kRows - 1) / kRows;
  const double tile_row_cost = 0.2 * static_cast<double>(kRows) * static_cast<double>(gemm.k * gemm.n);
  ParallelFor(gemm.batch * tile_rows, Grain(tile_row_cost), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t batch = tile / tile_rows;
      const int64_t i = tile % tile_rows * kRows;
      const T* a_at = a + (gemm.batched_a ? batch * gemm.m * gemm.k : 0) + i * strides_a.row;
      const T* b_at = b + (gemm.batched_b ? batch * gemm.k * gemm.n : 0);
      T* c_at = c + (batch * gemm.m + i) * gemm.n;
      for (int64_t j = 0; j < gemm.n; j += kColumns) {
        ComputeTile(gemm, a_at, strides_a, b_at + j * strides_b.column, strides_b, c_at + j,
                    std::min(kRows, gemm.m - i), std::min(kColumns, gemm.n - j));
      }
    }
  });
}

}  // namespace

void PlainGemm(const Gemm& gemm, const void* a, const void* b, void* c) {
  DispatchFloating(gemm.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Run(gemm, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c));
  });
}

}  // namespace gemmill::cpu
