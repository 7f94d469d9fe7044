// Denormals are flushed to zero alike wherever kernels run: they cost up to a hundred times a normal number, and
// moments of parameters that have no gradient decay into them.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gemmill::cpu {

// While it lives, on the calling thread. The caller's own setting is restored.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kFlushToZeroAndDenormalsAreZero = 0x8040;
    if ((before_ & kFlushToZeroAndDenormalsAreZero) != kFlushToZeroAndDenormalsAreZero) {
      _mm_setcsr(before_ | kFlushToZeroAndDenormalsAreZero);
    }
  }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif

 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace gemmill::cpu
