#include "gemmill/autograd/precision.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/probe.h"
#include "gemmill/autograd/trace.h"
#include "gemmill/runtime/passes/passes.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

int CountSteps(const Program& program, const std::string& part) {
  return static_cast<int>(std::count_if(program.steps.begin(), program.steps.end(), [&](const Step& step) {
    return OpName(step.op).find(part) != std::string::npos;
  }));
}

class PrecisionTest : public testing::Test {
 protected:
  const Var x_ = Constant({1, 2, 3, 4, 5, 6}, {2, 3});
  const Var w_ = Parameter({0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, {2, 3});
  const Var b_ = Parameter({0.7, 0.8}, {2});

  Var Layer() const { return MatMul(x_, w_, {.trans_b = true}) + b_; }
};

TEST_F(PrecisionTest, Names) {
  EXPECT_EQ(ParsePrecision("bf16").value(), Precision::kBf16);
  EXPECT_EQ(ParsePrecision("f32").value(), Precision::kF32);
  EXPECT_THAT(Message(ParsePrecision("f16").status()), testing::HasSubstr("\"f16\", expected f32 or bf16"));
}

TEST_F(PrecisionTest, DTypes) {
  EXPECT_EQ(Layer().dtype(), DType::kF32);
  const PrecisionScope scope(Precision::kBf16);
  const Var y = Layer();
  const auto is = [](const Var& var, DType dtype) {
    EXPECT_TRUE(var.ok()) << var.status();
    EXPECT_EQ(var.dtype(), dtype);
  };
  for (const Var& stored : {y, Gelu(y), LayerNormalize(y), Softmax(y), y * b_, y + 1.0, Max(y), Relu(y) * y,
                            Reshape(w_, {3, 2}), Concat({y, Reshape(b_, {1, 2})}, 0)}) {
    is(stored, DType::kBf16);
  }
  for (const Var& wide : {Sum(y), Mean(y, {{1}}), Exp(y), Log(y), LogSoftmax(y), LogSumExp(y), y - x_ * x_ * 0.0 + y,
                          Pow(y, 2.0), Variance(y), CrossEntropySum(y, Constant({0, 1}, {2}, DType::kI64)).sum,
                          Concat({y, Constant({1, 2}, {1, 2})}, 0), Where(Greater(y, 0.0), y, Constant({1}, {}))}) {
    if (wide.ok()) is(wide, DType::kF32);
  }
  is(w_ * w_, DType::kF32);  // a penalty
  is(Probe(y, [](const Tensor&) {}), DType::kBf16);
  const PrecisionScope none(Precision::kF32);
  is(Layer(), DType::kF32);
}

TEST_F(PrecisionTest, InvalidStaysInvalid) {
  const PrecisionScope scope(Precision::kBf16);
  EXPECT_FALSE((Var() + b_).ok());
  EXPECT_FALSE(MatMul(x_, Var()).ok());
}

TEST_F(PrecisionTest, GradientsAreF32AndNearThoseOfF32) {
  const auto loss = [&] { return Mean(Gelu(LayerNormalize(Layer()) * b_)); };
  const std::vector<Var> exact = Grad(loss(), {w_, b_});
  Var narrow;
  {
    const PrecisionScope scope(Precision::kBf16);
    narrow = loss();
    // Inside the scope too: rules follow the forward pass.
    for (const Var& gradient : Grad(narrow, {w_, b_})) EXPECT_EQ(gradient.dtype(), DType::kF32) << gradient.status();
  }
  const std::vector<Var> rounded = Grad(narrow, {w_, b_});
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(rounded[i].dtype(), DType::kF32);
    ExpectVar(rounded[i], Read(exact[i]), 0.03, 0.02);
  }
}

TEST_F(PrecisionTest, AFrozenBiasIsNarrowedToo) {
  b_.SetRequiresGrad(false);
  const PrecisionScope scope(Precision::kBf16);
  EXPECT_EQ(Layer().dtype(), DType::kBf16);
}

TEST_F(PrecisionTest, OneCastForAllUses) {
  const auto record = [&](const std::vector<Var>& inputs) {
    const PrecisionScope scope(Precision::kBf16);
    const Var first = MatMul(inputs[0], w_, {.trans_b = true});
    return std::vector<Var>{first + MatMul(inputs[0], w_, {.trans_b = true})};
  };
  EXPECT_EQ(CountSteps(Trace(record, {x_.spec()}).value(), "Cast"), 2);
}

TEST_F(PrecisionTest, PassesFuseABiasThatIsCast) {
  const auto record = [&](const std::vector<Var>& inputs) {
    Var loss;
    {
      const PrecisionScope scope(Precision::kBf16);
      const Var hidden = Gelu(MatMul(inputs[0], w_, {.trans_b = true}) + b_);
      loss = Sum(hidden * hidden);
    }
    return Grad(loss, {w_, b_});
  };
  const Program program = Trace(record, {x_.spec()}).value();
  const Program fused = passes::Default(program);
  EXPECT_EQ(CountSteps(fused, "bias gelu"), 1) << ProgramString(fused);
  EXPECT_EQ(CountSteps(fused, "bias gradient"), 1) << ProgramString(fused);
  // The addition and the activation; the sum of the bias's gradient.
  EXPECT_EQ(fused.steps.size(), program.steps.size() - 3) << ProgramString(fused);
  EXPECT_TRUE(Check(fused).ok()) << Check(fused);
}

TEST_F(PrecisionTest, CopiesFollowTheirParameters) {
  const auto copies = std::make_shared<Bf16Copies>();
  int conversions = 0;
  const Replay::Watch watch = [&](const Program& program, size_t step, double) {
    EXPECT_EQ(OpName(program.steps[step].op), "Cast to bf16");
    ++conversions;
  };
  const auto product = [&] {
    const PrecisionScope scope(Precision::kBf16, copies);
    return MatMul(x_, w_, {.trans_b = true});
  };
  ExpectVar(product(), {1.4, 3.2, 3.2, 7.7}, 0.01);
  Tensor value = TensorIn(w_);
  ASSERT_TRUE(value.CopyFrom(MakeTensor({1, 0, 0, 0, 1, 0}, {2, 3})).ok());
  ASSERT_TRUE(copies->Refresh(watch).ok());
  EXPECT_EQ(conversions, 1);
  ExpectVar(product(), {1, 2, 4, 5});
  w_.SetRequiresGrad(false);  // converted only when it was written
  ASSERT_TRUE(copies->Refresh(watch).ok());
  EXPECT_EQ(conversions, 1);
  ASSERT_TRUE(value.CopyFrom(MakeTensor({0, 0, 1, 0, 1, 0}, {2, 3})).ok());
  ASSERT_TRUE(copies->Refresh(watch).ok());
  EXPECT_EQ(conversions, 2);
  ExpectVar(product(), {3, 2, 6, 5});
}

}  // namespace
}  // namespace gemmill
