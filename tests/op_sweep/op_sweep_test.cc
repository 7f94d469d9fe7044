// Every op through its samples: gradients of first and second order by finite differences in f64, every dtype that it
// claims and refusal of the others, the same bits run after run and with another number of threads where the op
// promises it, the same bits recorded and replayed, with passes and without, empty tensors and dimensions of size 1
// among the samples.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/trace.h"
#include "gemmill/autograd/vjp.h"
#include "gemmill/runtime/cost.h"
#include "gemmill/runtime/passes/passes.h"
#include "gtest/gtest.h"
#include "tests/op_sweep/samples.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8};

DType ArgumentDType(const Argument& argument, DType dtype) {
  if (argument.kind == Argument::Kind::kFixed) return argument.dtype;
  if (argument.kind == Argument::Kind::kWide) return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return dtype;
}

std::vector<Tensor> InputsOf(const Sample& sample, DType dtype) {
  std::vector<Tensor> inputs;
  for (const Argument& argument : sample.inputs) {
    inputs.push_back(MakeTensor(argument.values, argument.shape, ArgumentDType(argument, dtype)));
  }
  return inputs;
}

std::string Describe(const Sample& sample) {
  std::string text = OpName(sample.op);
  for (const Argument& argument : sample.inputs) absl::StrAppend(&text, " ", ShapeString(argument.shape));
  return text;
}

bool Claims(const Sample& sample, DType dtype) {
  return std::find(sample.dtypes.begin(), sample.dtypes.end(), dtype) != sample.dtypes.end();
}

// A scalar that depends on every floating output with weights of its own; invalid where there is none.
template <typename Vars>
Var Scalar(const Vars& outputs) {
  Var total;
  for (const Var& output : outputs) {
    if (output.dtype() != DType::kF64) continue;
    const Tensor weights = MakeTensor(Apart(output.spec().num_elements(), 0.5, 1.5, 5), output.shape(), DType::kF64);
    const Var part = Sum(output * Var(weights));
    total = total.node() == nullptr ? part : total + part;
  }
  return total;
}

bool HasGradient(const Sample& sample) {
  if (!Claims(sample, DType::kF64)) return false;
  if (const auto* binary = std::get_if<op::Binary>(&sample.op)) return !IsComparison(binary->fn);
  if (const auto* cast = std::get_if<op::Cast>(&sample.op)) return cast->dtype == DType::kF64;
  return !std::holds_alternative<op::ArgMax>(sample.op) && !std::holds_alternative<op::TopK>(sample.op) &&
         !std::holds_alternative<op::AssignRows>(sample.op) && !std::holds_alternative<op::Sgd>(sample.op) &&
         !std::holds_alternative<op::AdamW>(sample.op) && !std::holds_alternative<op::FusedMatMul>(sample.op) &&
         !std::holds_alternative<op::ActivationBiasGrad>(sample.op);
}

// f: a function of the sample's f64 inputs. Compares Grad(f) with central differences, element by element.
template <typename Fn>
void ExpectGradient(const Sample& sample, const Fn& f, double tolerance) {
  std::vector<Tensor> tensors = InputsOf(sample, DType::kF64);
  std::vector<Var> inputs;
  std::vector<Var> wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool differentiable = tensors[i].dtype() == DType::kF64 && sample.inputs[i].kind != Argument::Kind::kFixed;
    inputs.push_back(differentiable ? Var::Parameter(tensors[i]) : Var(tensors[i]));
    if (!differentiable) continue;
    wanted.push_back(inputs[i]);
    places.push_back(i);
  }
  const Var value = f(inputs);
  ASSERT_TRUE(value.ok()) << value.status();
  if (!value.requires_grad()) return;  // a gradient that does not depend on the inputs
  const std::vector<Var> gradients = Grad(value, wanted);
  for (size_t w = 0; w < wanted.size(); ++w) {
    const std::vector<double> gradient = ValueOf(gradients[w].ToVector<double>());
    const std::vector<double> center = sample.inputs[places[w]].values;
    for (size_t i = 0; i < center.size(); ++i) {
      const double h = 1e-5;
      double values[2];
      for (const int side : {0, 1}) {
        std::vector<double> moved = center;
        moved[i] += side == 0 ? -h : h;
        std::vector<Var> near = inputs;
        near[places[w]] = Var::Parameter(MakeTensor(moved, tensors[places[w]].shape(), DType::kF64));
        values[side] = ValueOf(f(near).Item());
      }
      const double expected = (values[1] - values[0]) / (2 * h);
      EXPECT_NEAR(gradient[i], expected, tolerance * (1 + std::abs(expected)))
          << Describe(sample) << ", input " << places[w] << ", element " << i;
    }
  }
}

class OpSweep : public testing::TestWithParam<size_t> {
 protected:
  // The samples of the alternative of Op.
  std::vector<Sample> Mine() const {
    std::vector<Sample> mine;
    for (const Sample& sample : AllSamples()) {
      if (sample.op.index() == GetParam()) mine.push_back(sample);
    }
    return mine;
  }
};

