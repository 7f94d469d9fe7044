#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64};

DType StateDType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Tensor Control(double learning_rate, double step, double gradient_scale = 1) {
  return MakeTensor({learning_rate, step, gradient_scale}, {3}, DType::kF64);
}

void ExpectSameBits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(SameBits(a[i], b[i])) << "output " << i;
}

// The expected numbers of the next test come from PyTorch, in f64, with this weight and these gradients:
// w = [0.5, -1.25, 2, 0], g_t[i] = 0.1 * ((7 t + 3 i) % 11 - 5) + 0.01 i.
std::vector<double> Gradient(int t) {
  std::vector<double> g;
  for (int i = 0; i < 4; ++i) g.push_back(0.1 * ((t * 7 + 3 * i) % 11 - 5) + 0.01 * i);
  return g;
}

// The weight after `steps` steps of `op`, which has `states` state tensors.
std::vector<double> Train(const Op& op, size_t states, double learning_rate, int steps, DType dtype) {
  std::vector<Tensor> outputs{MakeTensor({0.5, -1.25, 2, 0}, {4}, dtype)};
  if (dtype == DType::kBf16) ++states;  // the master
  for (size_t s = 0; s < states; ++s) outputs.push_back(MakeTensor({0, 0, 0, 0}, {4}, StateDType(dtype)));
  for (int t = 1; t <= steps; ++t) {
    std::vector<Tensor> inputs{Control(learning_rate, t), outputs[0], MakeTensor(Gradient(t), {4}, dtype)};
    for (size_t s = 0; s < states; ++s) inputs.push_back(outputs[1 + s]);
    outputs = RunOp(op, inputs);
  }
  return Doubles(outputs[0]);
}

auto Near(const std::vector<double>& expected, double tolerance) {
  std::vector<testing::Matcher<double>> matchers;
  for (double value : expected) matchers.push_back(testing::DoubleNear(value, tolerance));
  return testing::ElementsAreArray(matchers);
}

struct Oracle {
  Op op;
  size_t states;
  double learning_rate;
  std::vector<double> after_1;
  std::vector<double> after_20;
};

TEST(Optimizer, TwentyStepsAsPyTorch) {
  const std::vector<Oracle> oracles{
      {op::AdamW{.weight_decay = {0.1f}, .learning_rate_scale = {1}},
       2,
       0.01,
       {0.4895000005, -1.2587499998, 2.00799999964, -0.00999999666667},
       {0.455537831801, -1.26467633931, 1.9671052289, -0.00456123517207}},
      {op::Sgd{.weight_decay = {0.01f}, .learning_rate_scale = {1}},
       0,
       0.05,
       {0.48975, -1.274875, 2.013, -0.0015},
       {0.465215363632, -1.24729780409, 1.99009729773, -0.025009798321}},
      {op::Sgd{.momentum = 0.9f, .weight_decay = {0.01f}, .learning_rate_scale = {1}},
       1,
       0.05,
       {0.48975, -1.274875, 2.013, -0.0015},
       {0.279729013286, -1.40881595333, 1.87436006823, -0.0422799400975}},
      {op::Sgd{.momentum = 0.9f, .nesterov = true, .weight_decay = {0.01f}, .learning_rate_scale = {1}},
       1,
       0.05,
       {0.480525, -1.2972625, 2.0247, -0.00285},
       {0.268567387695, -1.38869097801, 1.87760868354, -0.0632428859878}}};
  for (const Oracle& oracle : oracles) {
    for (DType dtype : kDTypes) {
      SCOPED_TRACE(absl::StrCat(OpName(oracle.op), " ", DTypeName(dtype)));
      // The ops hold beta, momentum and decay as f32. A bf16 weight is its master rounded; gradients are rounded too.
      const double tolerance = dtype == DType::kBf16 ? 0.008 : 2e-6;
      EXPECT_THAT(Train(oracle.op, oracle.states, oracle.learning_rate, 1, dtype),
                  Near(oracle.after_1, dtype == DType::kBf16 ? 0.008 : 2e-7));
      EXPECT_THAT(Train(oracle.op, oracle.states, oracle.learning_rate, 20, dtype), Near(oracle.after_20, tolerance));
    }
  }
}

// Some parameters of many sizes and all dtypes, each with its own decay and rate.
struct Parameters {
  std::vector<int64_t> sizes{1, 0, 7, 5000, 3, 70001, 128, 2049};
  std::vector<float> weight_decay{0.1f, 0, 0, 0.01f, 1, 0, 0.3f, 0};
  std::vector<float> learning_rate_scale{1, 1, 2, 0.5f, 0, 1, 1, 3};

