// Sgd and AdamW: one parallel pass over the elements of all parameters together, so that many small tensors cost what
// one large one does. State and arithmetic are f32 (f64 for f64 weights); what depends on the step alone is f64.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"

namespace gemmill::cpu {
namespace {

// Elements updated at a time: what is copied for an output apart stays in the L1 cache.
constexpr int64_t kShareMultiple = 16;  // a cache line of f32
constexpr int64_t kBlock = 2048;
constexpr double kCost = 0.7;  // nanoseconds an element

// A parameter's place in the concatenation of all.
struct Parameter {
  int64_t begin = 0;
  int64_t end = 0;
  DType dtype = DType::kF32;
  DType gradient = DType::kF32;
  size_t master = 0;  // of a bf16 weight: which of the masters is its own
};

std::vector<Parameter> Concatenate(Specs in, size_t count) {
  std::vector<Parameter> parameters;
  int64_t end = 0;
  size_t masters = 0;
  for (size_t i = 0; i < count; ++i) {
    const Spec& weight = in[1 + i];
    const int64_t begin = end;
    end += weight.num_elements();
    parameters.push_back({begin, end, weight.dtype, in[1 + count + i].dtype, masters});
    if (weight.dtype == DType::kBf16) ++masters;
  }
  return parameters;
}

// Calls body(i, offset, count) over blocks of elements of parameter i that together cover all parameters. Each thread
// takes the same share of every parameter, as it does in the GEMMs around: what one has written the other needs less.
template <typename Body>
void ForEachBlock(const std::vector<Parameter>& parameters, const Body& body) {
  const int64_t total = parameters.empty() ? 0 : parameters.back().end;
  ParallelFor(total, Grain(kCost), [&](int64_t begin, int64_t end) {
    const auto place = [&](int64_t size, int64_t of_total) {
      if (of_total == total) return size;
      const double share = static_cast<double>(of_total) / static_cast<double>(total);
      return std::min(size, static_cast<int64_t>(share * static_cast<double>(size)) / kShareMultiple * kShareMultiple);
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t size = parameters[i].end - parameters[i].begin;
      const int64_t last = place(size, end);
      for (int64_t first = place(size, begin); first < last; first += kBlock) {
        body(i, first, std::min(kBlock, last - first));
      }
    }
  });
}

// The `control` input.
struct Control {
  explicit Control(const KernelArguments& arguments)
      : learning_rate(arguments.in<double>(0)[0]),
        step(arguments.in<double>(0)[1]),
        gradient_scale(arguments.in<double>(0)[2]) {}
  double learning_rate;
  double step;
  double gradient_scale;
};

template <typename C>
struct SgdFactors {
  C gradient_scale;
  C learning_rate;
  C weight_decay;
  C momentum;
};

template <typename C, typename G>
void SgdPlain(const SgdFactors<C>& factors, C* __restrict w, const G* __restrict g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const C gradient = Load(g[i]) * factors.gradient_scale + w[i] * factors.weight_decay;
    w[i] = w[i] - factors.learning_rate * gradient;
  }
}

template <bool kNesterov, typename C, typename G>
void SgdMomentum(const SgdFactors<C>& factors, C* __restrict w, const G* __restrict g, C* __restrict v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const C gradient = Load(g[i]) * factors.gradient_scale + w[i] * factors.weight_decay;
    const C velocity = factors.momentum * v[i] + gradient;
    v[i] = velocity;
    const C direction = kNesterov ? gradient + factors.momentum * velocity : velocity;
    w[i] = w[i] - factors.learning_rate * direction;
  }
}

template <typename C>
struct AdamWFactors {
  C gradient_scale;
  C decay;      // 1 - learning rate * weight decay
  C step_size;  // learning rate / (1 - beta1^step)
  C beta1, one_minus_beta1;
  C beta2, one_minus_beta2;
  C rsqrt_correction2;  // 1 / sqrt(1 - beta2^step)
  C epsilon;
};

template <typename C, typename G>
void AdamWUpdate(const AdamWFactors<C>& factors, C* __restrict w, const G* __restrict g, C* __restrict m,
                 C* __restrict v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const C gradient = Load(g[i]) * factors.gradient_scale;
    const C first = factors.beta1 * m[i] + factors.one_minus_beta1 * gradient;
    const C second = factors.beta2 * v[i] + factors.one_minus_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    const C denominator = std::sqrt(second) * factors.rsqrt_correction2 + factors.epsilon;
    w[i] = w[i] * factors.decay - factors.step_size * (first / denominator);
  }
}

// Output `o` from `offset` on, holding what input `i` holds there: updates work in place.
template <typename T>
T* InPlace(const KernelArguments& arguments, size_t i, size_t o, int64_t offset, int64_t count) {
  const T* from = arguments.in<T>(i) + offset;
  T* to = arguments.out<T>(o) + offset;
  if (to != from) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  return to;
}

