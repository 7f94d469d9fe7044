// Normalize and its gradient, parallel over rows. The mean is kept to more than the values' own precision, so that
// rows far from zero keep their differences. A row of one element has variance 0; rows of none make rstd 1 /
// sqrt(epsilon).
#include <algorithm>
#include <cmath>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/lanes.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"

namespace gemmill::cpu {
namespace {

template <typename T, typename C = ComputeType<T>>
void NormalizeRow(const T* x, int64_t n, bool centered, double epsilon, T* y, C* rstd) {
  const double elements = static_cast<double>(std::max<int64_t>(n, 1));
  Lanes<C> lanes;
  double mean = 0;
  if (centered) {
    RowSum<C> total;
    ForEachLanes<C>(n, [&](int64_t i, auto count) {
      LoadLanes<C>(x + i, count, C{0}, lanes);
      total.Add(lanes);
    });
    mean = total.Total() / elements;
  }
  const C high = static_cast<C>(mean);
  const C low = static_cast<C>(mean - static_cast<double>(high));
  const auto deviation = [&](C value) { return value - high - low; };

  RowSum<C> squares;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(x + i, count, C{0}, lanes, deviation);
    squares.Add(lanes * lanes);
  });
  const C scale = static_cast<C>(1 / std::sqrt(squares.Total() / elements + epsilon));
  *rstd = scale;
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
              NormalizeRow(arguments.in<T>(0) + row * n, n, op.centered, static_cast<double>(op.epsilon),
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
