// Sgd and AdamW: one parallel pass over the elements of all parameters together, so that many small tensors cost what
// one large one does. State and arithmetic are f32 (f64 for f64 weights); what depends on the step alone is f64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"

namespace gemmill::cpu {
namespace {

constexpr int64_t kBlock =
    2048;                      // elements updated at a time: what is copied for an output apart stays in the L1 cache
constexpr double kCost = 0.7;  // nanoseconds an element

// A parameter's place in the concatenation of all.
struct Parameter {
  int64_t begin = 0;
  int64_t end = 0;
  DType dtype = DType::kF32;
};

// Parameter i's tensors start at input 1 + i * `stride`, its weight first.
std::vector<Parameter> Concatenate(Specs in, size_t stride) {
  std::vector<Parameter> parameters;
  int64_t end = 0;
  for (size_t i = 1; i < in.size(); i += stride) {
    const int64_t begin = end;
    end += in[i].num_elements();
    parameters.push_back({begin, end, in[i].dtype});
  }
  return parameters;
}

// Calls body(i, offset, count) over blocks of elements of parameter i that together cover all parameters.
template <typename Body>
void ForEachBlock(const std::vector<Parameter>& parameters, const Body& body) {
  const int64_t total = parameters.empty() ? 0 : parameters.back().end;
  ParallelFor(total, Grain(kCost), [&](int64_t begin, int64_t end) {
    auto at = std::upper_bound(parameters.begin(), parameters.end(), begin,
                               [](int64_t value, const Parameter& parameter) { return value < parameter.end; });
    for (; at != parameters.end() && at->begin < end; ++at) {
      const int64_t last = std::min(end, at->end);
      for (int64_t first = std::max(begin, at->begin); first < last; first += kBlock) {
        body(static_cast<size_t>(at - parameters.begin()), first - at->begin, std::min(kBlock, last - first));
      }
    }
  });
}

// Output `o` from `offset` on, holding what input `i` holds there: the updates below work in place.
template <typename T>
T* InPlace(const KernelArguments& arguments, size_t i, size_t o, int64_t offset, int64_t count) {
  const T* from = arguments.in<T>(i) + offset;
  T* to = arguments.out<T>(o) + offset;
  if (to != from) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  return to;
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

template <typename T, typename C = ComputeType<T>>
void SgdPlain(const SgdFactors<C>& factors, T* __restrict w, const T* __restrict g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const C weight = Load(w[i]);
    const C gradient = Load(g[i]) * factors.gradient_scale + weight * factors.weight_decay;
    w[i] = Store<T>(weight - factors.learning_rate * gradient);
  }
}

template <bool kNesterov, typename T, typename C = ComputeType<T>>
void SgdMomentum(const SgdFactors<C>& factors, T* __restrict w, const T* __restrict g, C* __restrict v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const C weight = Load(w[i]);
    const C gradient = Load(g[i]) * factors.gradient_scale + weight * factors.weight_decay;
    const C velocity = factors.momentum * v[i] + gradient;
    v[i] = velocity;
    const C direction = kNesterov ? gradient + factors.momentum * velocity : velocity;
    w[i] = Store<T>(weight - factors.learning_rate * direction);
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

template <typename T, typename C = ComputeType<T>>
void AdamWUpdate(const AdamWFactors<C>& factors, T* __restrict w, const T* __restrict g, C* __restrict m,
                 C* __restrict v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const C gradient = Load(g[i]) * factors.gradient_scale;
    const C first = factors.beta1 * m[i] + factors.one_minus_beta1 * gradient;
    const C second = factors.beta2 * v[i] + factors.one_minus_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    const C denominator = std::sqrt(second) * factors.rsqrt_correction2 + factors.epsilon;
    w[i] = Store<T>(Load(w[i]) * factors.decay - factors.step_size * (first / denominator));
  }
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Sgd& op, Specs in, Specs) {
  const size_t inputs = op.momentum == 0 ? 2 : 3;
  return Kernel{[op, inputs, parameters = Concatenate(in, inputs)](const KernelArguments& arguments, Stream&) {
    const Control control(arguments);
    ForEachBlock(parameters, [&](size_t i, int64_t offset, int64_t count) {
      DispatchFloating(parameters[i].dtype, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        using C = ComputeType<T>;
        const SgdFactors<C> factors{.gradient_scale = static_cast<C>(control.gradient_scale),
                                    .learning_rate = static_cast<C>(control.learning_rate * op.learning_rate_scale[i]),
                                    .weight_decay = static_cast<C>(op.weight_decay[i]),
                                    .momentum = static_cast<C>(op.momentum)};
        const size_t first_in = 1 + i * inputs;
        const size_t first_out = i * (inputs - 1);
        T* w = InPlace<T>(arguments, first_in, first_out, offset, count);
        const T* g = arguments.in<T>(first_in + 1) + offset;
        if (inputs == 2) return SgdPlain(factors, w, g, count);
        C* v = InPlace<C>(arguments, first_in + 2, first_out + 1, offset, count);
        op.nesterov ? SgdMomentum<true>(factors, w, g, v, count) : SgdMomentum<false>(factors, w, g, v, count);
      });
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> Prepare(const op::AdamW& op, Specs in, Specs) {
  return Kernel{[op, parameters = Concatenate(in, 4)](const KernelArguments& arguments, Stream&) {
    const Control control(arguments);
    const double beta1 = op.beta1;
    const double beta2 = op.beta2;
    const double correction1 = 1 - std::pow(beta1, control.step);
    const double correction2 = 1 - std::pow(beta2, control.step);
    ForEachBlock(parameters, [&](size_t i, int64_t offset, int64_t count) {
      DispatchFloating(parameters[i].dtype, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        using C = ComputeType<T>;
        const double learning_rate = control.learning_rate * op.learning_rate_scale[i];
        const AdamWFactors<C> factors{.gradient_scale = static_cast<C>(control.gradient_scale),
                                      .decay = static_cast<C>(1 - learning_rate * op.weight_decay[i]),
                                      .step_size = static_cast<C>(learning_rate / correction1),
                                      .beta1 = static_cast<C>(beta1),
                                      .one_minus_beta1 = static_cast<C>(1 - beta1),
                                      .beta2 = static_cast<C>(beta2),
                                      .one_minus_beta2 = static_cast<C>(1 - beta2),
                                      .rsqrt_correction2 = static_cast<C>(1 / std::sqrt(correction2)),
                                      .epsilon = static_cast<C>(op.epsilon)};
        const size_t first_in = 1 + i * 4;
        const size_t first_out = i * 3;
        AdamWUpdate(factors, InPlace<T>(arguments, first_in, first_out, offset, count),
                    arguments.in<T>(first_in + 1) + offset,
                    InPlace<C>(arguments, first_in + 2, first_out + 1, offset, count),
                    InPlace<C>(arguments, first_in + 3, first_out + 2, offset, count), count);
      });
    });
    return absl::OkStatus();
  }};
}

}  // namespace gemmill::cpu
