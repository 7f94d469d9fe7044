// Every op, as a plain struct of its attributes. Ops are values: they can be compared, kept in a list and executed
// later. What an op does to shapes is in infer.cc, what it costs in cost.cc, how it runs in cpu/ and cuda/, its
// gradient in autograd/vjp_*.cc: overload sets visited over the variant, so that an op that lacks one of them does not
// compile.
//
// Shapes are written outermost first; "..." stands for any number of dimensions. Unless said otherwise, an op takes
// f32, bf16 and f64 alike, computes bf16 in f32, and its inputs have one dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/runtime/spec.h"
#include "gemmill/runtime/stream.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

using Axes = absl::InlinedVector<int64_t, 6>;

// Functions of one element. scalar_math.h holds the formula and the derivative of each.
enum class UnaryFn : uint8_t {
  kNeg,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kSigmoid,
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kSoftplus,
  kSin,
  kCos,
  kErf,
};
inline constexpr int kUnaryFnCount = static_cast<int>(UnaryFn::kErf) + 1;

// Functions of two elements; from kEqual on they are comparisons, whose result is u8, 0 or 1.
enum class BinaryFn : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMax,
  kMin,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
};
inline constexpr int kBinaryFnCount = static_cast<int>(BinaryFn::kGreaterEqual) + 1;
constexpr bool IsComparison(BinaryFn fn) { return fn >= BinaryFn::kEqual; }

enum class ReduceFn : uint8_t { kSum, kMean, kMax, kMin };
inline constexpr int kReduceFnCount = static_cast<int>(ReduceFn::kMin) + 1;

const char* FnName(UnaryFn fn);
const char* FnName(BinaryFn fn);
const char* FnName(ReduceFn fn);

