#include "gemmill/layers/loss.h"

#include <cmath>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

Var Labels(const std::vector<double>& values) {
  return Constant(values, {static_cast<int64_t>(values.size())}, DType::kI64);
}

TEST(LossTest, EveryTargetIgnored) {
  const Var logits = Parameter({1, 2, 3, 4, 5, 6}, {2, 3});
  const Loss loss = CrossEntropy(logits, Labels({-100, -100}));
  EXPECT_EQ(ReadOne(loss.count), 0);
  EXPECT_EQ(ReadOne(loss), 0);
  EXPECT_THAT(Read(Grad(loss, {logits})[0]), Each(0));
  // What is added weighs by the same count.
  EXPECT_THAT(Read(Grad(loss + Loss(Sum(logits * logits)), {logits})[0]), Each(0));
}

TEST(LossTest, OfNoSamples) {
  const Var logits = Parameter({}, {0, 3});
  EXPECT_EQ(ReadOne(CrossEntropy(logits, Labels({}))), 0);
  EXPECT_EQ(ReadOne(MeanSquaredError(logits, logits)), 0);
  EXPECT_EQ(Grad(CrossEntropy(logits, Labels({})), {logits})[0].shape(), (Shape{0, 3}));
}

TEST(LossTest, ALabelOutsideIsAnErrorWithItsIndexValueAndLine) {
  const Var logits = Parameter({1, 2, 3, 4, 5, 6}, {2, 3});
  const int line = __LINE__ + 1;
  const Loss loss = CrossEntropy(logits, Labels({0, -4}));
  EXPECT_THAT(Message(loss),
              AllOf(HasSubstr("the label of row 1 is -4, expected 0 to 2"), HasSubstr(Place(__FILE__, line))));
  EXPECT_THAT(Message(CrossEntropy(logits, Labels({3, 0}))), HasSubstr("the label of row 0 is 3, expected 0 to 2"));
  EXPECT_FALSE(CrossEntropy(logits, Labels({-100, 0}), {.ignore_index = 7}).Mean().ok());
  EXPECT_TRUE(CrossEntropy(logits, Labels({7, 0}), {.ignore_index = 7}).Mean().ok());
}

