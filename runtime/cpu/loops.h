// Loops over arrays that are walked together, each with its own strides: broadcasting and copies between layouts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "gemmill/runtime/spec.h"

// Before a loop whose iterations do not depend on one another: arrays are disjoint, or written only at the index read.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"  // a loop that calls sin, say, stays scalar
#endif
#if defined(_OPENMP)
#define GM_INDEPENDENT _Pragma("omp simd")
#elif defined(__clang__)
#define GM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define GM_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace gemmill::cpu {

// The index space of kArrays arrays. Dimensions of size 1 vanish and those that can be walked as one are merged, so
// that the innermost run is as long as can be.
template <size_t kArrays>
class StridedLoop {
 public:
  using Strides = std::array<int64_t, kArrays>;  // in elements
  struct Dimension {
    int64_t size = 1;
    Strides strides = {};
  };

  // Appends a dimension inside the present ones.
  void Add(int64_t size, const Strides& strides) {
    count_ *= size;
    if (size == 1) return;
    if (!dimensions_.empty()) {
      bool merges = true;
      for (size_t k = 0; k < kArrays; ++k) merges = merges && dimensions_.back().strides[k] == size * strides[k];
      if (merges) {
        dimensions_.back() = {dimensions_.back().size * size, strides};
        return;
      }
    }
    dimensions_.push_back({size, strides});
  }

  int64_t count() const { return count_; }
  // None where the count is 1.
  const absl::InlinedVector<Dimension, 6>& dimensions() const { return dimensions_; }
  int64_t inner_stride(size_t array) const { return dimensions_.empty() ? 1 : dimensions_.back().strides[array]; }

  // Calls body(offsets, n) for the runs that make up elements [begin, end) in order: n elements from these offsets,
  // each array advancing by its inner_stride.
  template <typename Body>
  void ForEachRun(int64_t begin, int64_t end, const Body& body) const {
    Strides offsets = {};
    if (dimensions_.empty()) {
      if (begin < end) body(offsets, int64_t{1});
      return;
    }
    const size_t inner = dimensions_.size() - 1;
    absl::InlinedVector<int64_t, 6> index(dimensions_.size());
    int64_t rest = begin;
    for (size_t d = dimensions_.size(); d-- > 0; rest /= dimensions_[d].size) {
      index[d] = rest % dimensions_[d].size;
      Advance(d, index[d], offsets);
    }
    while (begin < end) {
      const int64_t n = std::min(dimensions_[inner].size - index[inner], end - begin);
      body(offsets, n);
      begin += n;
      index[inner] += n;
      Advance(inner, n, offsets);
      for (size_t d = inner; d > 0 && index[d] == dimensions_[d].size; --d) {
        index[d] = 0;
        Advance(d, -dimensions_[d].size, offsets);
        ++index[d - 1];
        Advance(d - 1, 1, offsets);
      }
    }
  }

 private:
  void Advance(size_t d, int64_t steps, Strides& offsets) const {
    for (size_t k = 0; k < kArrays; ++k) offsets[k] += steps * dimensions_[d].strides[k];
  }

  int64_t count_ = 1;
  absl::InlinedVector<Dimension, 6> dimensions_;
};

// The strides of a contiguous array, which is not empty.
inline Shape ContiguousStrides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

// Array 0 has the shape `out`; `shapes` are broadcast to it by NumPy's rules. Every inner_stride is 0 or 1.
template <size_t kInputs>
StridedLoop<kInputs + 1> BroadcastLoop(const Shape& out, const std::array<const Shape*, kInputs>& shapes) {
  StridedLoop<kInputs + 1> loop;
  if (NumElements(out) == 0) {  // the other dimensions may be of any size
    loop.Add(0, {});
    return loop;
  }
  const Shape out_strides = ContiguousStrides(out);
  std::array<Shape, kInputs> in_strides;
  for (size_t k = 0; k < kInputs; ++k) in_strides[k] = ContiguousStrides(*shapes[k]);
  for (size_t d = 0; d < out.size(); ++d) {
    std::array<int64_t, kInputs + 1> strides = {out_strides[d]};
    for (size_t k = 0; k < kInputs; ++k) {
      const size_t missing = out.size() - shapes[k]->size();
      const bool repeats = d < missing || (*shapes[k])[d - missing] == 1;
      strides[k + 1] = repeats ? 0 : in_strides[k][d - missing];
    }
    loop.Add(out[d], strides);
  }
  return loop;
}

}  // namespace gemmill::cpu