  DType dtype(size_t i) const { return kDTypes[i % 3]; }
  size_t count() const { return sizes.size(); }
  Tensor Random(size_t i, double low, DType dtype_of, uint32_t seed) const {
    return MakeTensor(RandomDoubles(sizes[i], low, 1, static_cast<uint32_t>(10 * i) + seed), {sizes[i]}, dtype_of);
  }
  // As op.h lays them out. The masters are out of date.
  std::vector<Tensor> Inputs(size_t states, double step) const {
    std::vector<Tensor> inputs{Control(0.01, step, 0.5)};
    for (size_t i = 0; i < count(); ++i) inputs.push_back(Random(i, -1, dtype(i), 0));
    for (size_t i = 0; i < count(); ++i) inputs.push_back(Random(i, -1, i == 4 ? DType::kF32 : dtype(i), 1));
    for (size_t s = 0; s < states; ++s) {
      for (size_t i = 0; i < count(); ++i) inputs.push_back(Random(i, 0, StateDType(dtype(i)), 2 + uint32_t(s)));
    }
    for (size_t i = 0; i < count(); ++i) {
      if (dtype(i) != DType::kBf16) continue;
      inputs.push_back(MakeTensor(std::vector<double>(static_cast<size_t>(sizes[i]), 100), {sizes[i]}));
    }
    return inputs;
  }
};

// The same outputs when they are apart and when they are the inputs' own buffers.
void CheckInPlace(const Op& op, const std::vector<Tensor>& inputs, size_t count, const std::vector<Tensor>& expected) {
  std::vector<Tensor> outputs;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (i > count && i <= 2 * count) continue;  // gradients
    EXPECT_TRUE(MayRunInPlace(op, i, outputs.size()));
    outputs.push_back(inputs[i]);
  }
  ASSERT_TRUE(Execute(op, inputs, absl::MakeSpan(outputs), Stream::Default(Device::Cpu())).ok());
  ExpectSameBits(outputs, expected);
}

TEST(Optimizer, AdamWOfManyParameters) {
  const Parameters parameters;
  const op::AdamW op{.beta1 = 0.75f,
                     .beta2 = 0.875f,
                     .epsilon = 1e-3f,
                     .weight_decay = parameters.weight_decay,
                     .learning_rate_scale = parameters.learning_rate_scale};
  const std::vector<Tensor> inputs = parameters.Inputs(2, 3);
  const std::vector<Tensor> outputs = RunRepeatedly(op, inputs, 1);
  ExpectSameBits(RunRepeatedly(op, inputs, 2), outputs);
  const size_t n = parameters.count();
  for (size_t i = 0; i < n; ++i) {
    const std::vector<double> w = Doubles(inputs[1 + i]);
    const std::vector<double> g = Doubles(inputs[1 + n + i]);
    std::vector<double> m = Doubles(inputs[1 + 2 * n + i]);
    std::vector<double> v = Doubles(inputs[1 + 3 * n + i]);
    std::vector<double> expected;
    const double rate = 0.01 * static_cast<double>(parameters.learning_rate_scale[i]);
    for (size_t j = 0; j < w.size(); ++j) {
      const double gradient = 0.5 * g[j];
      m[j] = 0.75 * m[j] + 0.25 * gradient;
      v[j] = 0.875 * v[j] + 0.125 * gradient * gradient;
      const double mhat = m[j] / (1 - std::pow(0.75, 3));
      const double vhat = v[j] / (1 - std::pow(0.875, 3));
      expected.push_back(w[j] * (1 - rate * static_cast<double>(parameters.weight_decay[i])) -
                         rate * mhat / (std::sqrt(vhat) + static_cast<double>(1e-3f)));
    }
    const double tolerance = parameters.dtype(i) == DType::kF64 ? 1e-12 : 1e-6;
    ExpectClose(outputs[i], expected, RelativeTolerance(parameters.dtype(i)), tolerance);
    ExpectClose(outputs[n + i], m, tolerance, tolerance);
    ExpectClose(outputs[2 * n + i], v, tolerance, tolerance);
  }
  CheckInPlace(op, inputs, n, outputs);
}

