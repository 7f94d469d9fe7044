#include "gemmill/runtime/cpu/plain_gemm.h"

#include <algorithm>
#include <limits>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/lanes.h"
#include "gemmill/runtime/cpu/parallel.h"

namespace gemmill::cpu {
namespace {

// The tile of C that is summed in registers: rows, and vectors of columns.
constexpr int64_t kRows = 4;
constexpr int64_t kVectors = 4;
template <typename C>
constexpr int64_t kColumns = kVectors* kLanes<C>;
// The tiles, one below the other, that share a packed block of B, and that block's rows: so many terms are summed in
// the compute type before they are added in f64.
constexpr int64_t kTiles = 4;
constexpr int64_t kDepth = 128;

// Where element (row, column) of a matrix lies.
struct Strides {
  int64_t row;
  int64_t column;
};

template <typename C>
using Wide = typename VectorOf<double, kLanes<C>* static_cast<int>(sizeof(double))>::Type;
template <typename C>
using Totals = Wide<C>[kRows][kVectors];

// A block of B. Columns of `packed` from `columns` on keep what they held: their sums are not stored, and the inner
// loops have constant counts.
template <typename T, typename C = ComputeType<T>>
void Pack(const T* b, Strides strides, int64_t depth, int64_t columns, C (*packed)[kColumns<C>]) {
  if (strides.row == 1) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t k = 0; k < depth; ++k) packed[k][j] = Load(b[j * strides.column + k]);
    }
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) packed[k][j] = Load(b[k * strides.row + j * strides.column]);
    }
  }
}

// totals += rows of A times a packed block of B; rows of the tile from `rows` on are taken as zeros.
template <typename T, typename C = ComputeType<T>>
void AddTile(const T* a, Strides strides, int64_t rows, int64_t depth, const C (*packed)[kColumns<C>],
             Totals<C>& totals) {
  Lanes<C> sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Lanes<C> b_lanes[kVectors];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) LoadLanes<C>(packed[k] + j * kLanes<C>, AllLanes<C>(), C{0}, b_lanes[j]);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      const C value = i < rows ? Load(a[i * strides.row + k * strides.column]) : C{0};
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) sum[i][j] += value * b_lanes[j];
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) totals[i][j] += __builtin_convertvector(sum[i][j], Wide<C>);
  }
}

template <typename T, typename C = ComputeType<T>>
void StoreTile(const Totals<C>& totals, int64_t rows, int64_t columns, int64_t stride, T* c) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < kVectors; ++j) {
      const int64_t count = std::min(kLanes<C>, columns - j * kLanes<C>);
      if (count > 0)
        StoreLanes<C>(__builtin_convertvector(totals[i][j], Lanes<C>), c + i * stride + j * kLanes<C>, count);
    }
  }
}

template <typename T>
void Run(const Gemm& gemm, const T* a, const T* b, T* c) {
  using C = ComputeType<T>;
  constexpr int64_t kBlockRows = kTiles * kRows;
  const Strides strides_a = gemm.trans_a ? Strides{1, gemm.m} : Strides{gemm.k, 1};
  const Strides strides_b = gemm.trans_b ? Strides{1, gemm.k} : Strides{gemm.n, 1};
  const int64_t blocks_down = (gemm.m + kBlockRows - 1) / kBlockRows;
  const int64_t blocks_across = (gemm.n + kColumns<C> - 1) / kColumns<C>;
  const double cost = 0.1 * static_cast<double>(std::min(gemm.m, kBlockRows)) *
                      static_cast<double>(std::min(gemm.n, kColumns<C>)) * static_cast<double>(gemm.k);
  ParallelFor(gemm.batch * blocks_down * blocks_across, Grain(cost), [&](int64_t begin, int64_t end) {
    alignas(64) C packed[kDepth][kColumns<C>] = {};
    for (int64_t block = begin; block < end; ++block) {
      const int64_t batch = block / blocks_across / blocks_down;
      const int64_t first_row = block / blocks_across % blocks_down * kBlockRows;
      const int64_t first_column = block % blocks_across * kColumns<C>;
      const int64_t columns = std::min(kColumns<C>, gemm.n - first_column);
      const T* a_at = a + (gemm.batched_a ? batch * gemm.m * gemm.k : 0) + first_row * strides_a.row;
      const T* b_at = b + (gemm.batched_b ? batch * gemm.k * gemm.n : 0) + first_column * strides_b.column;
      T* c_at = c + (batch * gemm.m + first_row) * gemm.n + first_column;
      const auto for_each_tile = [&](const auto& body) {
        for (int64_t tile = 0; tile < kTiles && first_row + tile * kRows < gemm.m; ++tile) {
          body(tile, std::min(kRows, gemm.m - first_row - tile * kRows));
        }
      };
      Totals<C> totals[kTiles] = {};
      for (int64_t k = 0; k < gemm.k; k += kDepth) {
        const int64_t depth = std::min(kDepth, gemm.k - k);
        Pack(b_at + k * strides_b.row, strides_b, depth, columns, packed);
        for_each_tile([&](int64_t tile, int64_t rows) {
          AddTile(a_at + tile * kRows * strides_a.row + k * strides_a.column, strides_a, rows, depth, packed,
                  totals[tile]);
        });
      }
      for_each_tile([&](int64_t tile, int64_t rows) {
        StoreTile<T>(totals[tile], rows, columns, gemm.n, c_at + tile * kRows * gemm.n);
      });
    }
  });
}

}  // namespace

bool OneDnnCanAddress(const Gemm& gemm) {
  const int64_t longest_row = std::max({gemm.trans_a ? gemm.m : gemm.k, gemm.trans_b ? gemm.k : gemm.n, gemm.n});
  return longest_row <= std::numeric_limits<int32_t>::max() / (64 * SizeOf(gemm.dtype));
}

void PlainGemm(const Gemm& gemm, const void* a, const void* b, void* c) {
  DispatchFloating(gemm.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Run(gemm, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c));
  });
}

}  // namespace gemmill::cpu
