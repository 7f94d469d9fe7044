// Functions of one element and their gradients, and the choice between two. See binary.cc for functions of two
// elements.
#include "gemmill/runtime/cpu/elementwise.h"

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {
namespace {

template <UnaryFn kFn, typename T>
void ApplyUnary(const void* x_data, int64_t begin, int64_t end, void* y_data) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  GM_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) y[i] = Store<T>(scalar::Apply<kFn>(Load(x[i])));
}

template <UnaryFn kFn>
UnaryLoop ChooseUnary(DType dtype) {
  if constexpr (kFn == UnaryFn::kNeg || kFn == UnaryFn::kAbs || kFn == UnaryFn::kRelu) {
    if (dtype == DType::kI32) return &ApplyUnary<kFn, int32_t>;
    if (dtype == DType::kI64) return &ApplyUnary<kFn, int64_t>;
  }
  return DispatchFloating(dtype, [](auto tag) -> UnaryLoop { return &ApplyUnary<kFn, typename decltype(tag)::Type>; });
}

template <UnaryFn kFn, typename T>
void ApplyUnaryGrad(const void* v_data, const void* dy_data, int64_t begin, int64_t end, void* dx_data) {
  const T* v = static_cast<const T*>(v_data);
  const T* dy = static_cast<const T*>(dy_data);
  T* dx = static_cast<T*>(dx_data);
  GM_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) dx[i] = Store<T>(Load(dy[i]) * scalar::Derivative<kFn>(Load(v[i])));
}

using WhereRun = void (*)(const void* condition, const void* a, const void* b, int64_t n, void* out);

// Bit k of kStrides is the inner stride of array k of condition, a, b.
template <int kStrides, typename T>
void RunWhere(const void* condition_data, const void* a_data, const void* b_data, int64_t n, void* out_data) {
  const uint8_t* condition = static_cast<const uint8_t*>(condition_data);
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  T* out = static_cast<T*>(out_data);
  GM_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T if_true = a[kStrides & 2 ? i : 0];
    const T if_false = b[kStrides & 4 ? i : 0];
    out[i] = condition[kStrides & 1 ? i : 0] != 0 ? if_true : if_false;
  }
}

}  // namespace

double UnaryCost(UnaryFn fn, DType dtype) {
  switch (fn) {
    case UnaryFn::kNeg:
    case UnaryFn::kAbs:
    case UnaryFn::kSqrt:
    case UnaryFn::kRsqrt:
    case UnaryFn::kRelu:
      return 0.2;
    case UnaryFn::kSin:
    case UnaryFn::kCos:
      return 8;
    default:
      return dtype == DType::kF64 ? 10 : 0.8;
  }
}

UnaryLoop UnaryLoopOf(UnaryFn fn, DType dtype) {
  return DispatchEnum<UnaryFn, kUnaryFnCount>(
      fn, [&](auto constant) { return ChooseUnary<decltype(constant)::value>(dtype); });
}

UnaryGradLoop UnaryGradLoopOf(UnaryFn fn, DType dtype) {
  return DispatchEnum<UnaryFn, kUnaryFnCount>(fn, [&](auto constant) {
    return DispatchFloating(dtype, [](auto tag) -> UnaryGradLoop {
      return &ApplyUnaryGrad<decltype(constant)::value, typename decltype(tag)::Type>;
    });
  });
}

absl::StatusOr<Kernel> Prepare(const op::Unary& op, Specs in, Specs out) {
  const DType dtype = in[0].dtype;
  const UnaryLoop apply = UnaryLoopOf(op.fn, dtype);
  return Kernel{.run = [apply, count = out[0].num_elements(), grain = Grain(UnaryCost(op.fn, dtype))](
                           const KernelArguments& args, Stream&) {
    ParallelFor(count, grain, [&](int64_t begin, int64_t end) { apply(args.inputs[0], begin, end, args.outputs[0]); });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> Prepare(const op::UnaryGrad& op, Specs in, Specs out) {
  const DType dtype = in[0].dtype;
  const UnaryGradLoop apply = UnaryGradLoopOf(op.fn, dtype);
  return Kernel{.run = [apply, count = out[0].num_elements(), grain = Grain(UnaryCost(op.fn, dtype))](
                           const KernelArguments& args, Stream&) {
    ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      apply(args.inputs[0], args.inputs[1], begin, end, args.outputs[0]);
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> Prepare(const op::Where&, Specs in, Specs out) {
  const StridedLoop<4> loop = BroadcastLoop<3>(out[0].shape, {&in[0].shape, &in[1].shape, &in[2].shape});
  const int strides = static_cast<int>(loop.inner_stride(1) + 2 * loop.inner_stride(2) + 4 * loop.inner_stride(3));
  const WhereRun run = DispatchEnum<int, 8>(strides, [&](auto mask) {
    return DispatchBytes(out[0].dtype, [](auto tag) -> WhereRun {
      return &RunWhere<decltype(mask)::value, typename decltype(tag)::Type>;
    });
  });
  return Kernel{.run = [run, loop, size = SizeOf(out[0].dtype)](const KernelArguments& args, Stream&) {
    ParallelFor(loop.count(), Grain(0.3), [&](int64_t begin, int64_t end) {
      loop.ForEachRun(begin, end, [&](const StridedLoop<4>::Strides& offsets, int64_t n) {
        run(args.in<char>(0) + offsets[1], args.in<char>(1) + offsets[2] * size, args.in<char>(2) + offsets[3] * size,
            n, args.out<char>(0) + offsets[0] * size);
      });
    });
    return absl::OkStatus();
  }};
}

}  // namespace gemmill::cpu
