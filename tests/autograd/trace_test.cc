#include "gemmill/autograd/trace.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gemmill/autograd/custom.h"
#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/training_scope.h"
#include "gemmill/runtime/passes/passes.h"
#include "tests/autograd/vars.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Vars = std::vector<Var>;
using Numbers = std::vector<double>;

Spec F32(const Shape& shape) { return Spec{shape}; }

Program MustTrace(const TracedFn& fn, const std::vector<Spec>& specs) {
  absl::StatusOr<Program> program = Trace(fn, specs);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *std::move(program) : Program{};
}

std::string ErrorOf(const TracedFn& fn, const std::vector<Spec>& specs) { return Message(Trace(fn, specs).status()); }

// fn at once, traced, and traced with passes: the same bits, which are returned.
std::vector<Tensor> ExpectSameBothWays(const TracedFn& fn, const std::vector<Tensor>& inputs) {
  std::vector<Spec> specs;
  Vars vars;
  for (const Tensor& input : inputs) {
    specs.push_back(input.spec());
    vars.emplace_back(input);
  }
  std::vector<Tensor> eager;
  for (const Var& output : fn(vars)) eager.push_back(TensorIn(output));
  const Program program = MustTrace(fn, specs);
  for (const Program& run : {program, passes::Default(program)}) {
    const std::vector<Tensor> replayed = OutputsOf(run, inputs);
    EXPECT_EQ(replayed.size(), eager.size());
    for (size_t i = 0; i < replayed.size(); ++i) EXPECT_TRUE(SameBits(replayed[i], eager[i])) << "output " << i;
  }
  return eager;
}

