// Softmax and its gradient, parallel over rows. A row that holds a NaN or +inf becomes NaN.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/cpu/softmax_row.h"

namespace gemmill::cpu {
namespace {

template <typename T, typename C = ComputeType<T>>
void SoftmaxRow(const T* x, int64_t n, T* y) {
  C* exponentials = nullptr;
  if constexpr (std::is_same_v<T, C>) exponentials = y;
  const RowSoftmax<C> softmax(x, n, exponentials);
  const C shift = softmax.shift;
  const C scale = softmax.sum == 0 ? C{0} : static_cast<C>(1 / softmax.sum);
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    Lanes<C> lanes;
    if constexpr (std::is_same_v<T, C>) {
      LoadLanes<C>(y + i, count, C{0}, lanes);
    } else {  // y would round the exponentials
      LoadLanes<C>(x + i, count, C{0}, lanes, [&](C value) { return scalar::Exp(value - shift); });
    }
    lanes *= scale;
    StoreLanes<C>(lanes, y + i, count);
  });
}

template <typename T, typename C = ComputeType<T>>
void LogSoftmaxRow(const T* x, int64_t n, T* y) {
  const RowSoftmax<C> softmax(x, n);
  const C shift = softmax.shift;
  const C log_sum = static_cast<C>(softmax.LogSum());
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    Lanes<C> lanes;
    LoadLanes<C>(x + i, count, C{0}, lanes);
    lanes = lanes - shift - log_sum;
    StoreLanes<C>(lanes, y + i, count);
  });
}

// dx = y (dy - sum(y dy)).
template <typename T, typename C = ComputeType<T>>
void SoftmaxGradRow(const T* y, const T* dy, int64_t n, T* dx) {
  Lanes<C> a, b;
  RowSum<C> total;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(y + i, count, C{0}, a);
    LoadLanes<C>(dy + i, count, C{0}, b);
    total.Add(a * b);
  });
  const C sum = static_cast<C>(total.Total());
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(y + i, count, C{0}, a);
    LoadLanes<C>(dy + i, count, C{0}, b);
    a *= b - sum;
    StoreLanes<C>(a, dx + i, count);
  });
}

// dx = dy - exp(y) sum(dy).
template <typename T, typename C = ComputeType<T>>
void LogSoftmaxGradRow(const T* y, const T* dy, int64_t n, T* dx) {
  constexpr C kMinusInfinity = -std::numeric_limits<C>::infinity();
  if (std::all_of(y, y + n, [](T value) { return Load(value) == kMinusInfinity; })) {
    std::fill(dx, dx + n, T{});
    return;
  }
  Lanes<C> a, b;
  RowSum<C> total;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(dy + i, count, C{0}, b);
    total.Add(b);
  });
  const C sum = static_cast<C>(total.Total());
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    LoadLanes<C>(y + i, count, C{0}, a, [](C value) { return scalar::Exp(value); });
    LoadLanes<C>(dy + i, count, C{0}, b);
    b -= a * sum;
    StoreLanes<C>(b, dx + i, count);
  });
}

// Calls body(first element of the row) over rows of n elements that together are `elements`.
template <typename Body>
void ForEachRow(int64_t elements, int64_t n, double cost, const Body& body) {
  if (elements == 0) return;
  ParallelFor(elements / n, Grain(cost * static_cast<double>(n) + 10), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row * n);
  });
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Softmax& op, Specs in, Specs) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[log = op.log, elements = in[0].num_elements(), n = in[0].shape.back()](
                      const KernelArguments& arguments, Stream&) {
      ForEachRow(elements, n, sizeof(T) == 8 ? 10 : 0.6, [&](int64_t at) {
        const T* x = arguments.in<T>(0) + at;
        T* y = arguments.out<T>(0) + at;
        log ? LogSoftmaxRow(x, n, y) : SoftmaxRow(x, n, y);
      });
      return absl::OkStatus();
    }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::SoftmaxGrad& op, Specs in, Specs) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[log = op.log, elements = in[0].num_elements(), n = in[0].shape.back()](
                      const KernelArguments& arguments, Stream&) {
      ForEachRow(elements, n, sizeof(T) == 8 ? 10 : 0.6, [&](int64_t at) {
        const T* y = arguments.in<T>(0) + at;
        const T* dy = arguments.in<T>(1) + at;
        T* dx = arguments.out<T>(0) + at;
        log ? LogSoftmaxGradRow(y, dy, n, dx) : SoftmaxGradRow(y, dy, n, dx);
      });
      return absl::OkStatus();
    }};
  });
}

}  // namespace gemmill::cpu
