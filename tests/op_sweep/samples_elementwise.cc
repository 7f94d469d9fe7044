#include <memory>

#include "tests/op_sweep/samples.h"

namespace gemmill {
namespace {

const std::vector<DType> kAll = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8};
const std::vector<DType> kSigned = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64};
const std::vector<DType> kFloating = {DType::kF32, DType::kBf16, DType::kF64};

bool NeedsPositive(UnaryFn fn) { return fn == UnaryFn::kLog || fn == UnaryFn::kSqrt || fn == UnaryFn::kRsqrt; }

// y = x^2 + a, with a gradient.
class SquarePlus : public DifferentiableOp {
 public:
  std::string Name() const override { return "SquarePlus"; }
  absl::StatusOr<std::vector<Spec>> Infer(absl::Span<const Spec> inputs) const override {
    if (inputs.size() != 2 || inputs[0] != inputs[1] || inputs[0].dtype != DType::kF64) {
      return InvalidArgument("takes two f64 inputs of one shape");
    }
    return std::vector<Spec>{inputs[0]};
  }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    const auto* x = static_cast<const double*>(inputs[0].data());
    const auto* a = static_cast<const double*>(inputs[1].data());
    for (int64_t i = 0; i < inputs[0].num_elements(); ++i) {
      static_cast<double*>(outputs[0].data())[i] = x[i] * x[i] + a[i];
    }
    return absl::OkStatus();
  }
  std::vector<Var> Vjp(absl::Span<const Var> inputs, absl::Span<const Var>,
                       absl::Span<const Var> output_gradients) const override {
    const Var two_x = Apply1(op::Binary{BinaryFn::kAdd}, {inputs[0], inputs[0]}, Caller::Here());
    return {Apply1(op::Binary{BinaryFn::kMul}, {two_x, output_gradients[0]}, Caller::Here()), output_gradients[0]};
  }
};

}  // namespace

Samples SamplesOf(For<op::Unary>) {
  Samples samples;
  for (int i = 0; i < kUnaryFnCount; ++i) {
    const UnaryFn fn = static_cast<UnaryFn>(i);
    const double low = NeedsPositive(fn) ? 0.2 : -3;
    const bool integers = fn == UnaryFn::kNeg || fn == UnaryFn::kAbs || fn == UnaryFn::kRelu;
    for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{}, Shape{0, 4}, Shape{37}}) {
      samples.push_back({op::Unary{fn}, {Plain(shape, low, 3)}, integers ? kSigned : kFloating});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::UnaryGrad>) {
  Samples samples;
  for (int i = 0; i < kUnaryFnCount; ++i) {
    for (const Shape& shape : {Shape{3, 5}, Shape{1, 1}, Shape{0}}) {
      samples.push_back({op::UnaryGrad{static_cast<UnaryFn>(i)}, {Plain(shape, 0.1, 0.9), Plain(shape, -2, 2, 2)}});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::Binary>) {
  Samples samples;
  for (int i = 0; i < kBinaryFnCount; ++i) {
    const BinaryFn fn = static_cast<BinaryFn>(i);
    // Integer division and powers stay off zero and overflow.
    const bool narrow = fn == BinaryFn::kDiv || fn == BinaryFn::kPow;
    const double low = narrow ? 1.05 : -2;
    const double high = narrow ? 4 : 3;
    const auto add = [&](const Shape& a, const Shape& b) {
      samples.push_back({op::Binary{fn}, {Plain(a, low, high, 1), Plain(b, low, high, 2)}, kAll});
      if (fn == BinaryFn::kSub) samples.back().dtypes = kSigned;  // u8 wraps below 0: right, but not comparable
    };
    add({3, 5}, {3, 5});
    add({3, 5}, {5});
    add({4, 1}, {1, 3});
    add({2, 3, 4}, {3, 1});
    add({}, {2, 2});
    add({1}, {1});
    add({0, 3}, {3});
  }
  for (Sample& sample : samples) {
    for (Argument& argument : sample.inputs) {
      if (std::get<op::Binary>(sample.op).fn == BinaryFn::kSub) continue;
      // u8 and whole numbers: nothing below 0 for u8 to lose.
      bool negative = false;
      for (double value : argument.values) negative = negative || value < 0;
      if (negative) sample.dtypes = kSigned;
    }
  }
  return samples;
}

Samples SamplesOf(For<op::Where>) {
  return {
      {op::Where{}, {Fixed(DType::kU8, {2, 2}, {1, 0, 0, 7}), Plain({2, 2}), Plain({2, 2}, -2, 2, 2)}, kSigned},
      {op::Where{}, {Fixed(DType::kU8, {3, 1}, {1, 0, 1}), Plain({1, 4}), Plain({}, 0.5, 1)}, kSigned},
      {op::Where{}, {Fixed(DType::kU8, {0}, {}), Plain({0}), Plain({1})}, kSigned},
  };
}

Samples SamplesOf(For<op::Cast>) {
  Samples samples;
  for (DType to : kAll) {
    for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{0, 2}}) {
      // To bf16 is a staircase.
      samples.push_back({op::Cast{to}, {Plain(shape, 0.1, 90)}, kAll, to == DType::kF64});
    }
  }
  return samples;
}

Samples SamplesOf(For<op::Fill>) {
  return {{op::Fill{{2, 3}, DType::kF32, 1.5, {}}, {}, {}},
          {op::Fill{{0}, DType::kI64, 1, {}}, {}, {}},
          {op::Fill{{}, DType::kU8, 1, {}}, {}, {}}};
}

Samples SamplesOf(For<op::Iota>) {
  return {{op::Iota{5, {}}, {}, {}}, {op::Iota{1, {}}, {}, {}}, {op::Iota{0, {}}, {}, {}}};
}

Samples SamplesOf(For<op::Dropout>) {
  return {
      {op::Dropout{0.4f, 3}, {Plain({3, 5}), Fixed(DType::kI64, {2}, {7, 1}), Fixed(DType::kI64, {3}, {4, 5, 9})}},
      {op::Dropout{0.0f, 0}, {Plain({1}), Fixed(DType::kI64, {2}, {7, 1}), Fixed(DType::kI64, {1}, {0})}},
      {op::Dropout{0.5f, 0}, {Plain({0, 2}), Fixed(DType::kI64, {2}, {7, 1}), Fixed(DType::kI64, {0}, {})}},
  };
}

Samples SamplesOf(For<op::Custom>) {
  const op::Custom custom{std::make_shared<SquarePlus>()};
  return {{custom, {Plain({2, 3}), Plain({2, 3}, -1, 1, 2)}, {DType::kF64}},
          {custom, {Plain({1}), Plain({1})}, {DType::kF64}},
          {custom, {Plain({0}), Plain({0})}, {DType::kF64}}};
}

}  // namespace gemmill