TEST(TraceTest, RecordsAndRuns) {
  const Var weight = Parameter({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto outputs = ExpectSameBothWays(
      [&](const Vars& in) -> Vars {
        const Var y = Gelu(MatMul(in[0], weight, {.trans_b = true}) + 0.5);
        return {y, Sum(y), in[0]};
      },
      {MakeTensor({1, -1, 2, 0, 1, 0}, {2, 3})});
  EXPECT_EQ(outputs.size(), 3u);
}

TEST(TraceTest, ReadingAValueIsAnErrorThatNamesBothLines) {
  std::vector<std::string> messages;
  int line = 0;
  const std::string error = ErrorOf(
      [&](const Vars& in) -> Vars {
        line = __LINE__ + 1;
        const Var y = Relu(in[0]);
        const absl::Status value = y.Value().status();
        const absl::Status item = y.Item().status();
        const absl::Status vector = y.ToVector<float>().status();
        messages = {Message(value), Message(item), Message(vector)};
        return {y};
      },
      {F32({1})});
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(error, messages[0]) << "whether or not the function looks at what it was refused";
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(messages[static_cast<size_t>(i)],
                AllOf(HasSubstr(Place(__FILE__, line)), HasSubstr(Place(__FILE__, line + 1 + i)),
                      HasSubstr("only being recorded"), HasSubstr("Probe"), Not(HasSubstr("Trainer"))));
  }
  // A line that makes what it reads is named once.
  line = __LINE__ + 1;
  EXPECT_THAT(ErrorOf([](const Vars& in) -> Vars { return {Var::Error((in[0] + 1.0).Item().status())}; }, {F32({})}),
              AllOf(StartsWith(Place(__FILE__, line) + ": a value was read"), Not(HasSubstr("("))));
  // Of an input, which no op made.
  EXPECT_THAT(ErrorOf([](const Vars& in) -> Vars { return {Var::Error(in[0].Item().status())}; }, {F32({})}),
              HasSubstr("an input of the Trace"));
}

TEST(TraceTest, VarsFromOutsideAreBoundByReference) {
  Tensor tensor = MakeTensor({1, 2}, {2});
  const Var parameter = Var::Parameter(tensor);
  const Program program = MustTrace(
      [&](const Vars&) -> Vars {
        return {parameter * 2.0, parameter.Detach() * parameter};
      },
      {});
  int bound = 0;
  for (const Value& value : program.values) bound += value.storage == Storage::kBound ? 1 : 0;
  EXPECT_EQ(bound, 1) << "one tensor, under however many handles, is one value";
  EXPECT_EQ(Doubles(OutputsOf(program, {})[0]), Numbers({2, 4}));
  ASSERT_TRUE(tensor.CopyFrom(MakeTensor({10, 20}, {2})).ok());
  EXPECT_EQ(Doubles(OutputsOf(program, {})[0]), Numbers({20, 40}));
  // Values from outside may be read.
  const Program reads = MustTrace([&](const Vars&) -> Vars { return {Fill({}, Read(parameter)[1])}; }, {});
  EXPECT_EQ(Doubles(OutputsOf(reads, {})[0]), Numbers({20}));
}

TEST(TraceTest, DetachAndNoGradInside) {
  const Var parameter = Parameter({3}, {1});
  const auto fn = [&](const Vars& in) -> Vars {
    const Var y = parameter * in[0];
    const Var detached = y.Detach();
    EXPECT_FALSE(detached.requires_grad());
    Var without;
    {
      const NoGradScope no_grad;
      without = parameter * parameter;
    }
    EXPECT_FALSE(without.requires_grad());
    return {Grad(Sum(y * detached + without), {parameter})[0], detached};
  };
  const auto outputs = ExpectSameBothWays(fn, {MakeTensor({2}, {1})});
  EXPECT_EQ(Doubles(outputs[0]), Numbers({12}));
  EXPECT_EQ(Doubles(outputs[1]), Numbers({6}));
}

TEST(TraceTest, GradientsOfFirstAndSecondOrder) {
  const Var weight = Parameter({0.5, -0.25, 1, 2, 0.75, -1}, {2, 3});
  const Var bias = Parameter({0.1, -0.1}, {2});
  ExpectSameBothWays(
      [&](const Vars& in) -> Vars {
        const Var h = Tanh(MatMul(in[0], weight, {.trans_b = true}) + bias);
        const Vars first = Grad(Sum(h * h), {weight, bias}, {.differentiable = true});
        const Vars second = Grad(Sum(first[0] * first[0]) + Sum(first[1]), {weight, bias});
        return {first[0], first[1], second[0], second[1]};
      },
      {MakeTensor({1, -1, 2, 0, 1, 0.5}, {2, 3})});
  // With respect to what the trace was given.
  ExpectSameBothWays(
      [](const Vars& in) -> Vars {
        in[0].SetRequiresGrad(true);
        return Grad(Sum(Exp(in[0])), {in[0]});
      },
      {MakeTensor({1, 2}, {2})});
}

TEST(TraceTest, AGraphFromOutsideGoesOnInside) {
  const Var parameter = Parameter({1, 2}, {2});
  const Var outside = Exp(parameter);
  const Program program =
      MustTrace([&](const Vars& in) -> Vars { return Grad(Sum(outside * in[0]), {parameter}); }, {F32({2})});
  const Var x = Constant({3, 4}, {2});
  EXPECT_TRUE(SameBits(OutputsOf(program, {TensorIn(x)})[0], TensorIn(Grad(Sum(outside * x), {parameter})[0])));
}

TEST(TraceTest, NestedTracesKeepTheirOwnSteps) {
  Program inner;
  const Program outer = MustTrace(
      [&](const Vars& in) -> Vars {
        const Var before = Relu(in[0]);
        inner = MustTrace([](const Vars& of_inner) -> Vars { return {Tanh(of_inner[0])}; }, {F32({3})});
        EXPECT_THAT(ErrorOf([&](const Vars&) -> Vars { return {before}; }, {}), HasSubstr("another Trace"));
        EXPECT_THAT(ErrorOf([&](const Vars&) -> Vars { return {before + before}; }, {}), HasSubstr("another Trace"));
        EXPECT_THAT(ErrorOf([&](const Vars&) -> Vars { return {Exp(before.Detach())}; }, {}),
                    HasSubstr("another Trace"));
        return {Exp(before)};
      },
      {F32({2})});
  EXPECT_EQ(inner.steps.size(), 1u);
  EXPECT_EQ(outer.steps.size(), 2u);
  EXPECT_EQ(Recorder::Current(), nullptr);
}

TEST(TraceTest, AVarThatOutlivesItsTrace) {
  const Var parameter = Parameter({1}, {});
  Var kept;
  MustTrace(
      [&](const Vars& in) -> Vars {
        kept = in[0] * parameter;
        return {kept};
      },
      {F32({})});
  const std::string ended = "a Trace that has ended";
  EXPECT_THAT(Message(kept + 1.0), HasSubstr(ended));
  EXPECT_THAT(Message(Exp(kept.Detach())), HasSubstr(ended));
  EXPECT_THAT(Message(kept.Value().status()), HasSubstr("only being recorded"));
  EXPECT_THAT(Message(kept.Detach().Item().status()), HasSubstr("only being recorded"));
  EXPECT_FALSE(Grad(kept, {parameter})[0].ok());
  EXPECT_FALSE(Grad(kept, {parameter}, {.differentiable = true})[0].ok());
  // In another Trace.
  EXPECT_THAT(ErrorOf([&](const Vars&) -> Vars { return {kept}; }, {}),
              AllOf(HasSubstr("another Trace"), HasSubstr("output 0")));
  EXPECT_THAT(ErrorOf([&](const Vars& in) -> Vars { return {in[0] + kept}; }, {F32({})}),
              AllOf(HasSubstr("another Trace"), HasSubstr("input 1")));
  EXPECT_THAT(ErrorOf([&](const Vars&) -> Vars { return {kept.Detach()}; }, {}), HasSubstr("another Trace"));
  EXPECT_THAT(ErrorOf([&](const Vars&) -> Vars { return {Exp(kept.Detach().Detach())}; }, {}),
              HasSubstr("another Trace"));
  EXPECT_FALSE(Trace([&](const Vars&) -> Vars { return Grad(kept, {parameter}); }, {}).ok());
}

TEST(TraceTest, AVarOfAnotherThreadsTrace) {
  (void)Trace(
      [&](const Vars& in) -> Vars {
        std::thread([&] { EXPECT_FALSE((in[0] + 1.0).ok()); }).join();
        std::thread([&] { EXPECT_FALSE(Trace([&](const Vars&) -> Vars { return {in[0]}; }, {}).ok()); }).join();
        return {in[0]};
      },
      {{F32({})}});
}

TEST(TraceTest, ErrorsInsideComeBack) {
  const int line = __LINE__ + 1;
  const TracedFn wrong_shapes = [](const Vars& in) -> Vars { return {MatMul(in[0], in[0])}; };
  EXPECT_THAT(ErrorOf(wrong_shapes, {F32({2, 3})}),
              AllOf(HasSubstr("MatMul"), HasSubstr("[2, 3]"), HasSubstr(Place(__FILE__, line))));
  EXPECT_THAT(ErrorOf([](const Vars&) -> Vars { return {Var()}; }, {}), HasSubstr("empty Var"));
  EXPECT_THAT(ErrorOf([](const Vars& in) -> Vars { return {in[0] + Var()}; }, {F32({})}), HasSubstr("empty Var"));
  EXPECT_THAT(ErrorOf(nullptr, {}), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf([](const Vars&) -> Vars { throw 1; }, {}), HasSubstr("no std::exception"));
  EXPECT_THAT(ErrorOf([](const Vars&) -> Vars { throw std::runtime_error("no disk"); }, {}), HasSubstr("no disk"));
  EXPECT_THAT(ErrorOf(TracedFn(), {}), HasSubstr("empty"));
  EXPECT_EQ(Recorder::Current(), nullptr);
  EXPECT_TRUE(MustTrace([](const Vars&) -> Vars { return {}; }, {}).steps.empty());
}

TEST(TraceTest, WhatIsNotReturnedIsLeftOut) {
  const Program program = MustTrace(
      [](const Vars& in) -> Vars {
        const Var unused = Exp(in[0]);
        return {Tanh(in[0])};
      },
      {F32({2})});
  EXPECT_THAT(ProgramString(program), AllOf(HasSubstr("tanh"), Not(HasSubstr("exp")), HasSubstr("trace_test.cc:")));
}

TEST(TraceTest, DropoutDrawsAnewFromItsKey) {
  const auto fn = [](const Vars& in) -> Vars {
    const TrainingScope training(RandomVars{in[1], in[2], 8});
    return {ApplyDropout(in[0], {.rate = 0.5f, .stream = 3})};
  };
  const Tensor x = MakeTensor(Numbers(8 * 16, 1.0), {8, 16});
  const auto key = [](double seed, double step) { return MakeTensor({seed, step}, {2}, DType::kI64); };
  const auto first_sample = [](double sample) { return MakeTensor({sample}, {}, DType::kI64); };
  Replay replay = MustReplay(MustTrace(fn, {x.spec(), key(0, 0).spec(), first_sample(0).spec()}));
  std::vector<Numbers> masks;
  for (const auto& [seed, step, sample] :
       std::vector<std::tuple<int, int, int>>{{1, 0, 0}, {1, 1, 0}, {2, 0, 0}, {1, 0, 4}, {1, 0, 0}}) {
    ASSERT_TRUE(replay.Run({x, key(seed, step), first_sample(sample)}).ok());
    masks.push_back(Doubles(replay.output(0)));
    EXPECT_EQ(masks.back(), Read(fn({Var(x), Var(key(seed, step)), Var(first_sample(sample))})[0]));
  }
  EXPECT_EQ(masks[0], masks[4]);
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(masks[0], masks[i]);
  EXPECT_EQ(Numbers(masks[0].begin() + 64, masks[0].end()), Numbers(masks[3].begin(), masks[3].begin() + 64));
}

class Cubed : public DifferentiableOp {
 public:
  std::string Name() const override { return "Cubed"; }
  absl::StatusOr<std::vector<Spec>> Infer(absl::Span<const Spec> inputs) const override {
    return std::vector<Spec>{inputs[0]};
  }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream&) const override {
    for (int64_t i = 0; i < inputs[0].num_elements(); ++i) {
      const float x = static_cast<const float*>(inputs[0].data())[i];
      if (x > 100) return OutOfRange("element ", i, " is ", x);
      static_cast<float*>(outputs[0].data())[i] = x * x * x;
    }
    return absl::OkStatus();
  }
  std::vector<Var> Vjp(absl::Span<const Var> in, absl::Span<const Var>, absl::Span<const Var> dout) const override {
    return {dout[0] * 3.0 * in[0] * in[0]};
  }
};

TEST(TraceTest, CustomOps) {
  const Var scale = Parameter({2}, {1});
  int line = 0;
  const auto fn = [&](const Vars& in) -> Vars {
    line = __LINE__ + 1;
    const Var y = ApplyCustom(std::make_shared<Cubed>(), {in[0] * scale})[0];
    const Vars first = Grad(Sum(y), {scale}, {.differentiable = true});
    return {y, first[0], Grad(Sum(first[0]), {scale})[0]};
  };
  const auto outputs = ExpectSameBothWays(fn, {MakeTensor({1, 2}, {2})});
  EXPECT_EQ(Doubles(outputs[0]), Numbers({8, 64}));
  Replay replay = MustReplay(MustTrace(fn, {F32({2})}));
  EXPECT_THAT(Message(replay.Run({MakeTensor({1, 99}, {2})})),
              AllOf(HasSubstr("Cubed"), HasSubstr("element 1 is 198"), HasSubstr(Place(__FILE__, line))));
}

}  // namespace
}  // namespace gemmill
