// Functions of two elements, with broadcasting.
#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/scalar_math.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

// Which operand stays the same along the innermost run, if any.
enum class Repeats { kNeither, kA, kB };

using BinaryRun = void (*)(const void* a, const void* b, int64_t n, void* out);

template <BinaryFn kFn, typename T, Repeats kRepeats>
void RunBinary(const void* a_data, const void* b_data, int64_t n, void* out_data) {
  using Out = std::conditional_t<IsComparison(kFn), uint8_t, T>;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Out* out = static_cast<Out*>(out_data);
  const ComputeType<T> a0 = Load(a[0]);
  const ComputeType<T> b0 = Load(b[0]);
  GM_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const ComputeType<T> x = kRepeats == Repeats::kA ? a0 : Load(a[i]);
    const ComputeType<T> y = kRepeats == Repeats::kB ? b0 : Load(b[i]);
    out[i] = Store<Out>(scalar::Apply<kFn>(x, y));
  }
}

template <typename T, Repeats kRepeats>
BinaryRun ChooseBinary(BinaryFn fn) {
  return DispatchEnum<BinaryFn, kBinaryFnCount>(
      fn, [](auto constant) -> BinaryRun { return &RunBinary<decltype(constant)::value, T, kRepeats>; });
}

template <typename T>
absl::Status RefuseRightOperands(BinaryFn fn, const void* b_data, const Shape& shape) {
  const T* b = static_cast<const T*>(b_data);
  const T* end = b + NumElements(shape);
  const T* refused =
      fn == BinaryFn::kDiv ? std::find(b, end, T(0)) : std::find_if(b, end, [](T x) { return x < T(0); });
  if (refused == end) return absl::OkStatus();
  Shape index(shape.size());
  int64_t rest = refused - b;
  for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
  return OutOfRange(
      FnName(fn), ": the second operand, ", DTypeName(DTypeOf<T>::value), ShapeString(shape), ", is ",
      static_cast<int64_t>(*refused), " at index ", ShapeString(index),
      fn == BinaryFn::kDiv ? "; integers cannot be divided by 0" : "; an integer's power must be at least 0");
}

// OutOfRange where an integer would be divided by 0 or raised to a power below 0.
absl::Status CheckRightOperand(BinaryFn fn, const void* b, const Spec& spec) {
  if (spec.dtype == DType::kI32) return RefuseRightOperands<int32_t>(fn, b, spec.shape);
  if (spec.dtype == DType::kI64) return RefuseRightOperands<int64_t>(fn, b, spec.shape);
  return RefuseRightOperands<uint8_t>(fn, b, spec.shape);
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Binary& op, Specs in, Specs out) {
  const StridedLoop<3> loop = BroadcastLoop<2>(out[0].shape, {&in[0].shape, &in[1].shape});
  const BinaryRun run = DispatchAny(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (loop.inner_stride(1) == 0) return ChooseBinary<T, Repeats::kA>(op.fn);
    if (loop.inner_stride(2) == 0) return ChooseBinary<T, Repeats::kB>(op.fn);
    return ChooseBinary<T, Repeats::kNeither>(op.fn);
  });
  const bool has_check = !IsFloating(in[0].dtype) && (op.fn == BinaryFn::kDiv || op.fn == BinaryFn::kPow);
  return Kernel{.run = [run, loop, has_check, fn = op.fn, b_spec = in[1], in_size = SizeOf(in[0].dtype),
                        out_size = SizeOf(out[0].dtype), grain = Grain(op.fn == BinaryFn::kPow ? 10 : 0.3)](
                           const KernelArguments& args, Stream&) -> absl::Status {
    if (has_check && loop.count() > 0) GM_RETURN_IF_ERROR(CheckRightOperand(fn, args.inputs[1], b_spec));
    ParallelFor(loop.count(), grain, [&](int64_t begin, int64_t end) {
      loop.ForEachRun(begin, end, [&](const StridedLoop<3>::Strides& offsets, int64_t n) {
        run(args.in<char>(0) + offsets[1] * in_size, args.in<char>(1) + offsets[2] * in_size, n,
            args.out<char>(0) + offsets[0] * out_size);
      });
    });
    return absl::OkStatus();
  }};
}

}  // namespace gemmill::cpu
