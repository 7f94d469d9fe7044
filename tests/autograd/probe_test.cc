#include "gemmill/autograd/probe.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/trace.h"
#include "gemmill/runtime/passes/passes.h"
#include "tests/autograd/vars.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Numbers = std::vector<double>;
using Vars = std::vector<Var>;

class ProbeTest : public testing::Test {
 protected:
  Var Look(Located x) {
    return Probe(std::move(x), [this](const Tensor& value) { seen_.push_back(Doubles(value)); });
  }
  std::vector<Numbers> seen_;
};

TEST_F(ProbeTest, IsTheIdentity) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kI64, DType::kU8}) {
    seen_.clear();
    const Var x = Constant({1, 2, 3}, {3}, dtype);
    EXPECT_TRUE(SameBits(TensorIn(Look(x)), TensorIn(x)));
    EXPECT_EQ(seen_, std::vector<Numbers>({{1, 2, 3}}));
  }
  EXPECT_EQ(Read(Look(Constant({}, {0, 4}))), Numbers());
}

TEST_F(ProbeTest, GradientsPassThrough) {
  const Var x = Parameter({1, 2}, {2}, DType::kF64);
  const Var y = Look(x * x * x);
  const Var slope = Grad(Sum(y), {x}, {.differentiable = true})[0];
  ExpectVar(slope, {3, 12});
  ExpectVar(Grad(Sum(Look(slope)), {x})[0], {6, 12});
  EXPECT_EQ(seen_, std::vector<Numbers>({{1, 8}, {3, 12}}));
}

TEST_F(ProbeTest, SeesEveryRunOfARecordedStep) {
  const Var weight = Parameter({10}, {1});
  const auto fn = [&](const Vars& in) -> Vars {
    Look(in[0] + 1.0);  // whose result nobody uses
    const Var y = Look(in[0] * weight);
    return {y, Grad(Sum(y), {weight})[0]};
  };
  const std::vector<Spec> specs{Spec{{2}}};
  const Program program = ValueOf(Trace(fn, specs));
  EXPECT_TRUE(seen_.empty());
  Replay replay = MustReplay(passes::Default(WithoutUnused(program)));
  for (const double x : {1, 2}) {
    seen_.clear();
    ASSERT_TRUE(replay.Run({MakeTensor({x, 5}, {2})}).ok());
    EXPECT_EQ(seen_, std::vector<Numbers>({{x + 1, 6}, {10 * x, 50}}));
    EXPECT_EQ(Doubles(replay.output(0)), Numbers({10 * x, 50}));
    EXPECT_EQ(Doubles(replay.output(1)), Numbers({x + 5}));
  }
  EXPECT_EQ(FirstDifference(program, ValueOf(Trace(fn, specs))), std::nullopt);
}

TEST_F(ProbeTest, Prints) {
  testing::internal::CaptureStderr();
  const Var x = Constant({-1.5, 3, std::numeric_limits<double>::infinity()}, {3});
  EXPECT_TRUE(Probe(x, "after fc1").ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "after fc1: f32[3] in [-1.5, 3] and 1 not finite\n");
  EXPECT_EQ(RangeString(MakeTensor({}, {0})), "no finite value");
}

TEST_F(ProbeTest, Errors) {
  const int line = __LINE__ + 1;
  const Var failed = Probe(Constant({1}, {}), [](const Tensor&) { throw std::runtime_error("no disk"); });
  EXPECT_THAT(Message(failed), AllOf(HasSubstr("Probe"), HasSubstr("no disk"), HasSubstr(Place(__FILE__, line))));
  EXPECT_THAT(Message(Probe(Constant({1}, {}), std::function<void(const Tensor&)>())), HasSubstr("empty"));
  EXPECT_THAT(Message(Look(Var::Error(InvalidArgument("an earlier error")))), HasSubstr("an earlier error"));
  EXPECT_THAT(Message(Look(2.0)), HasSubstr("Probe"));
}

}  // namespace
}  // namespace gemmill
