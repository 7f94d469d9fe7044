// oneDNN 2.6 and 3.x behind one face: what differs between them is written here and nowhere else. Include it only where
// GEMMILL_WITH_ONEDNN is defined. The functions may throw dnnl::error.
#pragma once

#include "oneapi/dnnl/dnnl.hpp"

#ifdef GEMMILL_WITH_OPENMP
#include <omp.h>
#endif

namespace gemmill::cpu::onednn {

inline const dnnl::engine& CpuEngine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

// Scratchpads are the caller's: the library's own is global and not safe to use from several threads.
inline dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Empty where the library has no implementation for these descriptors on this machine.
inline dnnl::matmul::primitive_desc MatMulDescriptor(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                                     const dnnl::memory::desc& c,
                                                     const dnnl::primitive_attr& attributes) {
  constexpr bool kAllowEmpty = true;
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(CpuEngine(), a, b, c, attributes, kAllowEmpty);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, CpuEngine(), kAllowEmpty);
#endif
}

// While it lives, primitives that this thread creates or executes use `threads` threads. Both must see the same number:
// scratchpads are sized for the threads at creation.
class ScopedThreads {
 public:
#ifdef GEMMILL_WITH_OPENMP
  explicit ScopedThreads(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ScopedThreads() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }

 private:
  int before_;
#else
  explicit ScopedThreads(int) {}
#endif

 public:
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;
};

}  // namespace gemmill::cpu::onednn