TEST(LossTest, WrongShapesAreErrors) {
  const Var logits = Parameter({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_THAT(Message(CrossEntropy(logits, Labels({0}))), AllOf(HasSubstr("i64[1]"), HasSubstr("f32[2, 3]")));
  EXPECT_FALSE(CrossEntropy(Parameter({1}, {}), Labels({0})).Mean().ok());
  EXPECT_FALSE(CrossEntropy(Reshape(logits, {1, 2, 3}), Reshape(Labels({0, 1}), {2, 1})).Mean().ok());
  EXPECT_FALSE(CrossEntropy(logits, Constant({0, 1}, {2})).Mean().ok());
  const int line = __LINE__ + 1;
  const Loss loss = MeanSquaredError(logits, Constant({1, 2}, {2}));
  EXPECT_THAT(Message(loss), AllOf(HasSubstr("MeanSquaredError"), HasSubstr("f32[2, 3]"), HasSubstr("f32[2]"),
                                   HasSubstr(Place(__FILE__, line))));
  EXPECT_THAT(Message(MeanAbsoluteError(Var(), logits)), HasSubstr("empty Var"));
}

TEST(LossTest, CrossEntropyOfTokens) {
  const std::vector<double> values = RandomDoubles(24, -2, 2, 3);
  const Var flat = Parameter(values, {6, 4});
  const Var tokens = Parameter(values, {2, 3, 4});
  const std::vector<double> labels{0, 3, -100, 2, 1, -100};
  const Loss expected = CrossEntropy(flat, Labels(labels));
  const Loss loss = CrossEntropy(tokens, Constant(labels, {2, 3}, DType::kI64));
  EXPECT_EQ(ReadOne(loss), ReadOne(expected));
  EXPECT_EQ(ReadOne(loss.count), 4);
  EXPECT_EQ(Read(Grad(loss, {tokens})[0]), Read(Grad(expected, {flat})[0]));
  EXPECT_NEAR(ReadOne(CrossEntropy(Parameter({0, 0}, {2}), Constant({1}, {}, DType::kI64))), std::log(2.0), 1e-6);
}

TEST(LossTest, TailsAreFinite) {
  const Var logits = Parameter({100, -100, -1000, 1000}, {2, 2});
  const Loss loss = CrossEntropy(logits, Labels({1, 0}));
  ExpectVar(loss, {1100});
  ExpectVar(Grad(loss, {logits})[0], {0.5, -0.5, -0.5, 0.5});
  const Var x = Parameter({-200, 200, 200}, {3});
  const Loss binary = BinaryCrossEntropyWithLogits(x, Constant({0, 1, 0}, {3}));
  ExpectVar(binary, {200.0 / 3});
  ExpectVar(Grad(binary, {x})[0], {0, 0, 1.0 / 3});
}

TEST(LossTest, BinaryCrossEntropyKeepsItsTails) {
  const std::vector<double> values{10, 20, -20, 100, 3};
  const std::vector<double> targets{1, 1, 0, 1, 0.25};
  const std::vector<double> expected{4.5398899e-5, 2.0611536e-9, 2.0611536e-9, 3.8e-44, 2.2985874};
  for (size_t i = 0; i < values.size(); ++i) {
    ExpectVar(BinaryCrossEntropyWithLogits(Parameter({values[i]}, {1}), Constant({targets[i]}, {1})), {expected[i]},
              1e-6, 1e-43);
  }
  const Var bf16 = Parameter({4}, {1}, DType::kBf16);
  ExpectVar(BinaryCrossEntropyWithLogits(bf16, Constant({1}, {1}, DType::kBf16)), {0.0181499279});

  const Var x = Parameter({0, 0, 0, 1e4, -1e4, 1e4, -1e4, 1e30}, {8});
  const Var t = Constant({0, 1, 0.25, 0, 1, 1, 0, 1}, {8});
  const Var slope = Grad(BinaryCrossEntropyWithLogits(x, t).sum, {x}, {.differentiable = true})[0];
  ExpectVar(slope, {0.5, -0.5, 0.25, 1, -1, 0, 0, 0});
  ExpectVar(Grad(Sum(slope), {x})[0], {0.25, 0.25, 0.25, 0, 0, 0, 0, 0});
}

// 1 + 2^-7 - -1 has 9 bits, one more than a bf16.
TEST(LossTest, Bf16DifferencesAreTakenInF32) {
  const Var x = Parameter({1.0078125}, {1}, DType::kBf16);
  const Var t = Constant({-1}, {1}, DType::kBf16);
  ExpectVar(MeanAbsoluteError(x, t), {2.0078125}, 0, 0);
  ExpectVar(MeanSquaredError(x, t), {2.0078125 * 2.0078125}, 0, 0);
  EXPECT_EQ(Grad(MeanSquaredError(x, t), {x})[0].dtype(), DType::kBf16);
}

void ExpectOrigins(const Var& var, int line) {
  if (!var.node()->op.has_value()) return;
  EXPECT_EQ(var.node()->origin.caller.ToString(), Place(__FILE__, line)) << OpName(*var.node()->op);
  for (const Var& input : var.node()->inputs) ExpectOrigins(input, line);
}

TEST(LossTest, EveryOpIsTheCallersLine) {
  for (DType dtype : {DType::kF32, DType::kBf16}) {
    const Var x = Parameter({1, 2, 3, 4}, {2, 1, 2}, dtype);
    const Var t = Constant({1, 0, 1, 0}, {2, 1, 2}, dtype);
    const Var labels = Constant({0, 1}, {2, 1}, DType::kI64);
    const int line = __LINE__ + 1;
    for (const Var& loss : {Var(MeanSquaredError(x, t)), Var(MeanAbsoluteError(x, t)), Var(CrossEntropy(x, labels)),  //
                            Var(BinaryCrossEntropyWithLogits(x, t) * 2.0 + MeanSquaredError(x, t))}) {
      ASSERT_TRUE(loss.ok());
      const int at = loss.node()->origin.caller.line;
      EXPECT_TRUE(at == line || at == line + 1);
      ExpectOrigins(loss, at);
    }
  }
}

TEST(LossTest, CrossEntropyOfNoClasses) {
  const Var logits = Parameter({}, {2, 1, 0});
  const Loss loss = CrossEntropy(logits, Constant({-100, -100}, {2, 1}, DType::kI64));
  EXPECT_EQ(ReadOne(loss), 0);
  EXPECT_EQ(Grad(loss, {logits})[0].shape(), (Shape{2, 1, 0}));
}

TEST(LossTest, PartsAddUpToTheWhole) {
  const Var x = Parameter(RandomDoubles(20, -1, 1, 1), {10, 2});
  const Var t = Constant(RandomDoubles(20, -1, 1, 2), {10, 2});
  const Loss whole = MeanSquaredError(x, t);
  const Loss head = MeanSquaredError(Slice(x, 0, 0, 3), Slice(t, 0, 0, 3));
  const Loss rest = MeanSquaredError(Slice(x, 0, 3, 10), Slice(t, 0, 3, 10));
  EXPECT_EQ(ReadOne(head.count) + ReadOne(rest.count), ReadOne(whole.count));
  EXPECT_NEAR(ReadOne((head.sum + rest.sum) / (head.count + rest.count)), ReadOne(whole), 1e-6);
}

TEST(LossTest, SumsAndMultiples) {
  const Var x = Parameter({1, 2}, {2});
  const Var zeros = Constant({0, 0}, {2});
  const Loss squares = MeanSquaredError(x, zeros);
  const Loss absolute = MeanAbsoluteError(x, zeros);
  EXPECT_FLOAT_EQ(static_cast<float>(ReadOne(squares + 3.0 * absolute)), 2.5f + 4.5f);
  EXPECT_FLOAT_EQ(static_cast<float>(ReadOne(squares * 0.5)), 1.25f);
  EXPECT_EQ(ReadOne((squares + absolute).count), 2);
  const Loss mean = Loss(Sum(x)) + squares;
  EXPECT_FLOAT_EQ(static_cast<float>(ReadOne(mean)), 5.5f);
  EXPECT_EQ(mean.count.node(), nullptr);
}

// A bf16 has 8 bits: neither 1,200 nor their sum fits one.
TEST(LossTest, Bf16IsSummedInF32) {
  const Var x = Parameter(std::vector<double>(1203, 1), {401, 3}, DType::kBf16);
  const Var zeros = Fill({401, 3}, 0, DType::kBf16);
  for (const Loss& loss : {MeanSquaredError(x, zeros), MeanAbsoluteError(x, zeros)}) {
    EXPECT_EQ(ReadOne(loss.count), 1203);
    EXPECT_EQ(ReadOne(loss.sum), 1203);
    EXPECT_EQ(ReadOne(loss), 1);
    EXPECT_EQ(Grad(loss, {x})[0].dtype(), DType::kBf16);
  }
  const Loss cross = CrossEntropy(x, Constant(std::vector<double>(401, 2), {401}, DType::kI64));
  EXPECT_NEAR(ReadOne(cross), std::log(3.0), 1e-6);
}

}  // namespace
}  // namespace gemmill
