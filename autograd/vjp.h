// The gradient rules (vector-Jacobian products), one overload per op, written with the public ops so that they can be
// differentiated in turn. A rule returns the gradient of each input, in the output's broadcast shape where that is
// simpler (Grad sums it down to the input's), and an empty Var where there is none.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "gemmill/autograd/var.h"

namespace gemmill {

// One op of the graph, seen from the backward pass.
struct Site {
  std::vector<Var> in;      // its inputs
  std::vector<Var> out;     // its outputs
  std::vector<Var> dout;    // the gradient of each output; empty where nothing depends on it
  std::vector<bool> wants;  // whether the gradient of each input will be used
  Caller caller;            // of the op; a CallerScope of it is open
};

using Gradients = std::vector<Var>;

// What a rule returns whose op has no gradient. If one is asked for through it all the same, the reason is the error.
struct NotDifferentiable {
  std::string reason;
};

// vjp_gemm.cc
Gradients VjpRule(const op::MatMul& op, const Site& site);
// vjp_elementwise.cc
Gradients VjpRule(const op::Unary& op, const Site& site);
Gradients VjpRule(const op::UnaryGrad& op, const Site& site);
Gradients VjpRule(const op::Binary& op, const Site& site);
Gradients VjpRule(const op::Where& op, const Site& site);
Gradients VjpRule(const op::Cast& op, const Site& site);
Gradients VjpRule(const op::Dropout& op, const Site& site);
NotDifferentiable VjpRule(const op::Fill& op, const Site& site);
NotDifferentiable VjpRule(const op::Iota& op, const Site& site);
// vjp_reduce.cc
Gradients VjpRule(const op::Reduce& op, const Site& site);
NotDifferentiable VjpRule(const op::ArgMax& op, const Site& site);
Gradients VjpRule(const op::GlobalNorm& op, const Site& site);
Gradients VjpRule(const op::Softmax& op, const Site& site);
Gradients VjpRule(const op::SoftmaxGrad& op, const Site& site);
Gradients VjpRule(const op::Normalize& op, const Site& site);
Gradients VjpRule(const op::NormalizeGrad& op, const Site& site);
Gradients VjpRule(const op::CrossEntropy& op, const Site& site);
Gradients VjpRule(const op::CrossEntropyGrad& op, const Site& site);
// vjp_movement.cc
Gradients VjpRule(const op::BroadcastTo& op, const Site& site);
Gradients VjpRule(const op::Reshape& op, const Site& site);
Gradients VjpRule(const op::Permute& op, const Site& site);
Gradients VjpRule(const op::Slice& op, const Site& site);
Gradients VjpRule(const op::Unslice& op, const Site& site);
Gradients VjpRule(const op::Concat& op, const Site& site);
Gradients VjpRule(const op::GatherRows& op, const Site& site);
Gradients VjpRule(const op::ScatterAddRows& op, const Site& site);
NotDifferentiable VjpRule(const op::OneHot& op, const Site& site);
// vjp_moe.cc
NotDifferentiable VjpRule(const op::TopK& op, const Site& site);
Gradients VjpRule(const op::TakeAlong& op, const Site& site);
Gradients VjpRule(const op::AddAlong& op, const Site& site);
NotDifferentiable VjpRule(const op::AssignRows& op, const Site& site);
Gradients VjpRule(const op::DispatchRows& op, const Site& site);
Gradients VjpRule(const op::CombineRows& op, const Site& site);
Gradients VjpRule(const op::DotRows& op, const Site& site);
Gradients VjpRule(const op::GroupedMatMul& op, const Site& site);
Gradients VjpRule(const op::GroupedMatMulWgrad& op, const Site& site);
Gradients VjpRule(const op::GatedUnary& op, const Site& site);
Gradients VjpRule(const op::GatedUnaryGrad& op, const Site& site);
// vjp_custom.cc
NotDifferentiable VjpRule(const op::Sgd& op, const Site& site);
NotDifferentiable VjpRule(const op::AdamW& op, const Site& site);
NotDifferentiable VjpRule(const op::FusedMatMul& op, const Site& site);
NotDifferentiable VjpRule(const op::ActivationBiasGrad& op, const Site& site);
std::variant<Gradients, NotDifferentiable> VjpRule(const op::Custom& op, const Site& site);

// The gradients of the inputs of any op, by its rule.
std::variant<Gradients, NotDifferentiable> Vjp(const Op& op, const Site& site);

// The gradients of a fused op, found by differentiating `composed`: the same function, from inputs to outputs, written
// with ops that have rules. Thus fused ops have gradients of every order.
using Composed = std::function<std::vector<Var>(const std::vector<Var>& inputs)>;
Gradients VjpByComposition(const Site& site, const Composed& composed);

}  // namespace gemmill
