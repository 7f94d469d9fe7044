// The CPU's kernels, one Prepare per op. Specs are as Infer relates them: kernels check only what depends on values
// (indices, labels). Code here may follow the addresses of CPU tensors.
#pragma once

#include "absl/status/statusor.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"

namespace gemmill::cpu {

// matmul.cc
absl::StatusOr<Kernel> Prepare(const op::MatMul& op, Specs in, Specs out);
// elementwise.cc
absl::StatusOr<Kernel> Prepare(const op::Unary& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::UnaryGrad& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Where& op, Specs in, Specs out);
// binary.cc
absl::StatusOr<Kernel> Prepare(const op::Binary& op, Specs in, Specs out);
// fill.cc
absl::StatusOr<Kernel> Prepare(const op::Cast& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Fill& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Iota& op, Specs in, Specs out);
// reduce.cc
absl::StatusOr<Kernel> Prepare(const op::Reduce& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::ArgMax& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::GlobalNorm& op, Specs in, Specs out);
// softmax.cc
absl::StatusOr<Kernel> Prepare(const op::Softmax& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::SoftmaxGrad& op, Specs in, Specs out);
// cross_entropy.cc
absl::StatusOr<Kernel> Prepare(const op::CrossEntropy& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::CrossEntropyGrad& op, Specs in, Specs out);
// normalize.cc
absl::StatusOr<Kernel> Prepare(const op::Normalize& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::NormalizeGrad& op, Specs in, Specs out);
// movement.cc
absl::StatusOr<Kernel> Prepare(const op::BroadcastTo& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Reshape& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Permute& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Slice& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Unslice& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::Concat& op, Specs in, Specs out);
// rows.cc
absl::StatusOr<Kernel> Prepare(const op::GatherRows& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::ScatterAddRows& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::OneHot& op, Specs in, Specs out);
// dropout.cc
absl::StatusOr<Kernel> Prepare(const op::Dropout& op, Specs in, Specs out);
// optimizer.cc
absl::StatusOr<Kernel> Prepare(const op::Sgd& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::AdamW& op, Specs in, Specs out);
// routing.cc
absl::StatusOr<Kernel> Prepare(const op::TopK& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::TakeAlong& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::AddAlong& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::AssignRows& op, Specs in, Specs out);
// dispatch_rows.cc
absl::StatusOr<Kernel> Prepare(const op::DispatchRows& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::CombineRows& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::DotRows& op, Specs in, Specs out);
// grouped_gemm.cc
absl::StatusOr<Kernel> Prepare(const op::GroupedMatMul& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::GroupedMatMulWgrad& op, Specs in, Specs out);
// gated.cc
absl::StatusOr<Kernel> Prepare(const op::GatedUnary& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::GatedUnaryGrad& op, Specs in, Specs out);
// fused.cc
absl::StatusOr<Kernel> Prepare(const op::FusedMatMul& op, Specs in, Specs out);
absl::StatusOr<Kernel> Prepare(const op::ActivationBiasGrad& op, Specs in, Specs out);
// custom.cc
absl::StatusOr<Kernel> Prepare(const op::Custom& op, Specs in, Specs out);

}  // namespace gemmill::cpu
