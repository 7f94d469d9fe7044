// In which order the samples of an epoch are visited, and which of them each rank takes. Pure functions, the same on
// every machine and in every build.
#pragma once

#include <cstdint>
#include <vector>

namespace gemmill {

// The numbers 0, ..., samples - 1: a permutation drawn from (seed, epoch), or in order without `shuffle`.
std::vector<int64_t> EpochOrder(int64_t samples, bool shuffle, uint64_t seed, int64_t epoch);

// Samples begin, ..., end - 1 of `samples` in a row.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};

// Rank's part of `samples`: the ranks' parts follow one another, cover all, and differ in size by at most one; with
// fewer samples than ranks the last ranks' parts are empty.
Share RankShare(int64_t samples, int64_t rank, int64_t world);

}  // namespace gemmill
