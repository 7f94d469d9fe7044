#include "gemmill/runtime/cpu/thin_gemm.h"

#include <algorithm>

#ifdef __AVX512F__
#include <immintrin.h>

#include <type_traits>
#endif

namespace gemmill::cpu {

#ifdef __AVX512F__

namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kMostRows = 64;
// Of a matrix that is read for many tiles: with what is fetched of the next part it stays in the second cache.
constexpr int64_t kPartFloats = 16 << 10;
// Columns that are transposed together: whole lines of each row, few enough for the first cache.
constexpr int64_t kTransposed = 4 * kLanes;

int64_t RoundUp(int64_t size) { return (size + kLanes - 1) / kLanes * kLanes; }

// Memory that will be needed next: a step of the sum fetches what is `step` bytes further.
struct Ahead {
  const char* bytes;
  int64_t step;
};

// A block of C = A B that is summed up in registers. The lanes of its last vector that are in C are those in `mask`.
template <int kRows, int kVectors>
struct Tile {
  static constexpr int64_t kTileRows = kRows;
  static constexpr int64_t kTileColumns = kVectors * kLanes;
  __m512 sum[kRows][kVectors];
  __mmask16 mask;

  [[gnu::always_inline]] __mmask16 MaskOf(int vector) const {
    return vector + 1 < kVectors ? static_cast<__mmask16>(0xFFFF) : mask;
  }

  [[gnu::always_inline]] void Load(const float* c, int64_t stride) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_maskz_loadu_ps(MaskOf(v), c + r * stride + v * kLanes);
    }
  }

  [[gnu::always_inline]] void Clear() {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
    }
  }

  // Element (r, i) of A is a[r * a_row + i * a_column]; a row of B begins b_row after the one before.
  [[gnu::always_inline]] void Add(int64_t depth, const float* a, int64_t a_row, int64_t a_column, const float* b,
                                  int64_t b_row, Ahead ahead) {
    for (int64_t i = 0; i < depth; ++i) {
      __m512 vectors[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) vectors[v] = _mm512_maskz_loadu_ps(MaskOf(v), b + i * b_row + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512 factor = _mm512_set1_ps(a[r * a_row + i * a_column]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_fmadd_ps(factor, vectors[v], sum[r][v]);
      }
      _mm_prefetch(ahead.bytes + i * ahead.step, _MM_HINT_T1);
    }
  }

  [[gnu::always_inline]] void Store(float* c, int64_t stride) const {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) _mm512_mask_storeu_ps(c + r * stride + v * kLanes, MaskOf(v), sum[r][v]);
    }
  }

  // Of whole, aligned vectors.
  [[gnu::always_inline]] void Stream(float* c, int64_t stride) const {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) _mm512_stream_ps(c + r * stride + v * kLanes, sum[r][v]);
    }
  }

  // Column j of the block is row j in memory.
  [[gnu::always_inline]] void StoreTransposed(float* c, int64_t stride, int64_t columns) const {
    alignas(64) float values[kRows][kVectors * kLanes];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) _mm512_store_ps(values[r] + v * kLanes, sum[r][v]);
    }
    for (int64_t j = 0; j < columns; ++j) {
      for (int r = 0; r < kRows; ++r) c[j * stride + r] = values[r][j];
    }
  }
};

template <int kRows, typename Body>
[[gnu::always_inline]] inline void ForRowOfTiles(int64_t row, int64_t columns, const Body& body) {
  for (int64_t column = 0; column < columns;) {
    const int64_t left = columns - column;
    if (left > kLanes) {
      Tile<kRows, 2> tile;
      tile.mask = static_cast<__mmask16>(left >= 2 * kLanes ? 0xFFFF : (1u << (left - kLanes)) - 1);
      body(tile, row, column);
      column += 2 * kLanes;
    } else {
      Tile<kRows, 1> tile;
      tile.mask = static_cast<__mmask16>((1u << left) - 1);
      body(tile, row, column);
      column += kLanes;
    }
  }
}

// Calls body(tile, row, column) for the tiles of a matrix.
template <typename Body>
[[gnu::always_inline]] inline void ForTiles(int64_t rows, int64_t columns, const Body& body) {
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) ForRowOfTiles<8>(row, columns, body);
  for (; row + 4 <= rows; row += 4) ForRowOfTiles<4>(row, columns, body);
  for (; row < rows; ++row) ForRowOfTiles<1>(row, columns, body);
}

}  // namespace

