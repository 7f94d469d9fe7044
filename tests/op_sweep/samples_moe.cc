#include <utility>

#include "tests/op_sweep/samples.h"

namespace gemmill {
namespace {

// Choices of 4 tokens among 3 experts, the rows that they get, one of them dropped, and where those of each expert are.
Argument Index() { return Fixed(DType::kI64, {4, 2}, {2, 0, 1, 0, 0, 2, 2, 1}); }
Argument Rows() { return Fixed(DType::kI64, {4, 2}, {5, 0, 3, 1, 2, 6, -1, 4}); }
Argument Offsets() { return Fixed(DType::kI64, {4}, {0, 3, 5, 7}); }
Argument OneRow() { return Fixed(DType::kI64, {1, 1}, {0}); }
Argument NoRows(int64_t choices) { return Fixed(DType::kI64, {0, choices}, {}); }

}  // namespace

Samples SamplesOf(For<op::TopK>) {
  return {{op::TopK{2}, {Plain({3, 5})}},
          {op::TopK{1}, {Plain({1, 1})}},
          {op::TopK{4}, {Plain({2, 2, 4})}},
          {op::TopK{3}, {Plain({0, 3})}},
          {op::TopK{2}, {Plain({4})}}};
}

Samples SamplesOf(For<op::TakeAlong>) {
  return {{op::TakeAlong{}, {Plain({3, 4}), Fixed(DType::kI64, {3, 2}, {3, 0, 1, 1, 2, 3})}},
          {op::TakeAlong{}, {Plain({1, 1}), Fixed(DType::kI64, {1, 3}, {0, 0, 0})}},
          {op::TakeAlong{}, {Plain({2, 1, 3}), Fixed(DType::kI64, {2, 1, 1}, {2, 0})}},
          {op::TakeAlong{}, {Plain({2, 3}), Fixed(DType::kI64, {2, 0}, {})}},
          {op::TakeAlong{}, {Plain({0, 3}), Fixed(DType::kI64, {0, 2}, {})}}};
}

Samples SamplesOf(For<op::AddAlong>) {
  return {{op::AddAlong{4}, {Plain({3, 2}), Fixed(DType::kI64, {3, 2}, {3, 0, 1, 1, 2, 3})}},
          {op::AddAlong{1}, {Plain({1, 3}), Fixed(DType::kI64, {1, 3}, {0, 0, 0})}},
          {op::AddAlong{2}, {Plain({2, 0}), Fixed(DType::kI64, {2, 0}, {})}},
          {op::AddAlong{2}, {Plain({0, 2}), Fixed(DType::kI64, {0, 2}, {})}}};
}

Samples SamplesOf(For<op::AssignRows>) {
  const Argument mask = Fixed(DType::kU8, {4}, {1, 0, 1, 1});
  return {{op::AssignRows{3}, {Index()}, {}},        {op::AssignRows{3}, {Index(), mask}, {}},
          {op::AssignRows{3, 0.5}, {Index()}, {}},   {op::AssignRows{3, 1}, {Index(), mask}, {}},
          {op::AssignRows{3, 1e300}, {Index()}, {}}, {op::AssignRows{1}, {Fixed(DType::kI64, {1, 1}, {0})}, {}},
          {op::AssignRows{5}, {NoRows(2)}, {}}};
}

Samples SamplesOf(For<op::DispatchRows>) {
  return {{op::DispatchRows{8}, {Plain({4, 3}), Rows()}},
          {op::DispatchRows{7}, {Plain({4, 20}), Rows(), Wide({4, 2})}},
          {op::DispatchRows{1}, {Plain({1, 1}), OneRow(), Wide({1, 1})}},
          {op::DispatchRows{2}, {Plain({0, 3}), NoRows(1)}},
          {op::DispatchRows{7}, {Plain({4, 0}), Rows()}}};
}

Samples SamplesOf(For<op::CombineRows>) {
  return {{op::CombineRows{}, {Plain({8, 3}), Rows()}},
          {op::CombineRows{}, {Plain({7, 20}), Rows(), Wide({4, 2})}},
          {op::CombineRows{}, {Plain({1, 1}), OneRow(), Wide({1, 1})}},
          {op::CombineRows{}, {Plain({2, 3}), NoRows(1)}},
          {op::CombineRows{}, {Plain({7, 0}), Rows()}}};
}

Samples SamplesOf(For<op::DotRows>) {
  return {{op::DotRows{}, {Plain({8, 3}), Rows(), Plain({4, 3}, -2, 2, 2)}},
          {op::DotRows{}, {Plain({7, 20}), Rows(), Plain({4, 20}, -2, 2, 2)}},
          {op::DotRows{}, {Plain({1, 1}), OneRow(), Plain({1, 1})}},
          {op::DotRows{}, {Plain({2, 3}), NoRows(2), Plain({0, 3})}}};
}

Samples SamplesOf(For<op::GroupedMatMul>) {
  Samples samples;
  for (const bool trans_b : {false, true}) {
    const auto add = [&](int64_t rows, int64_t k, int64_t n, const Argument& offsets) {
      const int64_t experts = offsets.shape[0] - 1;
      const Shape weights = trans_b ? Shape{experts, n, k} : Shape{experts, k, n};
      samples.push_back({op::GroupedMatMul{trans_b}, {Plain({rows, k}, -1, 1, 1), Plain(weights, -1, 1, 2), offsets}});
    };
    add(7, 4, 3, Offsets());
    add(9, 5, 2, Fixed(DType::kI64, {5}, {0, 0, 7, 7, 8}));  // experts without rows, a row that is nobody's
    add(1, 1, 1, Fixed(DType::kI64, {2}, {0, 1}));
    add(40, 33, 18, Fixed(DType::kI64, {3}, {0, 37, 40}));
    add(0, 3, 2, Fixed(DType::kI64, {3}, {0, 0, 0}));
    add(2, 0, 3, Fixed(DType::kI64, {2}, {0, 2}));
  }
  return samples;
}

Samples SamplesOf(For<op::GroupedMatMulWgrad>) {
  Samples samples;
  const auto add = [&](int64_t rows, int64_t m, int64_t n, const Argument& offsets) {
    samples.push_back({op::GroupedMatMulWgrad{}, {Plain({rows, m}, -1, 1, 1), Plain({rows, n}, -1, 1, 2), offsets}});
  };
  add(7, 4, 3, Offsets());
  add(9, 5, 2, Fixed(DType::kI64, {5}, {0, 0, 7, 7, 8}));
  add(1, 1, 1, Fixed(DType::kI64, {2}, {0, 1}));
  add(40, 33, 18, Fixed(DType::kI64, {3}, {0, 37, 40}));
  add(0, 3, 2, Fixed(DType::kI64, {3}, {0, 0, 0}));
  return samples;
}

Samples SamplesOf(For<op::GatedUnary>) {
  Samples samples;
  for (const UnaryFn fn : {UnaryFn::kSilu, UnaryFn::kGeluErf, UnaryFn::kRelu, UnaryFn::kSigmoid}) {
    for (const Shape& shape : {Shape{3, 4}, Shape{1, 2}, Shape{0, 4}, Shape{2, 0}, Shape{2, 3, 34}, Shape{6}}) {
      samples.push_back({op::GatedUnary{fn}, {Plain(shape)}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::GatedUnaryGrad>) {
  Samples samples;
  for (const UnaryFn fn : {UnaryFn::kSilu, UnaryFn::kGeluErf, UnaryFn::kRelu, UnaryFn::kSigmoid}) {
    for (const Shape& shape : {Shape{3, 4}, Shape{1, 2}, Shape{0, 4}, Shape{2, 3, 34}}) {
      Shape half = shape;
      half.back() /= 2;
      samples.push_back({op::GatedUnaryGrad{fn}, {Plain(shape), Plain(half, -2, 2, 2)}});
    }
  }
  return samples;
}

}  // namespace gemmill
