#include "gemmill/runtime/plan.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/passes/passes.h"
#include "gmock/gmock.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

size_t At(int number) { return static_cast<size_t>(number); }

// A program of elementwise ops, products, sums and other names for values, whose numbers stay small.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : generator_(seed) {
    for (int i = 0; i < 3; ++i) values_.push_back(builder_.Input(RandomShape()));
    values_.push_back(builder_.Input({1}));
    values_.push_back(builder_.Bound(MakeTensor(RandomDoubles(12, -1, 1, seed), {3, 4})));
    for (int step = Below(25) + 5; step > 0; --step) values_.push_back(Add(Any()));
  }
  Program Finish() {
    std::vector<int> outputs{values_.back()};
    for (int count = Below(4); count > 0; --count) outputs.push_back(Any());
    return builder_.Finish(outputs);
  }

 private:
  int Below(int limit) { return static_cast<int>(generator_() % static_cast<uint32_t>(limit)); }
  int Any() { return values_[At(Below(static_cast<int>(values_.size())))]; }
  Shape RandomShape() {
    if (Below(2) == 0) return {3, 4};
    const int64_t rows = Below(40);
    return {rows, Below(9)};
  }
  // A value of x's shape, or one that broadcasts to it.
  int Beside(int x) {
    for (int tries = 0; tries < 8; ++tries) {
      const int y = Any();
      if (builder_.spec(y).shape == builder_.spec(x).shape) return y;
    }
    return Below(2) == 0 ? x : values_[3];
  }
  int Matrix(int x) {
    const Shape shape = builder_.spec(x).shape;
    return shape.size() == 2 ? x : builder_.Reshape(x, {shape[0], 1});
  }
  int Add(int x) {
    const Shape shape = builder_.spec(x).shape;
    switch (Below(7)) {
      case 0:
        return builder_.Unary(Below(2) == 0 ? UnaryFn::kTanh : UnaryFn::kSin, x);
      case 1:
      case 2: {
        const bool left = Below(2) == 0;
        const int y = Beside(x);
        return builder_.Binary(BinaryFn::kAdd, left ? x : y, left ? y : x);
      }
      case 3:
        return builder_.Reshape(x, shape.size() == 2 ? Shape{shape[1], shape[0]} : Shape{shape[0], 1});
      case 4: {
        const int matrix = Matrix(x);
        return builder_.Unary(UnaryFn::kTanh, builder_.Add(op::MatMul{true, false}, {matrix, matrix})[0]);
      }
      case 5:
        return builder_.Add(op::Softmax{}, {Matrix(x)})[0];
      default: {
        const int dy = builder_.Unary(UnaryFn::kSin, x);
        return builder_.Add(op::UnaryGrad{UnaryFn::kTanh}, {x, dy})[0];
      }
    }
  }

  std::mt19937 generator_;
  Builder builder_;
  std::vector<int> values_;
};

int64_t Rounded(int64_t bytes) { return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment; }

