#include "gemmill/runtime/sized_program.h"

#include "gemmill/runtime/plan.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

const Tensor& Weight() {
  static const Tensor weight = MakeTensor(RandomDoubles(6 * 40, -1, 1, 1), {6, 40});
  return weight;
}

Program ForSamples(int64_t samples) {
  Builder b;
  const int x = b.Input({samples, 2, 3});
  const int product = b.Add(op::MatMul{}, {b.Reshape(x, {samples, 6}), b.Bound(Weight())})[0];
  const int ones = b.Add(op::Fill{{samples + 1, 40}, DType::kF32, 1}, {})[0];
  const int shorter = b.Add(op::Slice{0, 1, samples + 1, 1}, {ones})[0];
  const int sum = b.Binary(BinaryFn::kAdd, b.Unary(UnaryFn::kRelu, product), shorter);
  const std::vector<int> assigned = b.Add(op::AssignRows{40}, {b.Add(op::TopK{2}, {sum})[0]});
  const int rows = b.Add(op::DispatchRows{2 * samples}, {sum, assigned[0]})[0];
  const int combined = b.Add(op::CombineRows{}, {rows, assigned[0]})[0];
  return b.Finish({b.Add(op::Reduce{ReduceFn::kSum, {0}}, {sum})[0], b.Add(op::Softmax{}, {combined})[0]});
}

TEST(SizedProgram, IsPlannedLikeARecordingOfThatSize) {
  SizedProgram sized = SizedProgram::Between(ForSamples(64), 64, ForSamples(32), 32).value();
  for (const int64_t samples : {1, 2, 7, 32, 64, 1000, 3}) {
    SCOPED_TRACE(samples);
    const Program recorded = ForSamples(samples);
    const Program& found = sized.For(samples);
    ASSERT_EQ(found.values.size(), recorded.values.size());
    for (size_t v = 0; v < recorded.values.size(); ++v) EXPECT_EQ(found.values[v].spec, recorded.values[v].spec);
    const std::vector<int64_t> workspaces = ValueOf(WorkspaceBytes(recorded));
    EXPECT_EQ(ValueOf(CheckedWorkspaceBytes(found)), workspaces);
    const Plan plan = ValueOf(MakePlan(recorded, workspaces));
    const Plan planned = CheckedPlan(found, workspaces);
    EXPECT_EQ(planned.arena_bytes, plan.arena_bytes);
    EXPECT_EQ(planned.input_bytes, plan.input_bytes);
    EXPECT_EQ(planned.bound_bytes, plan.bound_bytes);
  }
}

TEST(SizedProgram, OfProgramsThatDifferInMoreThanDimensionsThereIsNone) {
  const auto between = [](const std::function<void(Builder&, int)>& more) {
    Builder one, other;
    const int x = one.Input({4, 3});
    const int y = other.Input({2, 3});
    more(other, y);
    one.Unary(UnaryFn::kRelu, x);
    return SizedProgram::Between(one.Finish({}), 4, other.Finish({}), 2).has_value();
  };
  EXPECT_TRUE(between([](Builder& b, int y) { b.Unary(UnaryFn::kRelu, y); }));
  EXPECT_FALSE(between([](Builder& b, int y) { b.Unary(UnaryFn::kTanh, y); }));
  EXPECT_FALSE(between([](Builder& b, int y) { b.Reshape(y, {3, 2}); }));
  EXPECT_FALSE(between([](Builder&, int) {}));
  EXPECT_FALSE(between([](Builder& b, int y) { b.Unary(UnaryFn::kRelu, b.Unary(UnaryFn::kRelu, y)); }));

  // Dimensions that do not grow with each sample: squares, halves, and constants of another size.
  const auto filled = [](const Shape& shape) {
    Builder b;
    b.Add(op::Fill{shape, DType::kF32, 1}, {});
    return b.Finish({});
  };
  EXPECT_TRUE(SizedProgram::Between(filled({4, 8}), 4, filled({2, 4}), 2).has_value());
  EXPECT_FALSE(SizedProgram::Between(filled({5}), 4, filled({4}), 2).has_value());
  EXPECT_FALSE(SizedProgram::Between(filled({16}), 4, filled({4}), 2).has_value());
  EXPECT_FALSE(SizedProgram::Between(filled({2}), 4, filled({4}), 2).has_value());
  EXPECT_FALSE(SizedProgram::Between(filled({4}), 4, filled({4, 1}), 2).has_value());
  const auto bound = [](int64_t size) {
    Builder b;
    b.Unary(UnaryFn::kNeg, b.Bound(MakeTensor(std::vector<double>(static_cast<size_t>(size), 1), {size})));
    return b.Finish({});
  };
  EXPECT_FALSE(SizedProgram::Between(bound(4), 4, bound(2), 2).has_value());
}

}  // namespace
}  // namespace gemmill
