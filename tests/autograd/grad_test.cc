#include "gemmill/autograd/grad.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gemmill/autograd/ops.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// An optimizer's step, as far as the graph can tell.
void ChangeInPlace(const Var& var) { TensorIn(var).buffer()->MarkWritten(); }

TEST(GradTest, IsAFunctionOverTheGraph) {
  const Var x = Parameter({1, 2}, {2});
  const Var w = Parameter({3, 5}, {2});
  const Var loss = Sum(x * x * w);
  for (int run = 0; run < 3; ++run) ExpectVar(Grad(loss, {x})[0], {6, 20});
  const std::vector<Var> both = Grad(loss, {w, x});
  ExpectVar(both[0], {1, 4});
  ExpectVar(both[1], {6, 20});
  EXPECT_FALSE(both[0].requires_grad());
}

TEST(GradTest, OfAnIntermediateValue) {
  const Var x = Parameter({3}, {});
  const Var y = x * x;
  const Var loss = y * y;
  const std::vector<Var> gradients = Grad(loss, {y, x, loss});
  ExpectVar(gradients[0], {18});
  ExpectVar(gradients[1], {108});
  ExpectVar(gradients[2], {1});
}

TEST(GradTest, TheSameVarAskedForTwice) {
  const Var x = Parameter({3}, {});
  const std::vector<Var> gradients = Grad(x * x, {x, x});
  ExpectVar(gradients[0], {6});
  ExpectVar(gradients[1], {6});
}

TEST(GradTest, ZerosWhereTheLossDoesNotDepend) {
  const Var x = Parameter({3}, {});
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
    const Var unused = Parameter({1, 2}, {1, 2}, dtype);
    const Var gradient = Grad(x * x, {x, unused})[1];
    EXPECT_EQ(gradient.spec(), unused.spec());
    ExpectVar(gradient, {0, 0});
  }
  const Var frozen = Parameter({4}, {});
  frozen.SetRequiresGrad(false);
  ExpectVar(Grad(x * frozen, {x, frozen})[1], {0});
}

TEST(GradTest, OfNoVars) { EXPECT_TRUE(Grad(Parameter({3}, {}) * 2.0, {}).empty()); }

TEST(GradTest, TheLossIsOneFloatingElement) {
  const Var x = Parameter({1, 2}, {2});
  EXPECT_THAT(Message(Grad(x * x, {x})[0]), AllOf(HasSubstr(Place(__FILE__, __LINE__)), HasSubstr("f32[2]")));
  EXPECT_THAT(Message(Grad(Sum(Cast(x, DType::kI64)), {x})[0]), HasSubstr("i64[]"));
  EXPECT_THAT(Message(Grad(Var(), {x})[0]), HasSubstr("empty Var"));
  EXPECT_THAT(Message(Grad(Sum(x), {x, Var()})[0]), HasSubstr("empty Var"));
  ExpectVar(Grad(Sum(x, {{0}, true}), {x})[0], {1, 1});
}

TEST(GradTest, ALossOfNoParameterIsAnError) {
  const Var x = Constant({1, 2}, {2});
  const Var w = Parameter({1}, {});
  const std::vector<Var> gradients = Grad(Sum(x), {w, w});
  const int line = __LINE__ - 1;
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_THAT(Message(gradients[1]), AllOf(HasSubstr("no parameter"), HasSubstr(Place(__FILE__, line))));
  w.SetRequiresGrad(false);
  EXPECT_THAT(Message(Grad(Sum(x) * w, {w})[0]), HasSubstr("frozen"));
}

TEST(GradTest, AChangeInPlaceAfterUseIsAnError) {
  const Var w = Parameter({3}, {});
  const int line = __LINE__ + 1;
  const Var loss = w * w;
  ExpectVar(Grad(loss, {w})[0], {6});
  ChangeInPlace(w);
  EXPECT_THAT(Message(Grad(loss, {w})[0]),
              AllOf(HasSubstr("changed in place"), HasSubstr(Place(__FILE__, line)), HasSubstr("mul")));
  ExpectVar(Grad(w * w, {w})[0], {6});
}

TEST(GradTest, Diamonds) {
  const Var x = Parameter({2}, {}, DType::kF64);
  const Var a = x * 3.0;
  ExpectVar(Grad(a * x + a + x, {x})[0], {12 + 4});
  // 2^60 paths, each node visited once.
  Var y = x;
  for (int i = 0; i < 60; ++i) y = y + y;
  ExpectVar(Grad(y, {x})[0], {std::ldexp(1.0, 60)});
}

TEST(GradTest, MatMulOfAValueWithItself) {
  const Var x = Parameter({1, 2, 3, 4}, {2, 2});
  // d sum(X X) = column sums to the left, row sums to the right.
  ExpectVar(Grad(Sum(MatMul(x, x)), {x})[0], {3 + 4, 7 + 4, 3 + 6, 7 + 6});
  ExpectVar(Grad(Sum(MatMul(x, x, {.trans_b = true})), {x})[0], {8, 12, 8, 12});
}