// Follows a run by who owns each 64 bytes of the arena: what a step reads still belongs to the value that it reads, and
// what it writes over is no longer needed, or is an input that the op may overwrite.
class Simulation {
 public:
  Simulation(const Program& program, const Plan& plan, const std::vector<int64_t>& workspaces)
      : program_(program), plan_(plan), workspaces_(workspaces), last_(program.values.size(), 0) {
    for (size_t v = 0; v < program.values.size(); ++v) name_of_.push_back(static_cast<int>(v));
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const Step& step = program.steps[s];
      if (std::holds_alternative<op::Reshape>(step.op)) name_of_[At(step.outputs[0])] = name_of_[At(step.inputs[0])];
      for (int number : step.inputs) last_[At(name_of_[At(number)])] = s;
    }
    for (int number : program.outputs) last_[At(name_of_[At(number)])] = program.steps.size();
  }

  void Run() {
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const Step& step = program_.steps[s];
      for (int number : step.inputs) ExpectIntact(number);
      for (size_t o = 0; o < step.outputs.size(); ++o) Write(s, o);
      if (workspaces_[s] <= 0) {
        EXPECT_EQ(plan_.workspace_offsets[s], -1);
        continue;
      }
      Take(s, plan_.workspace_offsets[s], workspaces_[s], -1, {});
      for (int number : step.outputs) ExpectIntact(number);
    }
    for (int number : program_.outputs) ExpectIntact(number);
    EXPECT_EQ(plan_.arena_bytes, end_);
  }

 private:
  void ExpectIntact(int number) {
    const Plan::Place& place = plan_.places[At(number)];
    const int name = name_of_[At(number)];
    if (program_.values[At(name)].storage != Storage::kTemporary) {
      EXPECT_EQ(place.root, name);
      return;
    }
    EXPECT_EQ(place.root, -1);
    const int64_t bytes = Rounded(program_.values[At(number)].spec.bytes());
    for (int64_t at = place.offset; at < place.offset + bytes; at += kAlignment) {
      EXPECT_EQ(owners_[at], name) << "value " << number << ", byte " << at;
    }
  }

  void Write(size_t s, size_t o) {
    const Step& step = program_.steps[s];
    const int output = step.outputs[o];
    if (name_of_[At(output)] != output) return ExpectIntact(output);  // a Reshape
    std::vector<size_t> in_place_of;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const bool same = program_.values[At(step.inputs[i])].spec == program_.values[At(output)].spec;
      if (same && MayRunInPlace(step.op, i, o)) in_place_of.push_back(i);
    }
    last_[At(output)] = std::max(last_[At(output)], s);
    Take(s, plan_.places[At(output)].offset, program_.values[At(output)].spec.bytes(), output, in_place_of);
  }

  void Take(size_t s, int64_t offset, int64_t bytes, int name, const std::vector<size_t>& in_place_of) {
    EXPECT_EQ(offset % kAlignment, 0);
    EXPECT_GE(offset, 0);
    end_ = std::max(end_, offset + Rounded(bytes));
    for (int64_t at = offset; at < offset + Rounded(bytes); at += kAlignment) {
      const auto owner = owners_.find(at);
      if (owner != owners_.end() && owner->second >= 0) ExpectMayOverwrite(s, offset, owner->second, in_place_of);
      owners_[at] = name;
    }
  }

  void ExpectMayOverwrite(size_t s, int64_t offset, int owner, const std::vector<size_t>& in_place_of) {
    if (last_[At(owner)] < s) return;
    const Step& step = program_.steps[s];
    bool allowed = last_[At(owner)] == s;
    bool read = false;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (name_of_[At(step.inputs[i])] != owner) continue;
      read = true;
      allowed = allowed && std::count(in_place_of.begin(), in_place_of.end(), i) == 1 &&
                plan_.places[At(step.inputs[i])].offset == offset;
    }
    EXPECT_TRUE(read && allowed) << StepString(program_, step) << " overwrites value " << owner;
  }

  const Program& program_;
  const Plan& plan_;
  const std::vector<int64_t>& workspaces_;
  std::vector<int> name_of_;  // what each value is another name for: itself but for Reshapes
  std::vector<size_t> last_;  // the last step that needs it
  std::map<int64_t, int> owners_;
  int64_t end_ = 0;
};

