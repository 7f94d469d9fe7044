// Normalize and its gradient, parallel over rows. The mean is kept to more than the values' own precision, so that
// rows far from zero keep their differences; a row whose squares overflow, or are too small to hold their digits, is
// scaled by a power of two first. A row of one element has variance 0; rows of none make rstd 1 /
// sqrt(epsilon).
#include <algorithm>
#include <cmath>
#include <limits>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/lanes.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"

namespace gemmill::cpu {
namespace {

// A power of two by which the row's largest element becomes about 1. 1 for a row of zeros, infinities or NaN.
template <typename T, typename C = ComputeType<T>>
C RowScale(const T* x, int64_t n) {
  C largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(Load(x[i])));
  if (largest == 0 || !std::isfinite(largest)) return 1;
  constexpr int kExponent = std::numeric_limits<C>::max_exponent - 2;  // its inverse is not denormal
  return std::ldexp(C{1}, -std::clamp(std::ilogb(largest), -kExponent, kExponent));
}

// If kScaled, y and rstd of x are found from x * by, where `by` is a power of two.
template <bool kScaled, typename T, typename C = ComputeType<T>>
void NormalizeRow(const T* x, int64_t n, bool centered, double epsilon, T* y, C* rstd, C by = 1) {
  const auto scaled = [by](const auto& value) { return kScaled ? value * by : value; };
  const double elements = static_cast<double>(std::max<int64_t>(n, 1));
  Lanes<C> lanes;
  double mean = 0;
  if (centered) {
    RowSum<C> total;
    ForEachLanes<C>(n, [&](int64_t i, auto count) {
      LoadLanes<C>(x + i, count, C{0}, lanes);
      total.Add(scaled(lanes));
    });
    mean = total.Total() / elements;
  }
  const C high = static_cast<C>(mean);
  const C low = static_cast<C>(mean - static_cast<double>(high));
  const auto deviation = [&](C value) { return scaled(value) - high - low; };

  RowSum<C> squares;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(x + i, count, C{0}, lanes, deviation);
    squares.Add(lanes * lanes);
  });
  const double wide_by = static_cast<double>(by);
  const double variance = squares.Total() / elements + epsilon * wide_by * wide_by;
  using Limits = std::numeric_limits<C>;
  const bool holds = std::isfinite(variance) && variance >= static_cast<double>(Limits::min() / Limits::epsilon());
  if (!kScaled && !holds) return NormalizeRow<true>(x, n, centered, epsilon, y, rstd, RowScale(x, n));
  const double inverse = 1 / std::sqrt(variance);
  *rstd = static_cast<C>(inverse * wide_by);
  const C scale = static_cast<C>(inverse);
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(x + i, count, C{0}, lanes, deviation);
    lanes *= scale;
    StoreLanes<C>(lanes, y + i, count);
  });
}

// dx = rstd (dy - mean(dy) - y mean(y dy)), without mean(dy) where y was not centered.
template <typename T, typename C = ComputeType<T>>
void NormalizeGradRow(const T* y, C rstd, const T* dy, int64_t n, bool centered, T* dx) {
  Lanes<C> a, b;
  RowSum<C> sum_dy, sum_y_dy;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(y + i, count, C{0}, a);
    LoadLanes<C>(dy + i, count, C{0}, b);
    sum_dy.Add(b);
    sum_y_dy.Add(a * b);
  });
  const C mean_dy = centered ? static_cast<C>(sum_dy.Total() / static_cast<double>(n)) : C{0};
  const C mean_y_dy = static_cast<C>(sum_y_dy.Total() / static_cast<double>(n));
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(y + i, count, C{0}, a);
    LoadLanes<C>(dy + i, count, C{0}, b);
    a = rstd * (b - mean_dy - a * mean_y_dy);
    StoreLanes<C>(a, dx + i, count);
  });
}

constexpr double kCost = 0.4;  // nanoseconds an element

int64_t RowGrain(int64_t n) { return Grain(kCost * static_cast<double>(n) + 10); }

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Normalize& op, Specs in, Specs out) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{
        [op, n = in[0].shape.back(), rows = out[1].num_elements()](const KernelArguments& arguments, Stream&) {
          ParallelFor(rows, RowGrain(n), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              NormalizeRow<false>(arguments.in<T>(0) + row * n, n, op.centered, static_cast<double>(op.epsilon),
                                  arguments.out<T>(0) + row * n, arguments.out<ComputeType<T>>(1) + row);
            }
          });
          return absl::OkStatus();
        }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::NormalizeGrad& op, Specs in, Specs) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[centered = op.centered, n = in[0].shape.back(), rows = in[1].num_elements()](
                      const KernelArguments& arguments, Stream&) {
      if (n == 0) return absl::OkStatus();
      ParallelFor(rows, RowGrain(n), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          NormalizeGradRow(arguments.in<T>(0) + row * n, arguments.in<ComputeType<T>>(1)[row],
                           arguments.in<T>(2) + row * n, n, centered, arguments.out<T>(0) + row * n);
        }
      });
      return absl::OkStatus();
    }};
  });
}

}  // namespace gemmill::cpu