// The tensors of a block of one parameter: kStates of state.
template <typename C, size_t kStates>
struct Block {
  C* weight;
  std::array<C*, kStates> state;
};

// The kernel of an update of `count` parameters. make_factors(control) gives a function from a TypeTag<C> and a
// parameter's number to its factors; update(factors, block, gradients, n) changes a block in place.
template <size_t kStates, typename MakeFactors, typename Update>
Kernel UpdateKernel(Specs in, size_t count, const MakeFactors& make_factors, const Update& update) {
  return Kernel{[=, parameters = Concatenate(in, count)](const KernelArguments& arguments, Stream&) {
    const auto factors_of = make_factors(Control(arguments));
    ForEachBlock(parameters, [&](size_t i, int64_t offset, int64_t n) {
      const Parameter& parameter = parameters[i];
      const auto run = [&]<typename C, typename G>(TypeTag<C> tag, TypeTag<G>, C* weight) {
        Block<C, kStates> block{weight, {}};
        size_t o = i;
        for (C*& state : block.state) {
          o += count;
          state = InPlace<C>(arguments, 1 + count + o, o, offset, n);
        }
        update(factors_of(tag, i), block, arguments.in<G>(1 + count + i) + offset, n);
      };
      if (parameter.dtype == DType::kF64) {
        return run(TypeTag<double>(), TypeTag<double>(), InPlace<double>(arguments, 1 + i, i, offset, n));
      }
      if (parameter.dtype == DType::kF32) {
        return run(TypeTag<float>(), TypeTag<float>(), InPlace<float>(arguments, 1 + i, i, offset, n));
      }
      const size_t o = (kStates + 1) * count + parameter.master;
      float* master = InPlace<float>(arguments, 1 + count + o, o, offset, n);
      bf16* weight = InPlace<bf16>(arguments, 1 + i, i, offset, n);
      for (int64_t j = 0; j < n; ++j) master[j] = bf16(master[j]).bits == weight[j].bits ? master[j] : Load(weight[j]);
      if (parameter.gradient == DType::kF32) {
        run(TypeTag<float>(), TypeTag<float>(), master);
      } else {
        run(TypeTag<float>(), TypeTag<bf16>(), master);
      }
      for (int64_t j = 0; j < n; ++j) weight[j] = Store<bf16>(master[j]);
    });
    return absl::OkStatus();
  }};
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Sgd& op, Specs in, Specs) {
  const auto factors = [op](const Control& control) {
    return [&op, control]<typename C>(TypeTag<C>, size_t i) {
      return SgdFactors<C>{.gradient_scale = static_cast<C>(control.gradient_scale),
                           .learning_rate = static_cast<C>(control.learning_rate * op.learning_rate_scale[i]),
                           .weight_decay = static_cast<C>(op.weight_decay[i]),
                           .momentum = static_cast<C>(op.momentum)};
    };
  };
  const size_t count = op.weight_decay.size();
  if (op.momentum == 0) {
    return UpdateKernel<0>(in, count, factors, [](const auto& by, const auto& block, const auto* g, int64_t n) {
      SgdPlain(by, block.weight, g, n);
    });
  }
  return UpdateKernel<1>(in, count, factors,
                         [nesterov = op.nesterov](const auto& by, const auto& block, const auto* g, int64_t n) {
                           nesterov ? SgdMomentum<true>(by, block.weight, g, block.state[0], n)
                                    : SgdMomentum<false>(by, block.weight, g, block.state[0], n);
                         });
}

absl::StatusOr<Kernel> Prepare(const op::AdamW& op, Specs in, Specs) {
  const auto factors = [op](const Control& control) {
    const double correction1 = 1 - std::pow(static_cast<double>(op.beta1), control.step);
    const double correction2 = 1 - std::pow(static_cast<double>(op.beta2), control.step);
    return [&op, control, correction1, correction2]<typename C>(TypeTag<C>, size_t i) {
      const double learning_rate = control.learning_rate * op.learning_rate_scale[i];
      return AdamWFactors<C>{.gradient_scale = static_cast<C>(control.gradient_scale),
                             .decay = static_cast<C>(1 - learning_rate * op.weight_decay[i]),
                             .step_size = static_cast<C>(learning_rate / correction1),
                             .beta1 = static_cast<C>(op.beta1),
                             .one_minus_beta1 = static_cast<C>(1 - static_cast<double>(op.beta1)),
                             .beta2 = static_cast<C>(op.beta2),
                             .one_minus_beta2 = static_cast<C>(1 - static_cast<double>(op.beta2)),
                             .rsqrt_correction2 = static_cast<C>(1 / std::sqrt(correction2)),
                             .epsilon = static_cast<C>(op.epsilon)};
    };
  };
  return UpdateKernel<2>(in, op.weight_decay.size(), factors,
                         [](const auto& by, const auto& block, const auto* g, int64_t n) {
                           AdamWUpdate(by, block.weight, g, block.state[0], block.state[1], n);
                         });
}

}  // namespace gemmill::cpu