TEST(PlanTest, RandomProgramsAreSound) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Program made = RandomProgram(seed).Finish();
    for (const Program& program : {made, WithoutUnused(made), passes::Default(made)}) {
      std::vector<int64_t> workspaces = ValueOf(WorkspaceBytes(program));
      for (size_t s = 0; s < workspaces.size(); s += 3) workspaces[s] += static_cast<int64_t>(s) * 50;
      const Plan plan = ValueOf(MakePlan(program, workspaces));
      ASSERT_EQ(plan.places.size(), program.values.size());
      Simulation(program, plan, workspaces).Run();
      int64_t live = 0;
      for (const Plan::Live& part : plan.live_at_peak) live += part.bytes;
      EXPECT_LE(live, plan.arena_bytes);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanTest, RandomProgramsGiveTheBitsOfTheirOps) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = RandomProgram(seed).Finish();
    const std::vector<Tensor> inputs = InputsFor(program, seed);
    // Each op on its own, every value in memory of its own.
    std::vector<Tensor> values(program.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[At(program.inputs[i])] = inputs[i];
    for (size_t v = 0; v < values.size(); ++v) {
      if (program.values[v].storage == Storage::kBound) values[v] = program.values[v].bound;
    }
    for (const Step& step : program.steps) {
      std::vector<Tensor> arguments;
      for (int number : step.inputs) arguments.push_back(values[At(number)]);
      const std::vector<Tensor> results = RunOp(step.op, arguments);
      for (size_t o = 0; o < step.outputs.size(); ++o) values[At(step.outputs[o])] = results[o];
    }
    for (const Program& run : {program, WithoutUnused(program), passes::Default(WithoutUnused(program))}) {
      const std::vector<Tensor> outputs = OutputsOf(run, inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(SameBits(outputs[i], values[At(program.outputs[i])])) << "output " << i << "\n"
                                                                          << ProgramString(run);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

Plan PlanOf(const Program& program) { return ValueOf(MakePlan(program)); }

TEST(PlanTest, AChainRunsInPlace) {
  Builder b;
  int x = b.Unary(UnaryFn::kNeg, b.Input({100}));
  for (int i = 0; i < 5; ++i) x = b.Unary(UnaryFn::kTanh, x);
  const Plan plan = PlanOf(b.Finish({x}));
  EXPECT_EQ(plan.arena_bytes, 448);
  EXPECT_EQ(plan.live_at_peak.size(), 1u);
  EXPECT_EQ(plan.input_bytes, 400);
  EXPECT_EQ(plan.peak_bytes(), 848);
}

TEST(PlanTest, NotInPlaceOfWhatAnotherArgumentNeeds) {
  Builder b;
  // Broadcast: elements of x are read more than once.
  const int x = b.Unary(UnaryFn::kNeg, b.Input({4, 1}));
  const int table = b.Binary(BinaryFn::kAdd, x, b.Reshape(x, {1, 4}));
  // A gradient that is its parameter itself: an update in place would change it while it is read.
  const int weight = b.Unary(UnaryFn::kNeg, b.Input({8}));
  const int updated = b.Add(op::Sgd{0, false, {0}, {1}}, {b.Input({3}, DType::kF64), weight, weight})[0];
  const int y = b.Unary(UnaryFn::kNeg, b.Input({8}));
  const int twice = b.Binary(BinaryFn::kAdd, y, y);
  const Plan plan = PlanOf(b.Finish({table, updated, twice}));
  const auto same_place = [&](int p, int q) { return plan.places[At(p)].offset == plan.places[At(q)].offset; };
  EXPECT_FALSE(same_place(table, x));
  EXPECT_FALSE(same_place(updated, weight));
  EXPECT_TRUE(same_place(twice, y));
}

TEST(PlanTest, CountsEachTensorThatStepsName) {
  const Tensor weight = MakeTensor(RandomDoubles(64, -1, 1, 1), {64});
  const Tensor unused = MakeTensor(RandomDoubles(64, -1, 1, 1), {64});
  Builder b;
  const int first = b.Bound(weight);
  const int again = b.Bound(ValueOf(weight.Reshaped({8, 8})));
  const int dead = b.Unary(UnaryFn::kNeg, b.Bound(unused));
  const int y = b.Binary(BinaryFn::kAdd, b.Unary(UnaryFn::kNeg, first), b.Reshape(again, {64}));
  EXPECT_EQ(PlanOf(b.Finish({y, dead})).bound_bytes, 512);
  EXPECT_EQ(PlanOf(WithoutUnused(b.Finish({y}))).bound_bytes, 256);
}

TEST(PlanTest, ReportsWhatIsLiveAtThePeak) {
  Builder b;
  const int x = b.Input({1000});
  const int wide = b.Add(op::BroadcastTo{{4, 1000}}, {x}, {"model.cc", 3})[0];
  const int sum = b.Add(op::Reduce{ReduceFn::kSum, {0, 1}}, {wide}, {"model.cc", 4})[0];
  const Program program = b.Finish({sum});
  const Plan plan = ValueOf(MakePlan(program, std::vector<int64_t>{0, 640}));
  EXPECT_EQ(plan.peak_step, 1u);
  EXPECT_EQ(plan.arena_bytes, 16000 + 640 + 64);
  ASSERT_EQ(plan.live_at_peak.size(), 3u);
  EXPECT_EQ(plan.live_at_peak[0].name, "BroadcastTo");
  EXPECT_EQ(plan.live_at_peak[0].bytes, 16000);
  EXPECT_EQ(plan.live_at_peak[1].name, "reduce sum workspace");
  EXPECT_THAT(PlanString(plan, 2), AllOf(HasSubstr("16704"), HasSubstr("model.cc:3"), HasSubstr("and 1 more"),
                                         HasSubstr("aligned to 64"), HasSubstr("peak, step 1 of 2")));
  EXPECT_THAT(Message(MakePlan(program, std::vector<int64_t>{0}).status()), HasSubstr("1 workspace sizes for 2 steps"));
}

TEST(PlanTest, OfNothing) {
  EXPECT_EQ(PlanOf(Program{}).peak_bytes(), 0);
  EXPECT_TRUE(OutputsOf(Program{}, {}).empty());
  Builder b;
  const int x = b.Input({3});
  const std::vector<Tensor> outputs = OutputsOf(b.Finish({x, b.Reshape(x, {3, 1})}), {MakeTensor({1, 2, 3}, {3})});
  EXPECT_EQ(Doubles(outputs[1]), (std::vector<double>{1, 2, 3}));
}

}  // namespace
}  // namespace gemmill