TEST(GradTest, SumsOverWhatWasBroadcast) {
  const Var a = Parameter({1, 2, 3, 4, 5, 6}, {2, 1, 3});
  const Var b = Parameter({1, 2, 3, 4}, {4, 1});
  const Var scalar = Parameter({2}, {});
  const std::vector<Var> gradients = Grad(Sum(a * b * scalar), {a, b, scalar});
  EXPECT_EQ(gradients[0].shape(), a.shape());
  EXPECT_EQ(gradients[1].shape(), b.shape());
  EXPECT_EQ(gradients[2].shape(), Shape{});
  ExpectVar(gradients[0], std::vector<double>(6, 20));
  ExpectVar(gradients[1], std::vector<double>(4, 42));
  ExpectVar(gradients[2], {210});
  const Var empty = Constant({}, {0, 4, 3});
  ExpectVar(Grad(Sum(empty * b), {b})[0], {0, 0, 0, 0});
}

TEST(GradTest, SumsOverBatchDimensionsOfMatMul) {
  const Var a = Parameter({1, 2, 3, 4}, {2, 1, 2});
  const Var w = Parameter({1, 1}, {2, 1});
  ExpectVar(Grad(Sum(MatMul(a, w)), {w})[0], {1 + 3, 2 + 4});
  const Var left = Parameter({1, 2}, {1, 2});
  const Var right = Parameter({1, 2, 3, 4}, {2, 2, 1});
  ExpectVar(Grad(Sum(MatMul(left, right)), {left})[0], {1 + 3, 2 + 4});
}

TEST(GradTest, OfMatMulWithoutElements) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{0, 4}, {4, 0}, {0, 0}}) {
    for (const bool trans_b : {false, true}) {
      const Var x = Parameter(std::vector<double>(static_cast<size_t>(2 * 3 * k), 1), {2, 3, k});
      const Var w = Parameter({}, trans_b ? Shape{n, k} : Shape{k, n});
      const std::vector<Var> gradients = Grad(Sum(MatMul(x, w, {.trans_b = trans_b})), {x, w});
      EXPECT_TRUE(gradients[0].ok());
      EXPECT_EQ(gradients[0].shape(), x.shape());
      EXPECT_TRUE(gradients[1].ok());
      EXPECT_EQ(gradients[1].shape(), w.shape());
    }
  }
}

TEST(GradTest, RepeatedRowsAdd) {
  const Var table = Parameter({1, 2, 3, 4}, {2, 2});
  const Var index = Constant({1, 1, 0}, {3}, DType::kI64);
  ExpectVar(Grad(Sum(GatherRows(table, index)), {table})[0], {1, 1, 2, 2});
}

TEST(GradTest, SelectedAndJoinedParts) {
  const Var x = Parameter({1, 2, 3, 4}, {4});
  const Var y = Concat({Slice(x, 0, 0, 4, 2), x * 10.0, Constant({7}, {1})}, 0);
  ExpectVar(Grad(Sum(y), {x})[0], {11, 10, 11, 10});
}

// One frame per op would not fit the stack.
TEST(GradTest, ALongChain) {
  const Var x = Parameter({1}, {});
  Var y = x;
  for (int i = 0; i < 200000; ++i) y = -y;
  ExpectVar(Grad(y, {x})[0], {1});
}

TEST(GradTest, ALongChainOfGradients) {
  const Var x = Parameter({1}, {}, DType::kF64);
  Var y = x;
  for (int i = 0; i < 20000; ++i) y = Sin(y);
  const Var slope = Grad(y, {x}, {.differentiable = true})[0];
  EXPECT_TRUE(Grad(slope, {x})[0].ok());
}

TEST(GradTest, SameBitsInEveryRun) {
  const WithThreads two(2);
  std::vector<Tensor> seen;
  for (int run = 0; run < 3; ++run) {
    const Var x = Parameter(RandomDoubles(300 * 70, -1, 1, 1), {300, 70});
    const Var w = Parameter(RandomDoubles(70 * 40, -1, 1, 2), {70, 40});
    const Var y = Gelu(LayerNormalize(MatMul(x, w)));
    const std::vector<Var> gradients = Grad(Mean(y * y), {x, w});
    for (const Var& gradient : gradients) seen.push_back(TensorIn(gradient));
  }
  for (size_t i = 2; i < seen.size(); ++i) EXPECT_TRUE(SameBits(seen[i], seen[i % 2])) << i;
}

// A bf16 sum stands still at 256: 256 + 1 rounds to 256.
TEST(GradTest, ManyUsesOfABf16VarAddUp) {
  const Var w = Parameter({1}, {1}, DType::kBf16);
  Var loss = Sum(w);
  for (int i = 1; i < 1000; ++i) loss = loss + Sum(w);
  const Var gradient = Grad(loss, {w})[0];
  EXPECT_EQ(gradient.dtype(), DType::kBf16);
  ExpectVar(gradient, {1000});
}

// What goes wrong in a gradient rule is named by the line of the op whose gradient it is.
TEST(GradTest, RulesAreNamedByTheLineOfTheirOp) {
  const Var z = Parameter({1e-30}, {1});
  const int line = __LINE__ + 1;
  const Var quotient = Sum(Parameter({1}, {1}) / z);
  ASSERT_TRUE(quotient.ok());
  const CheckNumericsScope check;
  EXPECT_THAT(Message(Grad(quotient, {z})[0]), testing::HasSubstr(Place(__FILE__, line)));
}

}  // namespace
}  // namespace gemmill
