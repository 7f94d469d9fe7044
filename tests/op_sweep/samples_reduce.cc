#include "tests/op_sweep/samples.h"

namespace gemmill {
namespace {

const std::vector<DType> kNumbers = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64};

}  // namespace

Samples SamplesOf(For<op::Reduce>) {
  Samples samples;
  for (int i = 0; i < kReduceFnCount; ++i) {
    const ReduceFn fn = static_cast<ReduceFn>(i);
    const auto add = [&](const Shape& shape, const Axes& axes) {
      for (const bool keepdims : {false, true}) {
        samples.push_back({op::Reduce{fn, axes, keepdims}, {Plain(shape, -20, 20)}, kNumbers});
        if (fn == ReduceFn::kMean) samples.back().dtypes = {DType::kF32, DType::kBf16, DType::kF64};
      }
    };
    add({3, 4, 5}, {0});
    add({3, 4, 5}, {1});
    add({3, 4, 5}, {2});
    add({3, 4, 5}, {0, 2});
    add({3, 4, 5}, {2, 1, 0});
    add({2, 3}, {});
    add({1, 1}, {0});
    add({}, {});
    add({0, 3}, {1});
    if (fn == ReduceFn::kSum) add({0, 3}, {0});
  }
  return samples;
}

Samples SamplesOf(For<op::ArgMax>) {
  return {{op::ArgMax{1, false}, {Plain({3, 4, 2}, -9, 9)}, kNumbers},
          {op::ArgMax{0, true}, {Plain({5, 1})}, kNumbers},
          {op::ArgMax{0, false}, {Plain({1})}, kNumbers},
          {op::ArgMax{1, false}, {Plain({0, 3})}, kNumbers}};
}

Samples SamplesOf(For<op::GlobalNorm>) {
  return {{op::GlobalNorm{}, {Plain({2, 3}), Plain({4}, -2, 2, 2)}, {DType::kF32, DType::kBf16, DType::kF64}, false},
          {op::GlobalNorm{}, {Plain({0})}, {DType::kF32, DType::kBf16, DType::kF64}, false}};
}

Samples SamplesOf(For<op::Softmax>) {
  Samples samples;
  for (const bool log : {false, true}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{2, 2, 3}, Shape{4}, Shape{3, 1}, Shape{0, 4}, Shape{2, 37}}) {
      samples.push_back({op::Softmax{log}, {Plain(shape, -3, 3)}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::SoftmaxGrad>) {
  Samples samples;
  for (const bool log : {false, true}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{1, 1}, Shape{0, 4}}) {
      samples.push_back(
          {op::SoftmaxGrad{log}, {Plain(shape, log ? -3 : 0.05, log ? -0.1 : 0.9), Plain(shape, -1, 1, 2)}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::Normalize>) {
  Samples samples;
  for (const bool centered : {false, true}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{2, 2, 4}, Shape{7}, Shape{3, 1}, Shape{0, 4}}) {
      samples.push_back({op::Normalize{centered, 1e-3f}, {Plain(shape, -3, 3)}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::NormalizeGrad>) {
  Samples samples;
  for (const bool centered : {false, true}) {
    for (const auto& [shape, rows] : {std::pair<Shape, Shape>{{3, 5}, {3}}, {{4}, {}}, {{2, 1}, {2}}, {{0, 3}, {0}}}) {
      samples.push_back(
          {op::NormalizeGrad{centered}, {Plain(shape, -2, 2), Wide(rows, 0.3, 2), Plain(shape, -1, 1, 2)}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::CrossEntropy>) {
  Samples samples;
  for (const float smoothing : {0.0f, 0.1f}) {
    for (const DType labels : {DType::kI64, DType::kI32}) {
      samples.push_back({op::CrossEntropy{-100, smoothing}, {Plain({4, 3}), Fixed(labels, {4}, {2, 0, -100, 1})}});
      samples.push_back({op::CrossEntropy{1, smoothing}, {Plain({2, 1}), Fixed(labels, {2}, {1, 0})}});
      samples.push_back({op::CrossEntropy{-100, smoothing}, {Plain({0, 3}), Fixed(labels, {0}, {})}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::CrossEntropyGrad>) {
  Samples samples;
  for (const float smoothing : {0.0f, 0.1f}) {
    samples.push_back({op::CrossEntropyGrad{-100, smoothing},
                       {Plain({4, 3}), Fixed(DType::kI64, {4}, {2, 0, -100, 1}), Wide({}, 0.5, 1)}});
    samples.push_back(
        {op::CrossEntropyGrad{-100, smoothing}, {Plain({0, 3}), Fixed(DType::kI32, {0}, {}), Wide({}, 0.5, 1)}});
  }
  return samples;
}

}  // namespace gemmill
