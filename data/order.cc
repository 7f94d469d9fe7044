#include "gemmill/data/order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gemmill {
namespace {

// SplitMix64 (Steele, Lea, Flood, 2014): a counter, mixed. std::shuffle and std's distributions differ between
// libraries.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound), without bias: Lemire, "Fast Random Integer Generation in an Interval" (2019).
  uint64_t Below(uint64_t bound) {
    unsigned __int128 product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = -bound % bound;
      while (static_cast<uint64_t>(product) < threshold) product = static_cast<unsigned __int128>(Next()) * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<int64_t> EpochOrder(int64_t samples, bool shuffle, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(samples));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  // Mixing the seed before the epoch joins it keeps (seed, epoch + 1) and (seed + 1, epoch) apart.
  SplitMix64 random(SplitMix64(seed).Next() + static_cast<uint64_t>(epoch));
  random = SplitMix64(random.Next());
  for (uint64_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

Share RankShare(int64_t samples, int64_t rank, int64_t world) {
  const int64_t each = samples / world;
  const int64_t extra = samples % world;
  const int64_t begin = rank * each + std::min(rank, extra);
  return {begin, begin + each + (rank < extra ? 1 : 0)};
}

}  // namespace gemmill
