// The ops that have no CUDA kernel yet. This list may only shrink: tests/runtime/cuda_missing_test.cc states its
// length.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gemmill/runtime/op.h"

namespace gemmill::cuda {

template <typename... Ops>
struct OpList {
  static constexpr int64_t kSize = sizeof...(Ops);
  template <typename T>
  static constexpr bool kHas = (std::is_same_v<T, Ops> || ...);
};

using WithoutKernel =
    OpList<op::MatMul, op::UnaryGrad, op::Binary, op::Where, op::Reduce, op::ArgMax, op::BroadcastTo, op::Softmax,
           op::SoftmaxGrad, op::Normalize, op::NormalizeGrad, op::CrossEntropy, op::CrossEntropyGrad, op::GatherRows,
           op::ScatterAddRows, op::Reshape, op::Permute, op::Slice, op::Unslice, op::Concat, op::OneHot, op::Cast,
           op::Fill, op::Iota, op::Dropout, op::GlobalNorm, op::Sgd, op::AdamW, op::TopK, op::TakeAlong, op::AddAlong,
           op::AssignRows, op::DispatchRows, op::CombineRows, op::DotRows, op::GroupedMatMul, op::GroupedMatMulWgrad,
           op::GatedUnary, op::GatedUnaryGrad, op::FusedMatMul, op::ActivationBiasGrad, op::Custom>;

}  // namespace gemmill::cuda
