// The public ops: functions of Var. Shapes are written outermost first. An axis below 0 counts from the last. Where the
// docstring names nothing else, arguments are f32, bf16 or f64 of one dtype; results have the same. Numbers take the
// dtype of the Var beside them; 0.5 beside integers is an error. Errors are carried by the result (var.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gemmill/autograd/var.h"

namespace gemmill {

// --- GEMM

struct MatMulOptions {
  bool trans_a = false;
  bool trans_b = false;
};
// a [..., M, K] times b [..., K, N] is [..., M, N]; leading dimensions broadcast. trans_a reads a as [..., K, M],
// trans_b b as [..., N, K].
Var MatMul(Located a, const Var& b, MatMulOptions options = {});

// --- Elementwise with NumPy's broadcasting. Also i32, i64 and u8.

Var operator+(Located a, Located b);
Var operator-(Located a, Located b);
Var operator*(Located a, Located b);
Var operator/(Located a, Located b);
Var operator-(Located x);
Var Pow(Located a, Located b);
Var Maximum(Located a, Located b);  // NaN if either is; at equal values the gradient is halved between both
Var Minimum(Located a, Located b);
// Comparisons give u8, 0 or 1.
Var Equal(Located a, Located b);
Var NotEqual(Located a, Located b);
Var Less(Located a, Located b);
Var LessEqual(Located a, Located b);
Var Greater(Located a, Located b);
Var GreaterEqual(Located a, Located b);
// a where condition (u8) is not 0, else b.
Var Where(Located condition, Located a, Located b);

// --- Functions of one element.

Var Unary(UnaryFn fn, Located x);
Var Abs(Located x);
Var Exp(Located x);
Var Log(Located x);
Var Sqrt(Located x);
Var Rsqrt(Located x);
Var Tanh(Located x);
Var Sigmoid(Located x);
Var Relu(Located x);      // the gradient at 0 is 0
Var Gelu(Located x);      // x * Phi(x), by erf
Var GeluTanh(Located x);  // the tanh approximation of Gelu (Hendrycks and Gimpel, 2016)
Var Silu(Located x);      // x * sigmoid(x)
Var Softplus(Located x);  // log(1 + exp(x))
Var Sin(Located x);
Var Cos(Located x);
Var Erf(Located x);

// --- Reductions over `axes`, or over all where none are given.

struct ReduceOptions {
  std::vector<int64_t> axes = {};
  bool keepdims = false;
};
Var Sum(Located x, const ReduceOptions& options = {});   // of nothing: 0
Var Mean(Located x, const ReduceOptions& options = {});  // of nothing: NaN
Var Max(Located x, const ReduceOptions& options = {});   // ties share the gradient equally
Var Min(Located x, const ReduceOptions& options = {});
Var Variance(Located x, const ReduceOptions& options = {});       // the mean of squared deviations; of one element: 0
Var ArgMax(Located x, int64_t axis = -1, bool keepdims = false);  // i64; ties go to the lowest index
Var LogSumExp(Located x, int64_t axis = -1);  // reduced away; stable; of a row of -inf: -inf, with a gradient of 0

// --- Softmax and norms along an axis.

Var Softmax(Located x, int64_t axis = -1);  // a row of -inf gives zeros, and no gradient
Var LogSoftmax(Located x, int64_t axis = -1);
// (x - mean) / sqrt(variance + epsilon) along the last axis: Ba, Kiros and Hinton, "Layer Normalization" (2016).
Var LayerNormalize(Located x, float epsilon = 1e-5f);
// x / sqrt(mean(x^2) + epsilon) along the last axis: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
Var RmsNormalize(Located x, float epsilon = 1e-5f);

// --- Shapes. Any dtype.

Var Reshape(Located x, const Shape& shape);  // one dimension may be -1
Var Permute(Located x, const std::vector<int64_t>& axes);
Var Transpose(Located x);  // the last two dimensions
Var BroadcastTo(Located x, const Shape& shape);
// Elements start, start + step, ... below stop; below 0 counts from the end.
Var Slice(Located x, int64_t axis, int64_t start, int64_t stop, int64_t step = 1);
Var Concat(const std::vector<Var>& xs, int64_t axis, Caller caller = Caller::Here());
Var Cast(Located x, DType dtype);
Var Fill(const Shape& shape, double value, DType dtype = DType::kF32, Device device = {},
         Caller caller = Caller::Here());
Var Iota(int64_t size, Device device = {}, Caller caller = Caller::Here());  // i64: 0, 1, 2, ...

// --- Rows. Indices are i32 or i64; one outside its range is an error that names it.

Var GatherRows(Located table, const Var& index);                        // [V, ...row] at [...i]: [...i, ...row]
Var ScatterAddRows(Located values, const Var& index, int64_t rows);     // [...i, ...row] into [rows, ...row]
Var OneHot(Located index, int64_t classes, DType dtype = DType::kF32);  // [...i] -> [...i, classes]

// --- Mixture of Experts (layers/moe.h is made of these): T tokens, E experts, k choices of each token. `row` i64
// [T, k] says which row belongs to a token's choice, -1 that none does (op.h).

Var TopK(Located x, int64_t k);              // [..., E] -> i64 [..., k], largest first; ties: the lowest index
Var TakeAlong(Located x, const Var& index);  // [..., N] at i64 [..., k]: [..., k], row by row
struct AssignRowsOptions {
  double capacity_factor = 0;  // 0: no limit; else an expert takes at most ceil(T k / E * capacity_factor) choices
  Var mask = {};               // u8 [T]: 0 where a token is padding, which goes nowhere and counts nowhere
};
struct RowAssignment {
  Var row;      // [T, k]
  Var offsets;  // i64 [E + 1]: where each expert's rows begin and end
  Var counts;   // i64 [E]: choices of each expert, those without a row included
};
RowAssignment AssignRows(Located index, int64_t experts, const AssignRowsOptions& options = {});  // index [T, k]
// x [T, H] -> [rows, H]: each row's token; rows that nobody has are zeros.
Var DispatchRows(Located x, const Var& row, int64_t rows);
// rows [R, H] -> [T, H]: a token's rows added up in the order of its choices, each times its weight [T, k] of f32 (f64
// for f64).
Var CombineRows(Located rows, const Var& row, const Var& weights);
// rows [R, K] by weights [E, K, N] (with trans_b [E, N, K]) -> [R, N]: each row times its expert's matrix.
struct GroupedMatMulOptions {
  bool trans_b = false;
};
Var GroupedMatMul(Located rows, const Var& weights, const Var& offsets, GroupedMatMulOptions options = {});
Var GatedUnary(UnaryFn fn, Located x);  // [..., 2 F] -> fn(first half) * second half: SwiGLU with kSilu

// --- Training.

// The sum of the cross-entropy of logits [N, C] against labels [N], how many labels were not ignore_index, both f32
// scalars. Sum, not mean: a global batch is normalised by its whole count (layers/loss.h). All ignored: sum 0, count 0,
// gradient 0.
struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  float label_smoothing = 0;
};
struct SumAndCount {
  Var sum;
  Var count;
};
SumAndCount CrossEntropySum(Located logits, const Var& labels, const CrossEntropyOptions& options = {});

struct DropoutOptions {
  float rate = 0.5f;
  int64_t stream = 0;  // tells dropouts of one step apart: give each place in a model its own
  // i64 [rows of x]: the position of each row in the global batch. Without it rows follow each other from the
  // TrainingScope's first sample, with equally many rows for each of its samples.
  std::optional<Var> index = {};
};
// In a TrainingScope, x / (1 - rate) where kept and 0 where dropped; elsewhere x.
Var ApplyDropout(Located x, const DropoutOptions& options);

// A user's own op (runtime/op.h; with a gradient: autograd/custom.h).
Outputs ApplyCustom(std::shared_ptr<const CustomOp> custom, const std::vector<Var>& inputs,
                    Caller caller = Caller::Here());

}  // namespace gemmill
