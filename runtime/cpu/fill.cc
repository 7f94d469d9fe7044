// Tensors made of a number, of positions, or of another dtype.
#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {
namespace {

// Rounds once, also to bf16.
template <typename To, typename From>
To Rounded(From x) {
  if constexpr (!std::is_same_v<To, bf16> || std::is_same_v<ComputeType<From>, float>) {
    return Store<To>(scalar::Convert<ComputeType<To>>(Load(x)));
  } else if constexpr (std::is_same_v<From, int64_t>) {
    return bf16(scalar::RoundToOdd(x));
  } else {
    return bf16(scalar::RoundToOdd(static_cast<double>(x)));
  }
}

template <typename From, typename To>
Kernel CastKernel(int64_t count) {
  return {.run = [count](const KernelArguments& args, Stream&) {
    const From* x = args.in<From>(0);
    To* y = args.out<To>(0);
    ParallelFor(count, Grain(0.4), [=](int64_t begin, int64_t end) {
      GM_INDEPENDENT
      for (int64_t i = begin; i < end; ++i) y[i] = Rounded<To>(x[i]);
    });
    return absl::OkStatus();
  }};
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Cast& op, Specs in, Specs out) {
  return DispatchAny(in[0].dtype, [&](auto from) {
    return DispatchAny(op.dtype, [&](auto to) {
      return CastKernel<typename decltype(from)::Type, typename decltype(to)::Type>(out[0].num_elements());
    });
  });
}

absl::StatusOr<Kernel> Prepare(const op::Fill& op, Specs, Specs out) {
  return DispatchAny(op.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T value = Rounded<T>(op.value);
    return Kernel{.run = [value, count = out[0].num_elements()](const KernelArguments& args, Stream&) {
      T* y = args.out<T>(0);
      ParallelFor(count, Grain(0.1), [=](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
      return absl::OkStatus();
    }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::Iota& op, Specs, Specs) {
  return Kernel{.run = [count = op.size](const KernelArguments& args, Stream&) {
    int64_t* y = args.out<int64_t>(0);
    ParallelFor(count, Grain(0.3), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = i;
    });
    return absl::OkStatus();
  }};
}

}  // namespace gemmill::cpu
