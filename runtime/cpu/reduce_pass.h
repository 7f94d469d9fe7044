// How a reduction walks memory. It is a list of passes [outer, rows, columns] -> [outer, splits, columns] over
// contiguous arrays; a long reduction into few results is split, so that threads have something to share, and a further
// pass joins the splits. How it is split depends on the shape alone: the number of threads does not change bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/op.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {

// What results are kept in between passes, and what blocks are joined in.
template <typename T>
using TotalType = std::conditional_t<std::is_integral_v<T>, T, double>;

constexpr int64_t kTileColumns = 512;  // of a matrix that is summed down its columns
constexpr int64_t kRunning = 64;       // running results of a narrower one
constexpr int64_t kRunLength = 64;     // elements that a lane takes before it is added to its total

template <BinaryFn kFn, typename T>
constexpr T Identity() {
  if constexpr (kFn == BinaryFn::kAdd) return T(0);
  using Limits = std::numeric_limits<T>;
  if constexpr (kFn == BinaryFn::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

// Sums by pairs, which rounds less; extremes one by one, which is what GCC vectorises.
template <BinaryFn kFn, typename T>
T Join(T lane, T a, T b, T c, T d) {
  if constexpr (kFn == BinaryFn::kAdd) {
    return scalar::Apply<kFn>(lane, scalar::Apply<kFn>(scalar::Apply<kFn>(a, b), scalar::Apply<kFn>(c, d)));
  } else {
    return scalar::Apply<kFn>(scalar::Apply<kFn>(scalar::Apply<kFn>(scalar::Apply<kFn>(lane, a), b), c), d);
  }
}

// Reduces the rows of a matrix [rows, columns], of which a row begins every `stride` elements, to one row of totals;
// columns <= kTileColumns. Of a narrow contiguous matrix several rows are taken as one, as wide as kRunning allows.
// Before each block of rows is read, make(first row, row after the last) is called.
template <BinaryFn kFn, typename T, typename Make>
void ReduceTile(const T* x, int64_t rows, int64_t columns, int64_t stride, TotalType<T>* totals, const Make& make) {
  using Compute = ComputeType<T>;
  int64_t together = 1;
  if (stride == columns) {
    while (2 * together <= rows && 2 * together * columns <= kRunning) together *= 2;
  }
  const int64_t width = together * columns;
  const int64_t step = together * stride;
  Compute lanes[kTileColumns];
  std::fill(totals, totals + columns, Identity<kFn, TotalType<T>>());
  for (int64_t row = 0; row < rows;) {
    const int64_t stop = std::min(rows, row + kRunLength * together);
    std::fill(lanes, lanes + width, Identity<kFn, Compute>());
    make(row, stop);
    for (; row + 4 * together <= stop; row += 4 * together) {
      const T* x0 = x + row * stride;
      GM_INDEPENDENT
      for (int64_t j = 0; j < width; ++j) {
        lanes[j] = Join<kFn>(lanes[j], Load(x0[j]), Load(x0[j + step]), Load(x0[j + 2 * step]), Load(x0[j + 3 * step]));
      }
    }
    while (row < stop) {
      const int64_t left = std::min(together, stop - row);
      const T* x0 = x + row * stride;
      GM_INDEPENDENT
      for (int64_t j = 0; j < left * columns; ++j) lanes[j] = scalar::Apply<kFn>(lanes[j], Load(x0[j]));
      row += left;
    }
    for (int64_t half = width / 2; half >= columns; half /= 2) {
      GM_INDEPENDENT
      for (int64_t j = 0; j < half; ++j) lanes[j] = scalar::Apply<kFn>(lanes[j], lanes[j + half]);
    }
    for (int64_t j = 0; j < columns; ++j) {
      totals[j] = scalar::Apply<kFn>(totals[j], static_cast<TotalType<T>>(lanes[j]));
    }
  }
}

// A result as it is stored: a mean divides by `count`, the others by 1.
template <typename T>
T Finish(TotalType<T> total, double count) {
  if constexpr (std::is_integral_v<T>) {
    return total;
  } else {
    return Store<T>(static_cast<ComputeType<T>>(total / count));
  }
}

struct Pass {
  int64_t outer = 1;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t splits = 1;

  int64_t tiles() const { return (columns + kTileColumns - 1) / kTileColumns; }
};

// Calls store(index, totals, count) for each piece of the pass's result [outer, splits, columns]. Before elements of x
// are read, make(i, rows, count) is called for rows of `count` elements, the first of them element i, each
// pass.columns after the one before: for kernels that compute x as they go.
template <BinaryFn kFn, typename T, typename StoreFn, typename Make>
void RunPass(const Pass& pass, const T* x, const StoreFn& store, const Make& make) {
  // Narrower tiles where threads would have too few to share; a column's sum is the same in either.
  const bool few = pass.outer * pass.splits * pass.tiles() < 8 && pass.columns >= kTileColumns / 2;
  const int64_t tile_columns = few ? kTileColumns / 4 : kTileColumns;
  const int64_t tiles = (pass.columns + tile_columns - 1) / tile_columns;
  const int64_t split_rows = (pass.rows + pass.splits - 1) / pass.splits;
  const double item_elements =
      static_cast<double>(split_rows) * static_cast<double>(std::min(pass.columns, tile_columns));
  ParallelFor(pass.outer * pass.splits * tiles, Grain(5 + 0.1 * item_elements), [&](int64_t begin, int64_t end) {
    TotalType<T> totals[kTileColumns];
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item / tiles;  // of [outer, splits]
      const int64_t column = item % tiles * tile_columns;
      const int64_t columns = std::min(tile_columns, pass.columns - column);
      const int64_t first = std::min(pass.rows, part % pass.splits * split_rows);
      const int64_t rows = std::min(split_rows, pass.rows - first);
      const int64_t tile = (part / pass.splits * pass.rows + first) * pass.columns + column;
      ReduceTile<kFn>(x + tile, rows, columns, pass.columns, totals,
                      [&](int64_t row, int64_t stop) { make(tile + row * pass.columns, stop - row, columns); });
      store(part * pass.columns + column, totals, columns);
    }
  });
}

template <BinaryFn kFn, typename T, typename StoreFn>
void RunPass(const Pass& pass, const T* x, const StoreFn& store) {
  RunPass<kFn>(pass, x, store, [](int64_t, int64_t, int64_t) {});
}

// The passes that reduce `axes` of `shape`, none of whose dimensions is 0.
inline std::vector<Pass> MakePasses(const Shape& shape, const Axes& axes) {
  // Neighbouring dimensions with the same fate are one.
  struct Group {
    int64_t size;
    bool reduced;
  };
  std::vector<Group> groups;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (groups.empty() || groups.back().reduced != reduced) groups.push_back({1, reduced});
    groups.back().size *= shape[d];
  }
  std::vector<Pass> passes;
  int64_t columns = 1;
  while (!groups.empty()) {
    const Group group = groups.back();
    groups.pop_back();
    if (!group.reduced) {
      columns *= group.size;
      continue;
    }
    Pass pass = {.rows = group.size, .columns = columns};
    for (const Group& outer : groups) pass.outer *= outer.size;
    constexpr int64_t kItems = 64;
    constexpr int64_t kItemElements = 1 << 15;
    const int64_t tile_elements = pass.rows * std::min(columns, kTileColumns);
    pass.splits = std::max<int64_t>(1, std::min(kItems / (pass.outer * pass.tiles()), tile_elements / kItemElements));
    passes.push_back(pass);
    if (pass.splits > 1) passes.push_back({.outer = pass.outer, .rows = pass.splits, .columns = columns});
  }
  // Nothing to reduce: a pass over a single row.
  if (passes.empty()) passes.push_back({.columns = columns});
  return passes;
}

}  // namespace gemmill::cpu