namespace op {

// (a [..., M, K], b [..., K, N]) -> [..., M, N]; with trans_a the last two dimensions of a are (K, M), with trans_b
// those of b are (N, K). Leading (batch) dimensions broadcast as in NumPy.
struct MatMul {
  bool trans_a = false;
  bool trans_b = false;
  bool operator==(const MatMul&) const = default;
};

// (x) -> fn(x), same shape. kNeg, kAbs and kRelu also take i32 and i64.
struct Unary {
  UnaryFn fn;
  bool operator==(const Unary&) const = default;
};

// (v, dy) -> dy * fn'(x), where v is fn(x) for the functions whose derivative is simplest in their value
// (DerivativeTakesOutput in scalar_math.h) and x for the others.
struct UnaryGrad {
  UnaryFn fn;
  bool operator==(const UnaryGrad&) const = default;
};

// (a, b) -> fn(a, b) with NumPy broadcasting; also i32, i64 and u8. kMax and kMin of a NaN are NaN. Integers wrap
// around and their division truncates; dividing them by 0, or raising them to a power below 0, is an error.
struct Binary {
  BinaryFn fn;
  bool operator==(const Binary&) const = default;
};

// (condition u8, a, b) -> a where condition is not 0, else b; broadcasts; a and b of any one dtype.
struct Where {
  bool operator==(const Where&) const = default;
};

// (x) -> reduced over `axes` (distinct, 0 <= axis < rank). Also i32 and i64, but kMean. Sums run in f32 blocks whose
// partial sums are added in f64. Sum over nothing is 0, mean over nothing is NaN; kMax and kMin of nothing are an
// error.
struct Reduce {
  ReduceFn fn;
  Axes axes;
  bool keepdims = false;
  bool operator==(const Reduce&) const = default;
};

// (x) -> i64 index of the largest value along `axis`; ties go to the lowest index; NaN counts as largest.
struct ArgMax {
  int64_t axis = 0;
  bool keepdims = false;
  bool operator==(const ArgMax&) const = default;
};

// (x) -> x repeated to `shape` by NumPy's rules; any dtype.
struct BroadcastTo {
  Shape shape;
  bool operator==(const BroadcastTo&) const = default;
};

// (x [..., N]) -> softmax, or its logarithm, along the last axis. A row that is all -inf gives zeros
// (kLog: -inf), and its gradient is 0.
struct Softmax {
  bool log = false;
  bool operator==(const Softmax&) const = default;
};

// (y, dy) -> the gradient of Softmax, from its output y.
struct SoftmaxGrad {
  bool log = false;
  bool operator==(const SoftmaxGrad&) const = default;
};

// (x [..., N]) -> (y [..., N], rstd [...]): y = (x - mean) * rstd along the last axis; without `centered` the mean is
// not subtracted (RMS norm). rstd = 1 / sqrt(mean((x - mean)^2) + epsilon), f32 (f64 for f64). Two-pass statistics.
struct Normalize {
  bool centered = true;
  float epsilon = 1e-5f;
  bool operator==(const Normalize&) const = default;
};

// (y, rstd, dy) -> dx of Normalize.
struct NormalizeGrad {
  bool centered = true;
  bool operator==(const NormalizeGrad&) const = default;
};

// (logits [N, C], labels i64 or i32 [N]) -> (sum [], count [], logsumexp [N]), f32 (f64 for f64): the sum over rows
// whose label is not ignore_index of (1 - label_smoothing) * -log softmax[label] + label_smoothing * mean_c(-log
// softmax[c]), how many such rows there are, and each row's logsumexp (for a z-loss). Any other label outside [0, C) is
// an error naming index and value.
struct CrossEntropy {
  int64_t ignore_index = -100;
  float label_smoothing = 0;
  bool operator==(const CrossEntropy&) const = default;
};

// (logits, labels, dsum []) -> dlogits: the gradient of CrossEntropy's sum.
struct CrossEntropyGrad {
  int64_t ignore_index = -100;
  float label_smoothing = 0;
  bool operator==(const CrossEntropyGrad&) const = default;
};

// (table [V, ...row], index i64 or i32 [...i]) -> [...i, ...row]; any dtype. An index outside [0, V) is an error.
struct GatherRows {
  bool operator==(const GatherRows&) const = default;
};

// (values [...i, ...row], index [...i]) -> [rows, ...row], zeros with each value row added to row index[i], in order of
// i; sums of many rows run in f64.
struct ScatterAddRows {
  int64_t rows = 0;
  int64_t index_rank = 1;  // how many of the leading dimensions are the index's
  bool operator==(const ScatterAddRows&) const = default;
};

// (x) -> the same bytes as `shape`; any dtype.
struct Reshape {
  Shape shape;
  bool operator==(const Reshape&) const = default;
};

// (x) -> dimension i of the result is dimension axes[i] of x; any dtype.
struct Permute {
  Axes axes;
  bool operator==(const Permute&) const = default;
};

// (x) -> elements start, start + step, ... below stop along `axis`; 0 <= start <= stop <= size, step >= 1; any dtype.
struct Slice {
  int64_t axis = 0;
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  bool operator==(const Slice&) const = default;
};

// (x) -> zeros of `size` along `axis`, with x at start, start + step, ...: the gradient of Slice; any dtype.
struct Unslice {
  int64_t axis = 0;
  int64_t start = 0;
  int64_t step = 1;
  int64_t size = 0;
  bool operator==(const Unslice&) const = default;
};

// (x0, x1, ...) -> joined along `axis`; at least one input; any dtype.
struct Concat {
  int64_t axis = 0;
  bool operator==(const Concat&) const = default;
};

// (index i64 or i32 [...]) -> [..., classes] of `dtype`, 1 at the index. An index outside [0, classes) is an error.
struct OneHot {
  int64_t classes = 0;
  DType dtype = DType::kF32;
  bool operator==(const OneHot&) const = default;
};

// (x) -> x as `dtype`; any to any. Floating to integer truncates towards 0, saturates, and makes 0 of NaN.
struct Cast {
  DType dtype = DType::kF32;
  bool operator==(const Cast&) const = default;
};

// () -> `value` everywhere; an integer dtype must hold it exactly. The one op that says its device, having no input to
// take it from (Iota too).
struct Fill {
  Shape shape;
  DType dtype = DType::kF32;
  double value = 0;
  Device device = {};
  bool operator==(const Fill&) const = default;
};

// () -> i64 [size]: 0, 1, 2, ...
struct Iota {
  int64_t size = 0;
  Device device = {};
  bool operator==(const Iota&) const = default;
};

// (x [rows..., N], key i64 [2], index i64 [rows]) -> x / (1 - rate) where kept, 0 where dropped. Element (r, c) is
// dropped when word c % 4 of Philox4x32-10 is below rate * 2^32, whose key is made of key[0], a seed, and the stream,
// and whose counter of index[r], c / 4 and key[1], a step (philox.h): the mask depends on the position in the global
// batch, never on how the batch was split. Its gradient is itself.
struct Dropout {
  float rate = 0.5f;
  int64_t stream = 0;
  bool operator==(const Dropout&) const = default;
};

// (x0, x1, ...) -> f32 []: sqrt of the sum of all squares, accumulated in f64 in the order given.
struct GlobalNorm {
  bool operator==(const GlobalNorm&) const = default;
};

// Multi-tensor optimizer updates. Inputs are `control` f64 [3] (learning rate, 1-based step number, gradient scale:
// what each gradient is multiplied by first), then for all parameters their weights, for all their gradients, and each
// kind of state in turn; outputs are the weights and the state in the same order, and may be the very same buffers.
// Gradients have the weight's dtype or that of the state, which is f32 (f64 for f64 weights). Each bf16 weight has, as
// the last state, an f32 master: small steps add up there, and the weight is the master rounded. A master that does not
// round to its weight is out of date (at the start, or where the weight was set) and is taken from the weight again.

// (control, w..., g..., v..., master...) -> (w..., v..., master...); without momentum there is no v. Formulas as in
// PyTorch's documentation of torch.optim.SGD.
struct Sgd {
  float momentum = 0;
  bool nesterov = false;
  std::vector<float> weight_decay;         // one per parameter
  std::vector<float> learning_rate_scale;  // one per parameter
  bool operator==(const Sgd&) const = default;
};

// (control, w..., g..., m..., v..., master...) -> (w..., m..., v..., master...): Loshchilov and Hutter, "Decoupled
// Weight Decay Regularization" (2019), algorithm 2: w1 = w0 (1 - lr * wd) - lr * mhat / (sqrt(vhat) + epsilon).
struct AdamW {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  std::vector<float> weight_decay;
  std::vector<float> learning_rate_scale;
  bool operator==(const AdamW&) const = default;
};

// (x [..., E]) -> i64 [..., k]: where the k largest of each row stand, largest first; ties go to the lowest index; NaN
// counts as largest. 1 <= k <= E.
struct TopK {
  int64_t k = 1;
  bool operator==(const TopK&) const = default;
};

// (x [..., N], index i64 [..., k]) -> x[..., index], row by row. An index outside [0, N) is an error.
struct TakeAlong {
  bool operator==(const TakeAlong&) const = default;
};

// (values [..., k], index i64 [..., k]) -> [..., size]: zeros, with each value added at its index, in order: the
// gradient of TakeAlong.
struct AddAlong {
  int64_t size = 0;
  bool operator==(const AddAlong&) const = default;
};

// Mixture of Experts: T tokens, E experts, k choices of each token, and R rows, of which each expert has some, one
// expert's after another's. `row` i64 [T, k] says which row belongs to a token's choice, -1 that none does; no row
// belongs to two choices. `offsets` i64 [E + 1] says where each expert's rows begin, and the last where they end: rows
// from there on belong to nobody and are zeros wherever an op makes them. Products with rows have one weight per row of
// f32 (f64 for f64), or none, which is 1.

// (index i64 [T, k][, mask u8 [T]]) -> (row [T, k], offsets [E + 1], counts i64 [E]): one row for each choice, sorted
// by expert and then by token; R is T k. Choices of a token whose mask is 0 have none and are not counted. With a
// capacity_factor other than 0 an expert has at most ceil(S k / E * capacity_factor) rows, S being the tokens that are
// not masked out: choices of later tokens have none. `counts` are the choices of each expert, those included. An index
// outside [0, E) is an error.
struct AssignRows {
  int64_t experts = 0;
  double capacity_factor = 0;
  bool operator==(const AssignRows&) const = default;
};

// (x [T, H], row [T, k][, weights [T, k]]) -> [rows, H]: weight times the token of each row.
struct DispatchRows {
  int64_t rows = 0;
  bool operator==(const DispatchRows&) const = default;
};

// (rows [R, H], row [T, k][, weights [T, k]]) -> [T, H]: the sum over a token's choices, in their order, of weight
// times row.
struct CombineRows {
  bool operator==(const CombineRows&) const = default;
};

// (rows [R, H], row [T, k], x [T, H]) -> [T, k], f32 (f64 for f64): the inner product of a choice's row and its token;
// 0 where there is no row.
struct DotRows {
  bool operator==(const DotRows&) const = default;
};

// (rows [R, K], weights [E, K, N], offsets) -> [R, N]: each row times the matrix of its expert, which with trans_b lies
// as (N, K).
struct GroupedMatMul {
  bool trans_b = false;
  bool operator==(const GroupedMatMul&) const = default;
};

// (a [R, M], b [R, N], offsets) -> [E, M, N]: for each expert the transpose of its rows of a times its rows of b; zeros
// for one without rows.
struct GroupedMatMulWgrad {
  bool operator==(const GroupedMatMulWgrad&) const = default;
};

// (x [..., 2 F]) -> fn(first half of the row) * second half: SwiGLU with kSilu (Shazeer, "GLU Variants Improve
// Transformer", 2020).
struct GatedUnary {
  UnaryFn fn = UnaryFn::kSilu;
  bool operator==(const GatedUnary&) const = default;
};

// (x [..., 2 F], dy [..., F]) -> dx of GatedUnary.
struct GatedUnaryGrad {
  UnaryFn fn = UnaryFn::kSilu;
  bool operator==(const GatedUnaryGrad&) const = default;
};

// What passes make of several ops (runtime/passes): the same bits, in fewer walks over memory. They have no gradients,
// because passes run after Grad.

// (a, b[, bias [N]]) -> activation(a b + bias), as MatMul, Binary kAdd and Unary give it; with `keep`, which needs
// an activation, there is a second output, a b + bias.
struct FusedMatMul {
  MatMul matmul;
  bool bias = false;
  std::optional<UnaryFn> activation;
  bool keep = false;
  bool operator==(const FusedMatMul&) const = default;
};

// (v [..., N], dy [..., N]) -> (dx [..., N], dbias [N]): UnaryGrad, and the sum of its rows.
struct ActivationBiasGrad {
  UnaryFn fn;
  bool operator==(const ActivationBiasGrad&) const = default;
};

}  // namespace op

