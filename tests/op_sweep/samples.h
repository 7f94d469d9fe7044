// Samples of every op: what op_sweep_test.cc runs. An op without samples does not compile.
#pragma once

#include <string>
#include <vector>

#include "gemmill/autograd/custom.h"
#include "gemmill/runtime/op.h"

namespace gemmill {

// One input of a sample.
struct Argument {
  enum class Kind {
    kValue,  // of the sample's dtype, whichever that is
    kWide,   // f32; f64 where the sample runs in f64: statistics and sums
    kFixed,  // of `dtype`, whatever the sample's
  };
  Kind kind = Kind::kValue;
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::kI64;  // of kFixed
};

struct Sample {
  Op op;
  std::vector<Argument> inputs;
  // What kValue inputs may be; other dtypes are refused. Empty: the sample has no such input.
  std::vector<DType> dtypes = {DType::kF32, DType::kBf16, DType::kF64};
  // Finite differences make sense everywhere near these values (the op need not have a gradient).
  bool smooth = true;
};

// Values in [low, high), apart from one another and from 0 by a good margin, so that no kink is near.
std::vector<double> Apart(int64_t count, double low, double high, int seed);
Argument Plain(const Shape& shape, double low = -2, double high = 2, int seed = 1);
Argument Wide(const Shape& shape, double low = -2, double high = 2, int seed = 1);
Argument Fixed(DType dtype, const Shape& shape, std::vector<double> values);

template <typename T>
struct For {};

using Samples = std::vector<Sample>;

// samples_elementwise.cc
Samples SamplesOf(For<op::Unary>);
Samples SamplesOf(For<op::UnaryGrad>);
Samples SamplesOf(For<op::Binary>);
Samples SamplesOf(For<op::Where>);
Samples SamplesOf(For<op::Cast>);
Samples SamplesOf(For<op::Fill>);
Samples SamplesOf(For<op::Iota>);
Samples SamplesOf(For<op::Dropout>);
Samples SamplesOf(For<op::Custom>);
// samples_gemm.cc
Samples SamplesOf(For<op::MatMul>);
Samples SamplesOf(For<op::Sgd>);
Samples SamplesOf(For<op::AdamW>);
Samples SamplesOf(For<op::FusedMatMul>);
Samples SamplesOf(For<op::ActivationBiasGrad>);
// samples_reduce.cc
Samples SamplesOf(For<op::Reduce>);
Samples SamplesOf(For<op::ArgMax>);
Samples SamplesOf(For<op::GlobalNorm>);
Samples SamplesOf(For<op::Softmax>);
Samples SamplesOf(For<op::SoftmaxGrad>);
Samples SamplesOf(For<op::Normalize>);
Samples SamplesOf(For<op::NormalizeGrad>);
Samples SamplesOf(For<op::CrossEntropy>);
Samples SamplesOf(For<op::CrossEntropyGrad>);
// samples_movement.cc
Samples SamplesOf(For<op::BroadcastTo>);
Samples SamplesOf(For<op::Reshape>);
Samples SamplesOf(For<op::Permute>);
Samples SamplesOf(For<op::Slice>);
Samples SamplesOf(For<op::Unslice>);
Samples SamplesOf(For<op::Concat>);
Samples SamplesOf(For<op::GatherRows>);
Samples SamplesOf(For<op::ScatterAddRows>);
Samples SamplesOf(For<op::OneHot>);
// samples_moe.cc
Samples SamplesOf(For<op::TopK>);
Samples SamplesOf(For<op::TakeAlong>);
Samples SamplesOf(For<op::AddAlong>);
Samples SamplesOf(For<op::AssignRows>);
Samples SamplesOf(For<op::DispatchRows>);
Samples SamplesOf(For<op::CombineRows>);
Samples SamplesOf(For<op::DotRows>);
Samples SamplesOf(For<op::GroupedMatMul>);
Samples SamplesOf(For<op::GroupedMatMulWgrad>);
Samples SamplesOf(For<op::GatedUnary>);
Samples SamplesOf(For<op::GatedUnaryGrad>);

// Of every alternative of Op.
Samples AllSamples();

}  // namespace gemmill
