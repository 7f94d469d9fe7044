// Threads: OpenMP where the build has it, else the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemmill/runtime/cpu/denormals.h"
#include "gemmill/runtime/threads.h"

namespace gemmill::cpu {

// Calls body(begin, end) over disjoint ranges that cover [0, n), on up to NumThreads() threads, in ranges of at least
// `grain` items and multiples of it (but the last). The ranges depend on n, grain and NumThreads() alone, so sums that
// are kept per range are the same from run to run.
template <typename Body>
void ParallelFor(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(NumThreads(), grains);
  if (parts == 1) {
    body(int64_t{0}, n);
    return;
  }
#ifdef GEMMILL_WITH_OPENMP
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
#endif
  for (int64_t part = 0; part < parts; ++part) {
    const FlushDenormals flush;
    body(std::min(n, grains * part / parts * grain), std::min(n, grains * (part + 1) / parts * grain));
  }
}

// Items per range below which another thread costs more than it saves (an OpenMP region is about 3 us), for loops of
// about `cost` nanoseconds an item.
constexpr int64_t Grain(double cost) { return std::max<int64_t>(1, static_cast<int64_t>(8000 / cost)); }

}  // namespace gemmill::cpu