TEST_P(OpSweep, GradientIsTheFiniteDifference) {
  for (const Sample& sample : Mine()) {
    if (!HasGradient(sample) || !sample.smooth) continue;
    ExpectGradient(
        sample, [&](const std::vector<Var>& in) { return Scalar(Apply(sample.op, in, Caller::Here())); }, 1e-7);
  }
}

TEST_P(OpSweep, SecondGradientIsTheFiniteDifferenceOfTheFirst) {
  for (const Sample& sample : Mine()) {
    if (!HasGradient(sample) || !sample.smooth) continue;
    ExpectGradient(
        sample,
        [&](const std::vector<Var>& in) {
          std::vector<Var> wanted;
          for (const Var& input : in) {
            if (input.requires_grad()) wanted.push_back(input);
          }
          const Var first = Scalar(Apply(sample.op, in, Caller::Here()));
          if (!first.requires_grad()) return first;
          return Scalar(Grad(first, wanted, {.differentiable = true}));
        },
        1e-6);
  }
}

TEST_P(OpSweep, EveryClaimedDTypeAgreesWithF64) {
  for (const Sample& sample : Mine()) {
    for (DType dtype : sample.dtypes) {
      const std::vector<Tensor> inputs = InputsOf(sample, dtype);
      const std::vector<Tensor> outputs = RunOp(sample.op, inputs);
      if (!IsFloating(dtype) || !Claims(sample, DType::kF64) || std::holds_alternative<op::Cast>(sample.op)) continue;
      // The same numbers, as rounded to `dtype`, computed in f64.
      std::vector<Tensor> wide;
      for (size_t i = 0; i < inputs.size(); ++i) {
        wide.push_back(MakeTensor(Doubles(inputs[i]), inputs[i].shape(), ArgumentDType(sample.inputs[i], DType::kF64)));
      }
      const std::vector<Tensor> expected = RunOp(sample.op, wide);
      ASSERT_EQ(outputs.size(), expected.size());
      for (size_t o = 0; o < outputs.size(); ++o) {
        const std::vector<double> got = Doubles(outputs[o]);
        const std::vector<double> want = Doubles(expected[o]);
        const double tolerance = outputs[o].dtype() == DType::kBf16 ? 0x1p-7 : 2e-6;
        for (size_t i = 0; i < want.size(); ++i) {
          if (std::isnan(want[i]) && std::isnan(got[i])) continue;
          EXPECT_NEAR(got[i], want[i], tolerance * (0.5 + std::abs(want[i])))
              << Describe(sample) << " " << DTypeName(dtype) << ", output " << o << ", element " << i;
        }
      }
    }
  }
}

TEST_P(OpSweep, OtherDTypesAreRefused) {
  for (const Sample& sample : Mine()) {
    const bool any = std::any_of(sample.inputs.begin(), sample.inputs.end(),
                                 [](const Argument& argument) { return argument.kind == Argument::Kind::kValue; });
    if (!any || std::holds_alternative<op::Binary>(sample.op) || std::holds_alternative<op::Where>(sample.op)) continue;
    for (DType dtype : kDTypes) {
      const absl::StatusOr<std::vector<Tensor>> outputs = TryOp(sample.op, InputsOf(sample, dtype));
      EXPECT_EQ(outputs.ok(), Claims(sample, dtype))
          << Describe(sample) << " " << DTypeName(dtype) << " " << outputs.status();
    }
  }
}

TEST_P(OpSweep, TheSameBitsEveryTime) {
  for (const Sample& sample : Mine()) {
    for (DType dtype : sample.dtypes.empty() ? std::vector<DType>{DType::kF32} : sample.dtypes) {
      const std::vector<Tensor> inputs = InputsOf(sample, dtype);
      const std::vector<Tensor> first = RunOp(sample.op, inputs);
      for (int run = 0; run < 3; ++run) {
        const std::vector<Tensor> again = RunOp(sample.op, inputs);
        for (size_t o = 0; o < first.size(); ++o) {
          ASSERT_EQ(first[o].spec(), again[o].spec());
          EXPECT_EQ(
              std::string(static_cast<const char*>(first[o].data()), static_cast<size_t>(first[o].spec().bytes())),
              std::string(static_cast<const char*>(again[o].data()), static_cast<size_t>(again[o].spec().bytes())))
              << Describe(sample);
        }
      }
    }
  }
}

