#include "gemmill/autograd/custom.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// x -> x^3 and x^2, of f64.
template <typename Base>
class PowersOp : public Base {
 public:
  std::string Name() const override { return "Powers"; }
  absl::StatusOr<std::vector<Spec>> Infer(Specs inputs) const override {
    if (inputs.size() != 1 || inputs[0].dtype != DType::kF64) return InvalidArgument("takes one f64 input");
    return std::vector<Spec>{inputs[0], inputs[0]};
  }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    const auto* x = static_cast<const double*>(inputs[0].data());
    for (int64_t i = 0; i < inputs[0].num_elements(); ++i) {
      if (x[i] > 100) return OutOfRange("element ", i, " is ", x[i]);
      static_cast<double*>(outputs[0].data())[i] = x[i] * x[i] * x[i];
      static_cast<double*>(outputs[1].data())[i] = x[i] * x[i];
    }
    return absl::OkStatus();
  }
};

class DifferentiablePowers : public PowersOp<DifferentiableOp> {
  std::vector<Var> Vjp(absl::Span<const Var> in, absl::Span<const Var>, absl::Span<const Var> dout) const override {
    const Var cube = dout[0].node() == nullptr ? Var() : dout[0] * 3.0 * in[0] * in[0];
    const Var square = dout[1].node() == nullptr ? Var() : dout[1] * 2.0 * in[0];
    if (cube.node() == nullptr) return {square};
    return {square.node() == nullptr ? cube : cube + square};
  }
};

class WronglyShaped : public PowersOp<DifferentiableOp> {
  std::vector<Var> Vjp(absl::Span<const Var>, absl::Span<const Var>, absl::Span<const Var>) const override {
    return {Fill({7}, 1, DType::kF64)};
  }
};

Outputs Powers(const Var& x) { return ApplyCustom(std::make_shared<DifferentiablePowers>(), {x}); }

TEST(CustomTest, GradientsOfEachOutputAndOfBoth) {
  const Var x = Parameter({1, 2, 3}, {3}, DType::kF64);
  const Outputs y = Powers(x);
  ASSERT_EQ(y.size(), 2u);
  ExpectVar(y[0], {1, 8, 27});
  ExpectVar(y[1], {1, 4, 9});
  ExpectVar(Grad(Sum(y[0]), {x})[0], {3, 12, 27});
  ExpectVar(Grad(Sum(y[1]), {x})[0], {2, 4, 6});
  ExpectVar(Grad(Sum(y[0] + y[1]), {x})[0], {5, 16, 33});
}

TEST(CustomTest, GradientsOfHigherOrder) {
  const Var x = Parameter({1, 2, 3}, {3}, DType::kF64);
  const Var slope = Grad(Sum(Powers(x)[0]), {x}, {.differentiable = true})[0];
  ExpectVar(Grad(Sum(slope), {x})[0], {6, 12, 18});
}

TEST(CustomTest, WithoutAGradient) {
  const Var x = Parameter({1, 2, 3}, {3}, DType::kF64);
  const int line = __LINE__ + 1;
  const Var y = ApplyCustom(std::make_shared<PowersOp<CustomOp>>(), {x})[0];
  ExpectVar(y, {1, 8, 27});
  EXPECT_THAT(Message(Grad(Sum(y), {x})[0]), AllOf(HasSubstr("Powers has no gradient"), HasSubstr("DifferentiableOp"),
                                                   HasSubstr(Place(__FILE__, line))));
  // No gradient is asked for through it here.
  const Var other = Parameter({1}, {}, DType::kF64);
  ExpectVar(Grad(Sum(y) * other, {other})[0], {36});
}

TEST(CustomTest, AWronglyShapedGradientIsAnError) {
  const Var x = Parameter({1, 2, 3}, {3}, DType::kF64);
  const Var y = ApplyCustom(std::make_shared<WronglyShaped>(), {x})[0];
  const std::string message = Message(Grad(Sum(y), {x})[0]);
  EXPECT_THAT(message, AllOf(HasSubstr("Powers"), HasSubstr("f64[7]"), HasSubstr("f64[3]")));
}

TEST(CustomTest, ItsErrorsNameItAndTheCallersLine) {
  EXPECT_THAT(Message(Powers(Constant({1}, {1}))[0]),
              AllOf(HasSubstr("Powers"), HasSubstr("takes one f64 input"), HasSubstr("custom_test.cc:")));
  const Var large = Constant({1, 101}, {2}, DType::kF64);
  const int line = __LINE__ + 1;
  const Var y = ApplyCustom(std::make_shared<DifferentiablePowers>(), {large})[0];
  EXPECT_THAT(Message(y), AllOf(HasSubstr("Powers"), HasSubstr("element 1 is 101"), HasSubstr(Place(__FILE__, line))));
  EXPECT_FALSE(ApplyCustom(nullptr, {large})[0].ok());
}

class Throws : public DifferentiableOp {
 public:
  explicit Throws(const char* where) : where_(where) {}
  std::string Name() const override { return "Throws"; }
  absl::StatusOr<std::vector<Spec>> Infer(Specs inputs) const override {
    ThrowIn("Infer");
    return std::vector<Spec>{inputs[0]};
  }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    ThrowIn("Run");
    return outputs[0].CopyFrom(inputs[0]);
  }
  std::vector<Var> Vjp(absl::Span<const Var>, absl::Span<const Var>, absl::Span<const Var> dout) const override {
    ThrowIn("Vjp");
    return {dout[0]};
  }

 private:
  void ThrowIn(const char* here) const {
    if (std::string(here) == where_) throw std::runtime_error("thrown here");
  }
  const char* where_;
};

TEST(CustomTest, WhatItThrowsIsAnError) {
  const Var x = Parameter({1}, {});
  for (const char* where : {"Infer", "Run", "Vjp"}) {
    const Var y = ApplyCustom(std::make_shared<Throws>(where), {x})[0];
    EXPECT_THAT(Message(Grad(y, {x})[0]), AllOf(HasSubstr("Throws"), HasSubstr("thrown here"))) << where;
    EXPECT_EQ(y.ok(), std::string(where) == "Vjp");
  }
}

}  // namespace
}  // namespace gemmill
