// The rules of Infer (infer.h), one per op, and the checks that they share. Included by infer*.cc alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/runtime/infer.h"
#include "gemmill/runtime/status.h"

namespace gemmill::infer {

using Result = absl::StatusOr<std::vector<Spec>>;

// "f32[2, 3], i64[2]"
inline std::string Given(Specs in) {
  return in.empty() ? "nothing" : absl::StrJoin(in, ", ", [](std::string* out, const Spec& spec) {
    absl::StrAppend(out, spec.ToString());
  });
}

inline absl::Status WantCount(Specs in, size_t count) {
  if (in.size() == count) return absl::OkStatus();
  return InvalidArgument("takes ", count, " inputs, got ", in.size());
}

inline absl::Status WantFloating(Specs in) {
  for (const Spec& spec : in) {
    if (!IsFloating(spec.dtype)) return InvalidArgument("takes f32, bf16 or f64, got ", Given(in), "; Cast first");
  }
  return absl::OkStatus();
}

inline absl::Status WantSameDType(Specs in) {
  for (const Spec& spec : in) {
    if (spec.dtype != in[0].dtype) return InvalidArgument("dtypes differ: ", Given(in), "; Cast one of them");
  }
  return absl::OkStatus();
}

inline absl::Status WantRank(const Spec& spec, int64_t least) {
  if (spec.rank() >= least) return absl::OkStatus();
  return InvalidArgument("takes at least ", least, " dimensions, got ", spec.ToString());
}

inline absl::Status WantAxis(int64_t axis, const Spec& spec) {
  if (axis >= 0 && axis < spec.rank()) return absl::OkStatus();
  return InvalidArgument("axis ", axis, " is outside ", spec.ToString());
}

inline absl::Status WantIndex(const Spec& spec) {
  if (spec.dtype == DType::kI32 || spec.dtype == DType::kI64) return absl::OkStatus();
  return InvalidArgument("takes indices of i32 or i64, got ", spec.ToString());
}

inline absl::Status WantSpec(const char* what, const Spec& spec, const Shape& shape, DType dtype) {
  if (spec.shape == shape && spec.dtype == dtype) return absl::OkStatus();
  return InvalidArgument(what, " is ", spec.ToString(), ", expected ", Spec{shape, dtype}.ToString());
}

// What statistics and sums of a dtype are kept in.
inline DType Wide(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

inline Shape Leading(const Shape& shape, int64_t dropped) { return Shape(shape.begin(), shape.end() - dropped); }

// A spec on the device of input `i`, of its dtype or of another.
inline Spec Like(Specs in, size_t i, const Shape& shape, DType dtype) { return Spec{shape, dtype, in[i].device}; }
inline Spec Like(Specs in, size_t i, const Shape& shape) { return Like(in, i, shape, in[i].dtype); }

// infer_math.cc
Result InferRule(const op::MatMul& op, Specs in);
Result InferRule(const op::Unary& op, Specs in);
Result InferRule(const op::UnaryGrad& op, Specs in);
Result InferRule(const op::Binary& op, Specs in);
Result InferRule(const op::Where& op, Specs in);
Result InferRule(const op::Reduce& op, Specs in);
Result InferRule(const op::ArgMax& op, Specs in);
Result InferRule(const op::Softmax& op, Specs in);
Result InferRule(const op::SoftmaxGrad& op, Specs in);
Result InferRule(const op::Normalize& op, Specs in);
Result InferRule(const op::NormalizeGrad& op, Specs in);
Result InferRule(const op::CrossEntropy& op, Specs in);
Result InferRule(const op::CrossEntropyGrad& op, Specs in);
Result InferRule(const op::Dropout& op, Specs in);
Result InferRule(const op::GlobalNorm& op, Specs in);
Result InferRule(const op::Sgd& op, Specs in);
Result InferRule(const op::AdamW& op, Specs in);
Result InferRule(const op::FusedMatMul& op, Specs in);
Result InferRule(const op::ActivationBiasGrad& op, Specs in);
Result InferRule(const op::Custom& op, Specs in);
// infer_moe.cc
Result InferRule(const op::TopK& op, Specs in);
Result InferRule(const op::TakeAlong& op, Specs in);
Result InferRule(const op::AddAlong& op, Specs in);
Result InferRule(const op::AssignRows& op, Specs in);
Result InferRule(const op::DispatchRows& op, Specs in);
Result InferRule(const op::CombineRows& op, Specs in);
Result InferRule(const op::DotRows& op, Specs in);
Result InferRule(const op::GroupedMatMul& op, Specs in);
Result InferRule(const op::GroupedMatMulWgrad& op, Specs in);
Result InferRule(const op::GatedUnary& op, Specs in);
Result InferRule(const op::GatedUnaryGrad& op, Specs in);
// infer_movement.cc
Result InferRule(const op::BroadcastTo& op, Specs in);
Result InferRule(const op::GatherRows& op, Specs in);
Result InferRule(const op::ScatterAddRows& op, Specs in);
Result InferRule(const op::Reshape& op, Specs in);
Result InferRule(const op::Permute& op, Specs in);
Result InferRule(const op::Slice& op, Specs in);
Result InferRule(const op::Unslice& op, Specs in);
Result InferRule(const op::Concat& op, Specs in);
Result InferRule(const op::OneHot& op, Specs in);
Result InferRule(const op::Cast& op, Specs in);
Result InferRule(const op::Fill& op, Specs in);
Result InferRule(const op::Iota& op, Specs in);

}  // namespace gemmill::infer
