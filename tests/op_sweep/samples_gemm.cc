#include "tests/op_sweep/samples.h"

#include <optional>
#include <utility>

namespace gemmill {

Samples SamplesOf(For<op::MatMul>) {
  Samples samples;
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const auto add = [&](const Shape& batch_a, const Shape& batch_b, int64_t m, int64_t n, int64_t k) {
        Shape a = batch_a;
        Shape b = batch_b;
        for (int64_t size : trans_a ? Shape{k, m} : Shape{m, k}) a.push_back(size);
        for (int64_t size : trans_b ? Shape{n, k} : Shape{k, n}) b.push_back(size);
        samples.push_back({op::MatMul{trans_a, trans_b}, {Plain(a, -1, 1, 1), Plain(b, -1, 1, 2)}});
      };
      add({}, {}, 3, 4, 5);
      add({}, {}, 1, 1, 1);
      add({}, {}, 1, 7, 2);
      add({}, {}, 7, 1, 2);
      add({2}, {2}, 3, 2, 4);
      add({2}, {}, 3, 2, 4);         // one weight for a batch
      add({}, {3}, 2, 3, 2);         // one matrix against a batch
      add({2, 1}, {1, 3}, 2, 2, 3);  // both broadcast
      add({}, {}, 0, 3, 2);
      add({}, {}, 2, 3, 0);
      add({0}, {}, 2, 2, 2);
    }
  }
  return samples;
}

namespace {

Argument Control() { return Fixed(DType::kF64, {3}, {0.01, 1, 0.5}); }

// `op` on two parameters with `states` kinds of state, and on an empty one; bf16 weights have masters besides.
template <typename Update>
Samples UpdateSamples(const Update& op, const Update& op_of_one, size_t states) {
  Samples samples;
  for (const bool masters : {false, true}) {
    Sample two{op, {Control(), Plain({2, 3}), Plain({1}), Plain({2, 3}, -1, 1, 2), Plain({1})}};
    Sample empty{op_of_one, {Control(), Plain({0}), Plain({0})}};
    for (size_t s = 0; s < states; ++s) {
      two.inputs.push_back(Wide({2, 3}, 0.1, 1, 3));
      two.inputs.push_back(Wide({1}, 0.1, 1, 4));
      empty.inputs.push_back(Wide({0}));
    }
    if (masters) {
      two.inputs.push_back(Wide({2, 3}));
      two.inputs.push_back(Wide({1}));
      empty.inputs.push_back(Wide({0}));
    }
    for (Sample* sample : {&two, &empty}) {
      sample->dtypes = masters ? std::vector<DType>{DType::kBf16} : std::vector<DType>{DType::kF32, DType::kF64};
      samples.push_back(*sample);
    }
  }
  return samples;
}

}  // namespace

Samples SamplesOf(For<op::Sgd>) {
  Samples samples = UpdateSamples(op::Sgd{0, false, {0.1f, 0}, {1, 0.5f}}, op::Sgd{0, false, {0}, {1}}, 0);
  for (const bool nesterov : {false, true}) {
    for (Sample& sample :
         UpdateSamples(op::Sgd{0.9f, nesterov, {0.1f, 0}, {1, 0.5f}}, op::Sgd{0.9f, nesterov, {0}, {1}}, 1)) {
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

Samples SamplesOf(For<op::AdamW>) {
  return UpdateSamples(op::AdamW{0.9f, 0.99f, 1e-8f, {0.1f, 0}, {1, 2}}, op::AdamW{0.9f, 0.99f, 1e-8f, {0}, {1}}, 2);
}

Samples SamplesOf(For<op::FusedMatMul>) {
  Samples samples;
  for (const bool bias : {true, false}) {
    for (const std::optional<UnaryFn> activation :
         {std::optional<UnaryFn>(), std::optional(UnaryFn::kRelu), std::optional(UnaryFn::kGeluErf)}) {
      for (const bool keep : {false, true}) {
        if (keep && !activation.has_value()) continue;
        for (const Shape& a : {Shape{3, 5}, Shape{1, 5}, Shape{0, 5}, Shape{2, 3, 5}, Shape{64, 5}}) {
          Sample sample{op::FusedMatMul{{false, true}, bias, activation, keep},
                        {Plain(a, -1, 1, 1), Plain({7, 5}, -1, 1, 2)}};
          if (bias) sample.inputs.push_back(Plain({7}, -1, 1, 3));
          samples.push_back(std::move(sample));
        }
      }
    }
  }
  return samples;
}

Samples SamplesOf(For<op::ActivationBiasGrad>) {
  Samples samples;
  for (const UnaryFn fn : {UnaryFn::kRelu, UnaryFn::kGeluErf, UnaryFn::kTanh}) {
    for (const Shape& shape :
         {Shape{3, 5}, Shape{1, 1}, Shape{0, 5}, Shape{3, 0}, Shape{2, 3, 600}, Shape{300, 2}, Shape{4}}) {
      samples.push_back({op::ActivationBiasGrad{fn}, {Plain(shape, -0.9, 0.9, 1), Plain(shape, 0.1, 1, 2)}});
    }
  }
  return samples;
}

}  // namespace gemmill
