// Lanes: a row's elements, 64 bytes of the compute type at a time. Sums and maxima along a row run in lanes that are
// written out, because a compiler may not reorder floating-point additions; and so their bits are those of any machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gemmill/runtime/cpu/dispatch.h"

namespace gemmill::cpu {

// Vectors of GCC and Clang: arithmetic and ?: work lane by lane, on any instruction set. Passed by reference, because
// how they are passed by value depends on the instruction set.
template <typename C, int kBytes>
struct VectorOf {
  typedef C Type __attribute__((vector_size(kBytes)));
};
template <typename C>
using Lanes = typename VectorOf<C, 64>::Type;
template <typename C>
inline constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(C));

// How many lanes hold elements: all, known when compiling, or fewer, at the end of a row.
template <typename C>
using AllLanes = std::integral_constant<int64_t, kLanes<C>>;

// Calls body(i, count) for the elements [i, i + count) of a row of n, count being AllLanes<C> or, at the end, an
// int64_t.
template <typename C, typename Body>
[[gnu::always_inline]] inline void ForEachLanes(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes<C> <= n; i += kLanes<C>) body(i, AllLanes<C>());
  if (i < n) body(i, n - i);
}

// lanes[i] = x[i], or `padding` in lanes from `count` on. bf16 is widened by whole vectors: a loop over elements of two
// sizes would go through half vectors.
template <typename C, typename T, typename Count>
[[gnu::always_inline]] inline void LoadLanes(const T* x, Count count, C padding, Lanes<C>& lanes) {
  if constexpr (std::is_same_v<T, bf16>) {
    uint16_t values[kLanes<C>];
    const uint16_t pad = bf16(padding).bits;
    for (int64_t i = 0; i < kLanes<C>; ++i) values[i] = i < count ? x[i].bits : pad;
    VectorOf<uint16_t, 32>::Type bits;
    std::memcpy(&bits, values, sizeof(bits));
    const Lanes<uint32_t> words = __builtin_convertvector(bits, Lanes<uint32_t>) << 16;
    std::memcpy(&lanes, &words, sizeof(lanes));
  } else {
    C values[kLanes<C>];
    for (int64_t i = 0; i < kLanes<C>; ++i) values[i] = i < count ? x[i] : padding;
    std::memcpy(&lanes, values, sizeof(lanes));
  }
}

// lanes[i] = f(x[i]), or `padding` in lanes from `count` on.
template <typename C, typename T, typename Count, typename F>
[[gnu::always_inline]] inline void LoadLanes(const T* x, Count count, C padding, Lanes<C>& lanes, const F& f) {
  LoadLanes(x, count, C{0}, lanes);
  C values[kLanes<C>];
  std::memcpy(values, &lanes, sizeof(lanes));
  for (int64_t i = 0; i < kLanes<C>; ++i) values[i] = i < count ? f(values[i]) : padding;
  std::memcpy(&lanes, values, sizeof(lanes));
}

template <typename C, typename T, typename Count>
[[gnu::always_inline]] inline void StoreLanes(const Lanes<C>& lanes, T* y, Count count) {
  if constexpr (std::is_same_v<T, bf16>) {
    // bf16(float), by whole vectors.
    Lanes<uint32_t> words;
    std::memcpy(&words, &lanes, sizeof(words));
    const Lanes<uint32_t> rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16;
    words = (words & 0x7FFFFFFF) > 0x7F800000 ? (words >> 16) | 0x40 : rounded;
    const auto narrow = __builtin_convertvector(words, VectorOf<uint16_t, 32>::Type);
    uint16_t bits[kLanes<C>];
    std::memcpy(bits, &narrow, sizeof(bits));
    for (int64_t i = 0; i < kLanes<C>; ++i) {
      if (i < count) y[i].bits = bits[i];
    }
  } else {
    C values[kLanes<C>];
    std::memcpy(values, &lanes, sizeof(lanes));
    for (int64_t i = 0; i < kLanes<C>; ++i) {
      if (i < count) y[i] = values[i];
    }
  }
}

// The lanes of a vector folded in halves to one value: fold(a, b) combines two vectors, the second overwritten.
template <typename C, int kBytes, typename F>
[[gnu::always_inline]] inline C FoldLanes(const typename VectorOf<C, kBytes>::Type& lanes, const F& fold) {
  if constexpr (kBytes == sizeof(C)) {
    return lanes[0];
  } else {
    typename VectorOf<C, kBytes / 2>::Type low, high;
    std::memcpy(&low, &lanes, sizeof(low));
    std::memcpy(&high, reinterpret_cast<const char*>(&lanes) + sizeof(low), sizeof(high));
    fold(low, high);
    return FoldLanes<C, kBytes / 2>(high, fold);
  }
}

// A sum along a row. Runs of at most 16 additions in C go into f64.
template <typename C>
class RowSum {
 public:
  [[gnu::always_inline]] void Add(const Lanes<C>& lanes) {
    run_ += lanes;
    if (++count_ == 16) Flush();
  }

  [[gnu::always_inline]] double Total() {
    Flush();
    return FoldLanes<double, sizeof(total_)>(total_, [](const auto& a, auto& b) { b += a; });
  }

 private:
  using Wide = typename VectorOf<double, kLanes<C>* static_cast<int>(sizeof(double))>::Type;

  [[gnu::always_inline]] void Flush() {
    total_ += __builtin_convertvector(run_, Wide);
    run_ = Lanes<C>{};
    count_ = 0;
  }

  Lanes<C> run_ = {};
  Wide total_ = {};
  int count_ = 0;
};

// The largest element of a row, -inf if it has none. NaNs may or may not be passed over.
template <typename C, typename T>
[[gnu::always_inline]] inline C RowMax(const T* x, int64_t n) {
  constexpr C kMinusInfinity = -std::numeric_limits<C>::infinity();
  Lanes<C> max = Lanes<C>{} + kMinusInfinity;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    Lanes<C> next;
    LoadLanes<C>(x + i, count, kMinusInfinity, next);
    max = next > max ? next : max;
  });
  return FoldLanes<C, sizeof(max)>(max, [](const auto& a, auto& b) { b = a > b ? a : b; });
}

}  // namespace gemmill::cpu
