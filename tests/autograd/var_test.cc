#include "gemmill/autograd/var.h"

#include <memory>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(VarTest, HoldsAValue) {
  const Var x = Constant({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_TRUE(x.ok());
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.dtype(), DType::kF32);
  EXPECT_EQ(x.device(), Device::Cpu());
  EXPECT_THAT(ValueOf(x.ToVector<float>()), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(VarTest, ErrorsNameTheLineOfOperators) {
  const Var a = Constant({1, 2, 3, 4, 5, 6}, {2, 3});
  const Var b = Constant({1, 2, 3, 4}, {4});
  const auto at = [](int line) { return HasSubstr(Place(__FILE__, line)); };
  EXPECT_THAT(Message(a + b), AllOf(at(__LINE__), HasSubstr("[2, 3]"), HasSubstr("[4]")));
  EXPECT_THAT(Message(a - b), at(__LINE__));
  EXPECT_THAT(Message(a * b), at(__LINE__));
  EXPECT_THAT(Message(a / b), at(__LINE__));
  EXPECT_THAT(Message(-Constant({1}, {1}, DType::kU8)), at(__LINE__));
}

TEST(VarTest, ErrorsNameTheLineOfFunctions) {
  const Var a = Constant({1, 2, 3, 4, 5, 6}, {2, 3});
  const Var index = Constant({7}, {1}, DType::kI64);
  const auto at = [](int line) { return HasSubstr(Place(__FILE__, line)); };
  EXPECT_THAT(Message(MatMul(a, a)), AllOf(at(__LINE__), HasSubstr("MatMul"), HasSubstr("[2, 3]")));
  EXPECT_THAT(Message(Gelu(index)), AllOf(at(__LINE__), HasSubstr("gelu"), HasSubstr("i64[1]")));
  EXPECT_THAT(Message(Sum(a, {{2}})), AllOf(at(__LINE__), HasSubstr("2")));
  EXPECT_THAT(Message(Softmax(a, 5)), AllOf(at(__LINE__), HasSubstr("axis 5")));
  EXPECT_THAT(Message(Reshape(a, {4, -1})), AllOf(at(__LINE__), HasSubstr("[4, -1]"), HasSubstr("f32[2, 3]")));
  EXPECT_THAT(Message(Transpose(index)), at(__LINE__));
  EXPECT_THAT(Message(Concat({a, index}, 0)), at(__LINE__));
  EXPECT_THAT(Message(Concat({}, 0)), at(__LINE__));
  EXPECT_THAT(Message(GatherRows(a, index)), AllOf(at(__LINE__), HasSubstr("7")));
  EXPECT_THAT(Message(Slice(a, 0, 1, 9)), at(__LINE__));
  EXPECT_THAT(Message(Fill({2, -1}, 0)), at(__LINE__));
  EXPECT_THAT(Message(Where(a, a, 0.0)), AllOf(at(__LINE__), HasSubstr("u8")));
  EXPECT_THAT(Message(CrossEntropySum(a, index).sum), at(__LINE__));
  EXPECT_THAT(Message(Variance(a, {{2}})), at(__LINE__));
  EXPECT_THAT(Message(LogSumExp(a, 2)), at(__LINE__));
}

TEST(VarTest, FirstErrorWins) {
  const Var a = Constant({1, 2}, {2});
  const int line = __LINE__ + 1;
  const Var first = a + Constant({1, 2, 3}, {3});
  const Var later = Sum(Relu(MatMul(first * 2.0, Var())) + a);
  EXPECT_EQ(later.status(), first.status());
  EXPECT_THAT(Message(later), HasSubstr(Place(__FILE__, line)));
  EXPECT_EQ(later.Value().status(), first.status());
  EXPECT_EQ(later.Item().status(), first.status());
  EXPECT_EQ(later.ToVector<float>().status(), first.status());
  EXPECT_EQ(Grad(later, {a})[0].status(), first.status());
}

TEST(VarTest, EmptyVar) {
  const Var empty;
  EXPECT_FALSE(empty.ok());
  EXPECT_THAT(Message(empty), HasSubstr("empty Var"));
  EXPECT_TRUE(empty.shape() == Shape{0});
  EXPECT_FALSE(empty.requires_grad());
  EXPECT_THAT(Message(empty.Item().status()), AllOf(HasSubstr("empty Var"), HasSubstr(Place(__FILE__, __LINE__))));
  EXPECT_THAT(Message(empty.Value().status()), HasSubstr(Place(__FILE__, __LINE__)));
  EXPECT_FALSE(empty.Detach().ok());
  empty.SetRequiresGrad(true);
  EXPECT_THAT(Message(empty + 1.0), AllOf(HasSubstr("empty Var"), HasSubstr(Place(__FILE__, __LINE__))));
  EXPECT_THAT(Message(Reshape(empty, {-1, 2})), HasSubstr("empty Var"));
  EXPECT_THAT(Message(Softmax(empty)), HasSubstr("empty Var"));
  EXPECT_THAT(Message(Var(Tensor())), HasSubstr("empty Tensor"));
}

TEST(VarTest, ItemTakesOneElementOfAnyDType) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_EQ(ReadOne(Constant({3}, {1, 1}, dtype)), 3) << DTypeName(dtype);
  }
  const int line = __LINE__ + 1;
  const absl::Status status = Constant({1, 2}, {2}).Item().status();
  EXPECT_THAT(Message(status), AllOf(HasSubstr("f32[2]"), HasSubstr("one element"), HasSubstr(Place(__FILE__, line))));
  EXPECT_FALSE(Constant({}, {0}).Item().ok());
}