// On two cores of a Zen 5, n and k of 256 to 1024: oneDNN's 2.6.3 sgemm takes 1.2 to 1.5 times as long at 32 rows. At
// 128 rows it is as fast, and where the matrix is not transposed at 64.
bool IsThin(int64_t rows) { return rows <= kMostRows; }
bool IsThinUntransposed(int64_t rows) { return rows <= 48; }

int64_t ThinWorkspaceFloats(int64_t k) { return kMostRows * k; }

void ThinTransposed(int64_t rows, int64_t n, int64_t k, const float* x, const float* w, float* y, float* workspace) {
  // The product is computed as w x^T.
  const int64_t width = RoundUp(rows);
  for (int64_t from = 0; from < k; from += kTransposed) {
    const int64_t to = std::min(from + kTransposed, k);
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t i = from; i < to; ++i) workspace[i * width + j] = j < rows ? x[j * k + i] : 0.0f;
    }
  }
  ForTiles(
      n, width, [&](auto& tile, int64_t row, int64_t column) __attribute__((always_inline)) {
        using Block = std::decay_t<decltype(tile)>;
        const int64_t row_bytes = k * static_cast<int64_t>(sizeof(float));
        const int64_t share =
            Block::kTileRows * Block::kTileColumns * static_cast<int64_t>(sizeof(float)) / width;  // bytes a step
        const char* const next = reinterpret_cast<const char*>(w) + (row + Block::kTileRows) * row_bytes;
        tile.Clear();
        tile.Add(k, w + row * k, k, 1, workspace + column, width,
                 {next + column * Block::kTileRows * row_bytes / width, share});
        tile.StoreTransposed(y + column * n + row, n, std::min(rows - column, Block::kTileColumns));
      });
}

void ThinUntransposed(int64_t rows, int64_t n, int64_t k, const float* x, const float* w, float* y) {
  const int64_t part = std::max<int64_t>(16, kPartFloats / n);
  for (int64_t from = 0; from < k; from += part) {
    const int64_t depth = std::min(part, k - from);
    const char* const next = reinterpret_cast<const char*>(w + (from + depth) * n);
    const int64_t part_bytes = depth * n * static_cast<int64_t>(sizeof(float));
    ForTiles(
        rows, n, [&](auto& tile, int64_t row, int64_t column) __attribute__((always_inline)) {
          using Block = std::decay_t<decltype(tile)>;
          float* const c = y + row * n + column;
          if (from == 0) {
            tile.Clear();
          } else {
            tile.Load(c, n);
          }
          const int64_t before = row * n + column * Block::kTileRows;  // elements of y that are done
          tile.Add(depth, x + row * k + from, k, 1, w + from * n + column, n,
                   {next + part_bytes * before / (rows * n),
                    Block::kTileRows * Block::kTileColumns * part_bytes / (rows * n * depth)});
          tile.Store(c, n);
        });
  }
}

void ThinOuter(int64_t rows, int64_t n, int64_t k, const float* y, int64_t y_stride, const float* x, float* w,
               bool past_caches) {
  const bool stream = past_caches && k % kLanes == 0 && reinterpret_cast<uintptr_t>(w) % 64 == 0;
  ForTiles(
      n, k, [&](auto& tile, int64_t row, int64_t column) __attribute__((always_inline)) {
        tile.Clear();
        tile.Add(rows, y + row, 1, y_stride, x + column, k, {reinterpret_cast<const char*>(x), 0});
        if (stream) {
          tile.Stream(w + row * k + column, k);
        } else {
          tile.Store(w + row * k + column, k);
        }
      });
  if (stream) _mm_sfence();
}

#else

bool IsThin(int64_t) { return false; }
bool IsThinUntransposed(int64_t) { return false; }
int64_t ThinWorkspaceFloats(int64_t) { return 0; }
void ThinTransposed(int64_t, int64_t, int64_t, const float*, const float*, float*, float*) {}
void ThinUntransposed(int64_t, int64_t, int64_t, const float*, const float*, float*) {}
void ThinOuter(int64_t, int64_t, int64_t, const float*, int64_t, const float*, float*, bool) {}

#endif

}  // namespace gemmill::cpu