// The op's outputs; of each floating one tanh(output + bias), for passes to find something at both its ends; and the
// gradients of all that.
std::vector<Var> WithSurroundings(const Sample& sample, const std::vector<Var>& in) {
  std::vector<Var> wanted;
  for (size_t i = 0; i < in.size(); ++i) {
    if (sample.inputs[i].kind == Argument::Kind::kFixed || !IsFloating(in[i].dtype())) continue;
    in[i].SetRequiresGrad(true);
    wanted.push_back(in[i]);
  }
  const Outputs outputs = Apply(sample.op, in, Caller::Here());
  std::vector<Var> all(outputs.begin(), outputs.end());
  EXPECT_TRUE(outputs.ok()) << outputs[0].status();
  Var total;
  for (const Var& output : outputs) {
    if (!IsFloating(output.dtype())) continue;
    const Shape row = output.shape().empty() ? Shape{} : Shape{output.shape().back()};
    const Var bias = Var::Parameter(MakeTensor(Apart(NumElements(row), -1, 1, 3), row, output.dtype()));
    all.push_back(Tanh(output + bias));
    wanted.push_back(bias);
    const Var part = Sum(Cast(all.back(), DType::kF64));
    total = total.node() == nullptr ? part : total + part;
  }
  if (!HasGradient(sample) || total.node() == nullptr) return all;
  for (const Var& gradient : Grad(total, wanted)) all.push_back(gradient);
  return all;
}

TEST_P(OpSweep, ReplayedIsEager) {
  for (const Sample& sample : Mine()) {
    for (DType dtype : sample.dtypes.empty() ? std::vector<DType>{DType::kF32} : sample.dtypes) {
      const std::vector<Tensor> inputs = InputsOf(sample, dtype);
      std::vector<Spec> specs;
      std::vector<Var> vars;
      for (const Tensor& input : inputs) {
        specs.push_back(input.spec());
        vars.emplace_back(input);
      }
      std::vector<Tensor> eager;
      for (const Var& output : WithSurroundings(sample, vars)) eager.push_back(ValueOf(output.Value()));
      const Program program =
          ValueOf(Trace([&](const std::vector<Var>& in) { return WithSurroundings(sample, in); }, specs));
      for (const Program& run : {program, passes::Default(program)}) {
        const std::vector<Tensor> replayed = OutputsOf(run, inputs);
        ASSERT_EQ(replayed.size(), eager.size());
        for (size_t i = 0; i < eager.size(); ++i) {
          EXPECT_TRUE(SameBits(replayed[i], eager[i]))
              << Describe(sample) << " " << DTypeName(dtype) << ", output " << i << " of\n"
              << ProgramString(run);
        }
      }
    }
  }
}

TEST_P(OpSweep, InferAndCostAgreeWithWhatRuns) {
  const std::vector<Sample> samples = Mine();
  ASSERT_FALSE(samples.empty());
  bool empty = false;
  bool ones = false;
  for (const Sample& sample : samples) {
    const std::vector<Tensor> inputs = InputsOf(sample, sample.dtypes.empty() ? DType::kF32 : sample.dtypes.back());
    std::vector<Spec> specs;
    int64_t bytes = 0;
    for (const Tensor& input : inputs) {
      specs.push_back(input.spec());
      bytes += input.spec().bytes();
    }
    const std::vector<Spec> inferred = ValueOf(Infer(sample.op, specs));
    const std::vector<Tensor> outputs = RunOp(sample.op, inputs);
    ASSERT_EQ(inferred.size(), outputs.size());
    for (size_t o = 0; o < outputs.size(); ++o) {
      EXPECT_EQ(inferred[o], outputs[o].spec());
      bytes += outputs[o].spec().bytes();
      empty = empty || outputs[o].num_elements() == 0;
      ones = ones || outputs[o].num_elements() == 1;
    }
    for (const Tensor& input : inputs) {
      empty = empty || input.num_elements() == 0;
      ones = ones || std::count(input.shape().begin(), input.shape().end(), 1) > 0 || input.num_elements() == 1;
    }
    const OpCost cost = Cost(sample.op, specs, inferred);
    EXPECT_EQ(cost.bytes, bytes) << Describe(sample);
    EXPECT_GE(cost.flops, 0);
    const bool fused = std::holds_alternative<op::FusedMatMul>(sample.op);
    EXPECT_EQ(cost.gemm.has_value(), fused || std::holds_alternative<op::MatMul>(sample.op));
    const std::vector<GemmShape> gemms = GemmsOf(sample.op, specs, inferred);
    int64_t flops = 0;
    for (const GemmShape& gemm : gemms) flops += 2 * gemm.batch * gemm.m * gemm.n * gemm.k;
    if (!gemms.empty()) {
      EXPECT_EQ(cost.flops, flops);
    }
  }
  EXPECT_TRUE(empty) << "no sample of an empty tensor";
  EXPECT_TRUE(ones) << "no sample of size 1";
}

std::string Named(const testing::TestParamInfo<size_t>& info) {
  for (const Sample& sample : AllSamples()) {
    if (sample.op.index() != info.param) continue;
    const std::string name = absl::StrReplaceAll(OpName(sample.op), {{" ", "_"}});
    return name;
  }
  return absl::StrCat("without_samples_", info.param);
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSweep, testing::Range(size_t{0}, std::variant_size_v<Op>), Named);

}  // namespace
}  // namespace gemmill