TEST(VarTest, ToVectorWantsTheDTypesOwnType) {
  const Var x = Constant({1, 2}, {2});
  const int line = __LINE__ + 1;
  const absl::Status status = x.ToVector<double>().status();
  EXPECT_THAT(Message(status), AllOf(HasSubstr("f32"), HasSubstr("f64"), HasSubstr(Place(__FILE__, line))));
  EXPECT_THAT(ValueOf(x.ToVector<float>()), ElementsAre(1, 2));
}

TEST(VarTest, NoGradScopeKeepsNoHistory) {
  const Var w = Parameter({2}, {});
  EXPECT_TRUE((w * w).requires_grad());
  {
    const NoGradScope no_grad;
    const Var y = w * w;
    EXPECT_FALSE(y.requires_grad());
    EXPECT_TRUE(y.node()->inputs.empty());
    {
      const NoGradScope record(false);
      EXPECT_TRUE((w * w).requires_grad());
    }
    EXPECT_FALSE(GradEnabled());
    EXPECT_THAT(Message(Grad(y, {w})[0]), HasSubstr("NoGradScope"));
  }
  EXPECT_TRUE(GradEnabled());
}

TEST(VarTest, DetachCutsTheHistory) {
  const Var w = Parameter({3}, {});
  EXPECT_FALSE(w.Detach().requires_grad());
  EXPECT_EQ(ReadOne(w.Detach()), 3);
  EXPECT_EQ(ReadOne(Grad(w * w.Detach(), {w})[0]), 3);
}

TEST(VarTest, OnlyFloatingLeavesTakeGradients) {
  EXPECT_FALSE(Parameter({1}, {1}, DType::kI64).requires_grad());
  EXPECT_TRUE(Parameter({1}, {1}, DType::kBf16).requires_grad());
  EXPECT_FALSE(Constant({1}, {1}).requires_grad());
  const Var index = Constant({1}, {1}, DType::kI64);
  index.SetRequiresGrad(true);
  EXPECT_FALSE(index.requires_grad());
}

TEST(VarTest, FreezingHoldsForEveryHandle) {
  const Var w = Parameter({3}, {});
  const Var other = w;
  w.SetRequiresGrad(false);
  EXPECT_FALSE(other.requires_grad());
  EXPECT_FALSE((other * 2.0).requires_grad());
  other.SetRequiresGrad(true);
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(w.Is(other));
  EXPECT_FALSE(w.Is(Parameter({3}, {})));
}

// Destroying the last handle must not take a stack frame per op.
TEST(VarTest, ALongChainIsDestroyed) {
  Var y = Parameter({1}, {});
  const std::weak_ptr<Node> leaf = y.node();
  for (int i = 0; i < 200000; ++i) y = -y;
  EXPECT_EQ(ReadOne(y), 1);
  EXPECT_FALSE(leaf.expired());
  y = Var();
  EXPECT_TRUE(leaf.expired());
}

TEST(VarTest, AValueWithoutGradientKeepsNoInputs) {
  Var x = Constant({1}, {});
  const std::weak_ptr<Node> node = x.node();
  const Var y = x + 1.0;
  x = Var();
  EXPECT_TRUE(node.expired());
  EXPECT_EQ(ReadOne(y), 2);
  EXPECT_THAT(Message(Grad(y, {y})[0]), Not(HasSubstr("empty Var")));
}

}  // namespace
}  // namespace gemmill