TEST(Optimizer, SgdOfManyParameters) {
  const Parameters parameters;
  for (float momentum : {0.0f, 0.75f}) {
    for (bool nesterov : {false, true}) {
      const op::Sgd op{momentum, nesterov, parameters.weight_decay, parameters.learning_rate_scale};
      const size_t n = parameters.count();
      const std::vector<Tensor> inputs = parameters.Inputs(momentum == 0 ? 0 : 1, 1);
      const std::vector<Tensor> outputs = RunRepeatedly(op, inputs, 1);
      ExpectSameBits(RunRepeatedly(op, inputs, 2), outputs);
      for (size_t i = 0; i < n; ++i) {
        const std::vector<double> w = Doubles(inputs[1 + i]);
        const std::vector<double> g = Doubles(inputs[1 + n + i]);
        std::vector<double> v(w.size(), 0);
        if (momentum != 0) v = Doubles(inputs[1 + 2 * n + i]);
        std::vector<double> expected;
        for (size_t j = 0; j < w.size(); ++j) {
          const double mu = static_cast<double>(momentum);
          const double gradient = 0.5 * g[j] + static_cast<double>(parameters.weight_decay[i]) * w[j];
          v[j] = mu * v[j] + gradient;
          const double direction = nesterov ? gradient + mu * v[j] : v[j];
          expected.push_back(w[j] - 0.01 * static_cast<double>(parameters.learning_rate_scale[i]) * direction);
        }
        const double tolerance = parameters.dtype(i) == DType::kF64 ? 1e-12 : 1e-6;
        ExpectClose(outputs[i], expected, RelativeTolerance(parameters.dtype(i)), tolerance);
        if (momentum != 0) ExpectClose(outputs[n + i], v, tolerance, tolerance);
      }
      CheckInPlace(op, inputs, n, outputs);
    }
  }
}

TEST(Optimizer, ZeroGradientWithoutDecayChangesNothing) {
  for (DType dtype : kDTypes) {
    const Tensor w = MakeTensor(RandomDoubles(3000, -10, 10, 1), {3000}, dtype);
    const Tensor zero = MakeTensor(std::vector<double>(3000, 0), {3000}, dtype);
    const Tensor state = MakeTensor(std::vector<double>(3000, 0), {3000}, StateDType(dtype));
    const op::AdamW adamw{.weight_decay = {0}, .learning_rate_scale = {1}};
    const op::Sgd sgd{.momentum = 0.9f, .nesterov = true, .weight_decay = {0}, .learning_rate_scale = {1}};
    std::vector<Tensor> master;
    std::vector<Tensor> new_master;
    if (dtype == DType::kBf16) {
      master = {state};
      new_master = RunOp(op::Cast{DType::kF32}, {w});
    }
    const auto with = [](std::vector<Tensor> tensors, const std::vector<Tensor>& more) {
      tensors.insert(tensors.end(), more.begin(), more.end());
      return tensors;
    };
    ExpectSameBits(RunOp(adamw, with({Control(0.1, 1), w, zero, state, state}, master)),
                   with({w, state, state}, new_master));
    ExpectSameBits(RunOp(sgd, with({Control(0.1, 1), w, zero, state}, master)), with({w, state}, new_master));
  }
}

// A hundred steps of 0.01 (AdamW: of about the learning rate) move a bf16 weight of 1 by about 1, though each is far
// below a bf16's spacing there.
TEST(Optimizer, SmallStepsOfABf16WeightAddUp) {
  const Tensor zero = MakeTensor({0}, {1});
  const std::vector<std::pair<Op, size_t>> updates{
      {op::AdamW{.weight_decay = {0}, .learning_rate_scale = {1}}, 3},
      {op::Sgd{.weight_decay = {0}, .learning_rate_scale = {1}}, 1},
      {op::Sgd{.momentum = 1e-6f, .weight_decay = {0}, .learning_rate_scale = {1}}, 2}};
  for (const auto& [op, states] : updates) {
    for (DType gradient : {DType::kBf16, DType::kF32}) {
      std::vector<Tensor> outputs(1 + states, zero);
      outputs[0] = MakeTensor({1}, {1}, DType::kBf16);
      for (int step = 1; step <= 100; ++step) {
        std::vector<Tensor> inputs{Control(6e-4, step), outputs[0], MakeTensor({1}, {1}, gradient)};
        inputs.insert(inputs.end(), outputs.begin() + 1, outputs.end());
        outputs = RunOp(op, inputs);
      }
      EXPECT_NEAR(Doubles(outputs[0])[0], 0.94, 0.002) << OpName(op);
      EXPECT_NEAR(Doubles(outputs.back())[0], 0.94, 1e-4) << OpName(op);
    }
  }
}

TEST(Optimizer, AdamWDecaysTheOldWeight) {
  const Tensor zero = MakeTensor({0}, {1});
  const op::AdamW op{.weight_decay = {0.5f}, .learning_rate_scale = {1}};
  ExpectClose(RunOp(op, {Control(0.1, 1), MakeTensor({2}, {1}), zero, zero, zero})[0], {2 * (1 - 0.05)}, 1e-7, 0);
}

TEST(Optimizer, NoParameters) {
  EXPECT_TRUE(RunOp(op::AdamW{}, {Control(0.1, 1)}).empty());
  EXPECT_TRUE(RunOp(op::Sgd{}, {Control(0.1, 1)}).empty());
}

}  // namespace
}  // namespace gemmill
