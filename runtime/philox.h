// Philox4x32-10, the counter-based random numbers of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy
// as 1, 2, 3" (2011): a pure function of a key and a counter, so that any number can be made anywhere, in any order.
//
// The key is a 64-bit seed. Counters, whose last word tells the uses apart:
//   dropout     (index low, index high, column / 4, step); the key is the seed with the stream mixed in
//   sequences   (block low, block high, stream, 0xFFFFFFFF)
// Dropout masks of a stream are thus distinct for columns below 2^34 and steps below 2^32 - 1.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "gemmill/runtime/scalar_math.h"

namespace gemmill::philox {

using Words = std::array<uint32_t, 4>;

// 128 random bits.
GM_HD void Generate(uint64_t key, uint32_t counter0, uint32_t counter1, uint32_t counter2, uint32_t counter3,
                    uint32_t* words) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter2;
    counter0 = static_cast<uint32_t>(product1 >> 32) ^ counter1 ^ key0;
    counter2 = static_cast<uint32_t>(product0 >> 32) ^ counter3 ^ key1;
    counter1 = static_cast<uint32_t>(product1);
    counter3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  words[0] = counter0;
  words[1] = counter1;
  words[2] = counter2;
  words[3] = counter3;
}

// SplitMix64's finalizer (Steele, Lea and Flood, 2014): a bijection that leaves 0 alone and scatters the rest.
GM_HD uint64_t Scatter(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The words of columns 4 * block, ..., 4 * block + 3 of a dropout mask's row.
GM_HD void GenerateDropout(uint64_t seed, int64_t index, int64_t block, int64_t step, int64_t stream, uint32_t* words) {
  const uint64_t row = static_cast<uint64_t>(index);
  Generate(seed ^ Scatter(static_cast<uint64_t>(stream)), static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
           static_cast<uint32_t>(block), static_cast<uint32_t>(step), words);
}

// A word below this drops the element: rate * 2^32.
GM_HD uint64_t DropoutThreshold(float rate) { return static_cast<uint64_t>(static_cast<double>(rate) * 4294967296.0); }

// [0, 1), a multiple of 2^-24.
GM_HD float Uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// A sequence of random numbers, for initial values. Streams of one seed are independent of one another, and element i
// is the same however many are asked for.
class Sequence {
 public:
  Sequence(uint64_t seed, uint32_t stream) : seed_(seed), stream_(stream) {}

  // Element i of uniform numbers in [0, 1).
  float Uniform(int64_t i) const { return philox::Uniform(Block(i / 4)[static_cast<size_t>(i % 4)]); }

  // Element i of normal numbers of mean 0 and variance 1, by Box and Muller's transform. Computed in f64: a normal
  // number is as far out in the tail as its uniform one is close to 0.
  float Normal(int64_t i) const {
    constexpr double kTwoPi = 6.28318530717958647693;
    const Words words = Block(i / 4);
    const size_t pair = static_cast<size_t>(i % 4 / 2) * 2;
    const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(words[pair]) + 0.5) * 0x1p-32));
    const double angle = kTwoPi * static_cast<double>(words[pair + 1]) * 0x1p-32;
    return static_cast<float>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }

 private:
  Words Block(int64_t block) const {
    const uint64_t counter = static_cast<uint64_t>(block);
    Words words;
    Generate(seed_, static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), stream_, 0xFFFFFFFF,
             words.data());
    return words;
  }

  uint64_t seed_;
  uint32_t stream_;
};

}  // namespace gemmill::philox