// A user's own op. Objects are immutable. Derive from DifferentiableOp (autograd/custom.h) for one with a gradient.
class CustomOp {
 public:
  virtual ~CustomOp() = default;
  // Two objects of one class with one name are the same op, so that a loss function may make its op anew in every call:
  // a name tells of what the op depends on ("Clip to 5").
  virtual std::string Name() const = 0;
  virtual absl::StatusOr<std::vector<Spec>> Infer(absl::Span<const Spec> inputs) const = 0;
  // Writes the outputs, which are allocated as Infer said.
  virtual absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream& stream) const = 0;
};

namespace op {
struct Custom {
  std::shared_ptr<const CustomOp> custom;
  bool operator==(const Custom& other) const;
};
}  // namespace op

using Op =
    std::variant<op::MatMul, op::Unary, op::UnaryGrad, op::Binary, op::Where, op::Reduce, op::ArgMax, op::BroadcastTo,
                 op::Softmax, op::SoftmaxGrad, op::Normalize, op::NormalizeGrad, op::CrossEntropy, op::CrossEntropyGrad,
                 op::GatherRows, op::ScatterAddRows, op::Reshape, op::Permute, op::Slice, op::Unslice, op::Concat,
                 op::OneHot, op::Cast, op::Fill, op::Iota, op::Dropout, op::GlobalNorm, op::Sgd, op::AdamW, op::TopK,
                 op::TakeAlong, op::AddAlong, op::AssignRows, op::DispatchRows, op::CombineRows, op::DotRows,
                 op::GroupedMatMul, op::GroupedMatMulWgrad, op::GatedUnary, op::GatedUnaryGrad, op::FusedMatMul,
                 op::ActivationBiasGrad, op::Custom>;

// "MatMul", "gelu", "reduce sum", ...
std::string OpName(const Op& op);
// The name with what tells it from others of that name: "MatMul {trans_b}", "Fill {0.25}", "Slice {axis 0, 1:5}".
std::string OpString(const Op& op);

}  // namespace gemmill
