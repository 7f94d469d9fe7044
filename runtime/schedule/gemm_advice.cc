#include "gemmill/runtime/schedule/gemm_advice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmill {
namespace {

constexpr int64_t kAlignedBytes = 16;
constexpr int64_t kSmallestTile = 64;     // that libraries fall back to where a size is below their usual tile
constexpr double kWorthAWord = 0.05;      // of the arithmetic
constexpr double kLargestSize = 1 << 30;  // that a remark would name

struct Size {
  char name;
  int64_t value;
};

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return CeilDivide(a, b) * b; }

// The usual tile of one dimension, or where that is less a power of two which holds all of it.
int64_t TileOf(int64_t size, int64_t tile) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  return std::min(tile, std::max(kSmallestTile, power));
}

std::string Count(int64_t count, const char* what) { return absl::StrCat(count, " ", what, count == 1 ? "" : "s"); }

double Share(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

void Align(const GemmShape& gemm, const Roofline& roofline, std::vector<std::string>& advice) {
  const int64_t elements = kAlignedBytes / SizeOf(roofline.dtype);
  for (const Size& size : {Size{'M', gemm.m}, Size{'N', gemm.n}, Size{'K', gemm.k}}) {
    if (size.value % elements == 0) continue;
    advice.push_back(absl::StrFormat("alignment: pad %c from %d to %d, a multiple of %d %s (16 bytes)", size.name,
                                     size.value, RoundUp(size.value, elements), elements, DTypeName(roofline.dtype)));
  }
}

void QuantiseTiles(const Size& size, int64_t tile, std::vector<std::string>& advice) {
  const int64_t up = RoundUp(size.value, tile);
  const int64_t down = up - tile;
  const double wasted = Share(up - size.value, up);
  if (wasted < kWorthAWord) return;
  advice.push_back(absl::StrFormat("tile quantisation: %c = %d takes %s of %d, %.0f%% wasted; %s%d would waste nothing",
                                   size.name, size.value, Count(up / tile, "tile"), tile, 100 * wasted,
                                   down > 0 ? absl::StrFormat("%d or ", down) : "", up));
}

void QuantiseWaves(const GemmShape& gemm, int64_t tile_m, int64_t tile_n, int64_t multiprocessors,
                   std::vector<std::string>& advice) {
  const int64_t rows = CeilDivide(gemm.m, tile_m);
  const int64_t columns = CeilDivide(gemm.n, tile_n);
  const int64_t tiles = rows * columns * gemm.batch;
  const int64_t waves = CeilDivide(tiles, multiprocessors);
  const int64_t empty = waves * multiprocessors - tiles;
  if (Share(empty, waves * multiprocessors) < kWorthAWord) return;
  std::string text = absl::StrFormat(
      "wave quantisation: %s of %dx%d on %d multiprocessors, %s, %.0f%% of the last idle", Count(tiles, "tile"), tile_m,
      tile_n, multiprocessors, Count(waves, "wave"), 100 * Share(empty, multiprocessors));
  // The largest M, or N, whose tiles are no more than that many: of the two, the one that leaves fewer of them empty.
  const auto largest_within = [&](int64_t most_tiles) {
    const int64_t more_rows = most_tiles / (columns * gemm.batch);
    const int64_t more_columns = most_tiles / (rows * gemm.batch);
    return more_columns * rows >= more_rows * columns ? Size{'N', more_columns * tile_n}
                                                      : Size{'M', more_rows * tile_m};
  };
  const Size more = largest_within(waves * multiprocessors);
  if (more.value > (more.name == 'N' ? columns * tile_n : rows * tile_m)) {
    absl::StrAppendFormat(&text, "; %c up to %d takes no longer", more.name, more.value);
  }
  const Size less = largest_within((waves - 1) * multiprocessors);
  if (less.value > 0) absl::StrAppendFormat(&text, "; %c of at most %d takes a wave less", less.name, less.value);
  advice.push_back(std::move(text));
}

// With the other two sizes as they are, the smallest is solved for intensity = ridge.
void Enlarge(const GemmShape& gemm, const Roofline& roofline, std::vector<std::string>& advice) {
  std::vector<Size> sizes{{'M', gemm.m}, {'N', gemm.n}, {'K', gemm.k}};
  std::stable_sort(sizes.begin(), sizes.end(), [](const Size& a, const Size& b) { return a.value < b.value; });
  const double a = static_cast<double>(sizes[1].value);
  const double b = static_cast<double>(sizes[2].value);
  const double small = static_cast<double>(sizes[0].value);
  const double bytes_per_flop = static_cast<double>(SizeOf(roofline.dtype)) * roofline.ridge();
  if (2 * small * a * b >= bytes_per_flop * (small * a + small * b + a * b)) return;
  const double slope = 2 * a * b - bytes_per_flop * (a + b);
  const double wanted = slope > 0 ? std::ceil(bytes_per_flop * a * b / slope) : 0;
  if (wanted > 0 && wanted <= kLargestSize) {
    advice.push_back(absl::StrFormat("small %c: bound by memory at %d; from about %.0f on by arithmetic", sizes[0].name,
                                     sizes[0].value, wanted));
  } else {
    advice.push_back(absl::StrFormat("small %c and %c: bound by memory at %d and %d; a larger %c alone is not enough",
                                     sizes[0].name, sizes[1].name, sizes[0].value, sizes[1].value, sizes[0].name));
  }
}

}  // namespace

std::vector<std::string> GemmAdvice(const GemmShape& gemm, const Roofline& roofline) {
  std::vector<std::string> advice;
  if (std::min({gemm.m, gemm.n, gemm.k, gemm.batch}) < 1) return advice;
  Align(gemm, roofline, advice);
  Enlarge(gemm, roofline, advice);
  if (roofline.multiprocessors == 0) return advice;
  // Libraries turn a tile to where it fits better.
  int64_t tile_m = TileOf(gemm.m, roofline.tile_long);
  int64_t tile_n = TileOf(gemm.n, roofline.tile_short);
  const int64_t turned_m = TileOf(gemm.m, roofline.tile_short);
  const int64_t turned_n = TileOf(gemm.n, roofline.tile_long);
  if (RoundUp(gemm.m, turned_m) * RoundUp(gemm.n, turned_n) < RoundUp(gemm.m, tile_m) * RoundUp(gemm.n, tile_n)) {
    tile_m = turned_m;
    tile_n = turned_n;
  }
  QuantiseTiles({'M', gemm.m}, tile_m, advice);
  QuantiseTiles({'N', gemm.n}, tile_n, advice);
  QuantiseWaves(gemm, tile_m, tile_n, roofline.multiprocessors, advice);
  return advice;
}

}  // namespace gemmill
