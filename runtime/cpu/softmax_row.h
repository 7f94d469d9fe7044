// RowSoftmax: what Softmax and CrossEntropy need to know of a row.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "gemmill/runtime/cpu/lanes.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {

// softmax[i] = exp(x[i] - shift) / sum. Of a row that is all -inf, sum is 0.
template <typename C>
struct RowSoftmax {
  // If `exponentials` is given, writes exp(x[i] - shift) there; it may be x.
  template <typename T>
  RowSoftmax(const T* x, int64_t n, C* exponentials = nullptr) {
    constexpr C kMinusInfinity = -std::numeric_limits<C>::infinity();
    const C max = RowMax<C>(x, n);
    const C by = max == kMinusInfinity ? C{0} : max;  // -inf - -inf would be NaN
    RowSum<C> total;
    ForEachLanes<C>(n, [&](int64_t i, auto count) {
      Lanes<C> lanes;
      LoadLanes<C>(x + i, count, C{0}, lanes, [&](C value) { return scalar::Exp(value - by); });
      total.Add(lanes);
      if (exponentials != nullptr) StoreLanes<C>(lanes, exponentials + i, count);
    });
    shift = by;
    sum = total.Total();
  }

  // 0 where sum is.
  double LogSum() const { return sum == 0 ? 0 : std::log(sum); }
  C LogSumExp() const {
    return sum == 0 ? -std::numeric_limits<C>::infinity() : static_cast<C>(static_cast<double>(shift) + LogSum());
  }

  C shift;
  double sum;
};

}  // namespace gemmill::cpu
