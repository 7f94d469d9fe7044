// GatedUnary and its gradient: a row's two halves in one pass.
#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/elementwise.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {
namespace {

template <UnaryFn kFn, typename T>
void Row(const T* gate, const T* up, int64_t n, T* y) {
  GM_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) y[j] = Store<T>(scalar::Apply<kFn>(Load(gate[j])) * Load(up[j]));
}

template <UnaryFn kFn, typename T>
void RowGrad(const T* gate, const T* up, const T* dy, int64_t n, T* dgate, T* dup) {
  GM_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const auto value = scalar::Apply<kFn>(Load(gate[j]));
    const auto slope = scalar::Derivative<kFn>(scalar::DerivativeTakesOutput(kFn) ? value : Load(gate[j]));
    dgate[j] = Store<T>(Load(dy[j]) * Load(up[j]) * slope);
    dup[j] = Store<T>(Load(dy[j]) * value);
  }
}

// Calls f with the tags of the function and of the dtype.
template <typename F>
Kernel ForFunction(UnaryFn fn, DType dtype, const F& f) {
  return DispatchEnum<UnaryFn, kUnaryFnCount>(
      fn, [&](auto constant) { return DispatchFloating(dtype, [&](auto tag) { return Kernel{f(constant, tag)}; }); });
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::GatedUnary& op, Specs in, Specs out) {
  const int64_t n = out[0].shape.back();
  const int64_t rows = n == 0 ? 0 : out[0].num_elements() / n;
  const int64_t grain = Grain((0.3 + UnaryCost(op.fn, in[0].dtype)) * static_cast<double>(n) + 1);
  return ForFunction(op.fn, in[0].dtype, [&](auto fn, auto tag) {
    using T = typename decltype(tag)::Type;
    return [=](const KernelArguments& arguments, Stream&) {
      ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* x = arguments.in<T>(0) + row * 2 * n;
          Row<decltype(fn)::value>(x, x + n, n, arguments.out<T>(0) + row * n);
        }
      });
      return absl::OkStatus();
    };
  });
}

absl::StatusOr<Kernel> Prepare(const op::GatedUnaryGrad& op, Specs in, Specs) {
  const int64_t n = in[1].shape.back();
  const int64_t rows = n == 0 ? 0 : in[1].num_elements() / n;
  const int64_t grain = Grain((0.5 + 2 * UnaryCost(op.fn, in[0].dtype)) * static_cast<double>(n) + 1);
  return ForFunction(op.fn, in[0].dtype, [&](auto fn, auto tag) {
    using T = typename decltype(tag)::Type;
    return [=](const KernelArguments& arguments, Stream&) {
      ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* x = arguments.in<T>(0) + row * 2 * n;
          T* dx = arguments.out<T>(0) + row * 2 * n;
          RowGrad<decltype(fn)::value>(x, x + n, arguments.in<T>(1) + row * n, n, dx, dx + n);
        }
      });
      return absl::OkStatus();
    };
  });
}

}  // namespace gemmill::cpu
