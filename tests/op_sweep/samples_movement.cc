#include "tests/op_sweep/samples.h"

namespace gemmill {
namespace {

const std::vector<DType> kAll = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8};

Sample Move(const Op& op, const Shape& shape) { return {op, {Plain(shape, 0, 100)}, kAll}; }

}  // namespace

Samples SamplesOf(For<op::BroadcastTo>) {
  return {Move(op::BroadcastTo{{2, 3, 4}}, {3, 1}), Move(op::BroadcastTo{{5}}, {}),
          Move(op::BroadcastTo{{2, 0}}, {1, 0}), Move(op::BroadcastTo{{1}}, {1}),
          Move(op::BroadcastTo{{4, 3}}, {1, 3})};
}

Samples SamplesOf(For<op::Reshape>) {
  return {Move(op::Reshape{{6}}, {2, 3}), Move(op::Reshape{{}}, {1, 1}), Move(op::Reshape{{4, 0}}, {0}),
          Move(op::Reshape{{3, 1, 2}}, {2, 3})};
}

Samples SamplesOf(For<op::Permute>) {
  return {Move(op::Permute{{1, 0}}, {3, 4}), Move(op::Permute{{2, 0, 1}}, {2, 3, 4}),
          Move(op::Permute{{0}}, {3}),       Move(op::Permute{{1, 2, 0}}, {3, 0, 2}),
          Move(op::Permute{{}}, {}),         Move(op::Permute{{1, 0, 3, 2}}, {1, 2, 3, 2})};
}

Samples SamplesOf(For<op::Slice>) {
  return {Move(op::Slice{0, 1, 3, 1}, {4, 2}), Move(op::Slice{1, 0, 5, 2}, {2, 5}), Move(op::Slice{1, 2, 2, 1}, {2, 3}),
          Move(op::Slice{0, 0, 1, 1}, {1}), Move(op::Slice{1, 1, 6, 3}, {2, 6, 2})};
}

Samples SamplesOf(For<op::Unslice>) {
  return {Move(op::Unslice{0, 1, 1, 4}, {2, 2}), Move(op::Unslice{1, 0, 2, 5}, {2, 3}),
          Move(op::Unslice{0, 0, 1, 3}, {0, 2}), Move(op::Unslice{1, 1, 3, 6}, {2, 2, 2}),
          Move(op::Unslice{0, 2, 1, 3}, {1})};
}

Samples SamplesOf(For<op::Concat>) {
  return {{op::Concat{0}, {Plain({2, 3}), Plain({1, 3}, 0, 9, 2)}, kAll},
          {op::Concat{1}, {Plain({2, 3}, 0, 9), Plain({2, 0}), Plain({2, 1}, 0, 9, 2)}, kAll},
          {op::Concat{0}, {Plain({1}, 0, 9)}, kAll}};
}

Samples SamplesOf(For<op::GatherRows>) {
  return {{op::GatherRows{}, {Plain({4, 3}, 0, 9), Fixed(DType::kI64, {5}, {3, 0, 0, 1, 3})}, kAll},
          {op::GatherRows{}, {Plain({4}, 0, 9), Fixed(DType::kI32, {2, 2}, {3, 0, 1, 2})}, kAll},
          {op::GatherRows{}, {Plain({2, 2, 2}, 0, 9), Fixed(DType::kI64, {}, {1})}, kAll},
          {op::GatherRows{}, {Plain({4, 3}, 0, 9), Fixed(DType::kI64, {0}, {})}, kAll}};
}

Samples SamplesOf(For<op::ScatterAddRows>) {
  const std::vector<DType> floating = {DType::kF32, DType::kBf16, DType::kF64};
  return {{op::ScatterAddRows{4, 1}, {Plain({5, 3}), Fixed(DType::kI64, {5}, {3, 0, 0, 1, 3})}, floating},
          {op::ScatterAddRows{3, 2}, {Plain({2, 2, 2}), Fixed(DType::kI32, {2, 2}, {2, 0, 1, 2})}, floating},
          {op::ScatterAddRows{3, 1}, {Plain({0, 2}), Fixed(DType::kI64, {0}, {})}, floating},
          {op::ScatterAddRows{2, 0}, {Plain({3}), Fixed(DType::kI64, {}, {1})}, floating}};
}

Samples SamplesOf(For<op::OneHot>) {
  return {{op::OneHot{3, DType::kF32}, {Fixed(DType::kI64, {2, 2}, {0, 2, 1, 1})}, {}},
          {op::OneHot{1, DType::kBf16}, {Fixed(DType::kI32, {1}, {0})}, {}},
          {op::OneHot{3, DType::kI64}, {Fixed(DType::kI64, {0}, {})}, {}}};
}

}  // namespace gemmill
