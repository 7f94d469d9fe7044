#include "gemmill/runtime/program.h"

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What one run leaves in `destination` after WriteInto, and whether a copy was needed.
struct Written {
  std::vector<double> values;
  bool copied;
};
Written Write(Program program, size_t output, Tensor destination, const std::vector<Tensor>& inputs = {}) {
  const size_t steps = program.steps.size();
  EXPECT_TRUE(WriteInto(program, output, destination).ok());
  EXPECT_TRUE(Check(program).ok()) << Check(program);
  Replay replay = MustReplay(program);
  const int64_t version = destination.buffer()->version();
  EXPECT_TRUE(replay.Run(inputs).ok());
  EXPECT_GT(destination.buffer()->version(), version);
  EXPECT_EQ(replay.output(output).data(), destination.data());
  return {Doubles(destination), program.steps.size() > steps};
}

using Numbers = std::vector<double>;

TEST(WriteIntoTest, TheStepItself) {
  Builder b;
  const int y = b.Unary(UnaryFn::kNeg, b.Input({2}));
  const Written written = Write(b.Finish({y}), 0, MakeTensor({7, 7}, {2}), {MakeTensor({1, 2}, {2})});
  EXPECT_EQ(written.values, Numbers({-1, -2}));
  EXPECT_FALSE(written.copied);
}

TEST(WriteIntoTest, AddsInPlace) {
  Builder b;
  const Tensor total = MakeTensor({10, 20}, {2});
  const int sum = b.Binary(BinaryFn::kAdd, b.Bound(total), b.Unary(UnaryFn::kNeg, b.Input({2})));
  Program program = b.Finish({sum});
  ASSERT_TRUE(WriteInto(program, 0, total).ok());
  EXPECT_EQ(program.steps.size(), 2u);
  Replay replay = MustReplay(program);
  for (const double expected : {9, 8, 7}) {
    ASSERT_TRUE(replay.Run({MakeTensor({1, 2}, {2})}).ok());
    EXPECT_EQ(Doubles(total)[0], expected);
  }
}

TEST(WriteIntoTest, WhereOldBytesAreReadLaterACopyIsMade) {
  const Tensor total = MakeTensor({10, 20}, {2});
  Builder b;
  const int before = b.Bound(total);
  const int sum = b.Binary(BinaryFn::kAdd, before, b.Input({2}));
  const int later = b.Binary(BinaryFn::kMul, before, before);
  const Program program = b.Finish({sum, later});
  const Written written = Write(program, 0, total, {MakeTensor({1, 2}, {2})});
  EXPECT_EQ(written.values, Numbers({11, 22}));
  EXPECT_TRUE(written.copied);
}

TEST(WriteIntoTest, OldBytesReadUnderAnotherName) {
  const Tensor total = MakeTensor({10, 20}, {2});
  Builder b;
  const int before = b.Bound(total);
  const int alias = b.Reshape(b.Reshape(before, {2, 1}), {1, 2});
  const int sum = b.Binary(BinaryFn::kAdd, before, b.Input({2}));
  const int later = b.Unary(UnaryFn::kNeg, alias);
  Program program = b.Finish({sum, later});
  const Written written = Write(program, 0, total, {MakeTensor({1, 2}, {2})});
  EXPECT_TRUE(written.copied);
  EXPECT_EQ(written.values, Numbers({11, 22}));
  // Read by the very step that writes, of another shape.
  const Tensor matrix = MakeTensor({1, 2, 3, 4}, {2, 2});
  Builder c;
  const int m = c.Bound(matrix);
  const int product = c.Add(op::MatMul{}, {c.Reshape(m, {2, 2}), c.Reshape(m, {2, 2})})[0];
  EXPECT_EQ(Write(c.Finish({product}), 0, matrix).values, Numbers({7, 10, 15, 22}));
}

TEST(WriteIntoTest, PartsOfOneTensorAreDifferentPlaces) {
  const Tensor all = MakeTensor({1, 2, 3, 4}, {4});
  Builder b;
  const int first = b.Bound(ValueOf(all.Rows(0, 2)));
  const int sum = b.Binary(BinaryFn::kAdd, first, b.Input({2}));
  const int later = b.Unary(UnaryFn::kNeg, first);
  const Program program = b.Finish({sum, later});
  const Tensor one = MakeTensor({1, 1}, {2});
  // Beside it: nobody's old bytes. Shifted by one, it is not the place of the input.
  EXPECT_FALSE(Write(program, 0, ValueOf(all.Rows(2, 4)), {one}).copied);
  EXPECT_EQ(Doubles(all), Numbers({1, 2, 2, 3}));
  EXPECT_TRUE(Write(program, 0, ValueOf(all.Rows(1, 3)), {one}).copied);
  EXPECT_EQ(Doubles(all), Numbers({1, 2, 3, 3}));
  // The same bytes through a view that has a buffer of its own.
  const Tensor view = Tensor::View(all.data(), Spec{{2}, DType::kF32});
  EXPECT_TRUE(Write(program, 0, view, {one}).copied);
  EXPECT_EQ(Doubles(all), Numbers({2, 3, 3, 3}));
}

TEST(WriteIntoTest, AReshapeIsCopied) {
  Builder b;
  const int negative = b.Unary(UnaryFn::kNeg, b.Input({2}));
  const Program program = b.Finish({b.Reshape(negative, {1, 2}), negative});
  const Written written = Write(program, 0, MakeTensor({0, 0}, {1, 2}), {MakeTensor({1, 2}, {2})});
  EXPECT_TRUE(written.copied);
  EXPECT_EQ(written.values, Numbers({-1, -2}));
}

TEST(WriteIntoTest, InputsAndBoundTensorsAreCopied) {
  Builder b;
  const Tensor bound = MakeTensor({5}, {1});
  Program program = b.Finish({b.Input({1}), b.Bound(bound)});
  const Tensor destinations[] = {MakeTensor({0}, {1}), MakeTensor({0}, {1})};
  for (size_t i : {0, 1}) ASSERT_TRUE(WriteInto(program, i, destinations[i]).ok());
  Replay replay = MustReplay(program);
  ASSERT_TRUE(replay.Run({MakeTensor({3}, {1})}).ok());
  EXPECT_EQ(Doubles(destinations[0]), Numbers({3}));
  EXPECT_EQ(Doubles(destinations[1]), Numbers({5}));
  // What is there already stays there.
  const size_t steps = program.steps.size();
  ASSERT_TRUE(WriteInto(program, 1, destinations[1]).ok());
  EXPECT_EQ(program.steps.size(), steps);
}

TEST(WriteIntoTest, OneValueIntoTwoPlaces) {
  Builder b;
  const int y = b.Unary(UnaryFn::kNeg, b.Input({1}));
  Program program = b.Finish({y, y});
  const Tensor destinations[] = {MakeTensor({0}, {1}), MakeTensor({0}, {1})};
  for (size_t i : {0, 1}) ASSERT_TRUE(WriteInto(program, i, destinations[i]).ok());
  EXPECT_EQ(program.steps.size(), 2u);
  Replay replay = MustReplay(program);
  ASSERT_TRUE(replay.Run({MakeTensor({3}, {1})}).ok());
  for (size_t i : {0, 1}) {
    EXPECT_EQ(Doubles(destinations[i]), Numbers({-3}));
    EXPECT_EQ(replay.output(i).data(), destinations[i].data());
  }
}

TEST(WriteIntoTest, AnOutputThatLiesThereIsNotOverwritten) {
  const Tensor tensors[] = {MakeTensor({1}, {1}), MakeTensor({2}, {1})};
  Builder b;
  const int first = b.Bound(tensors[0]);
  const int second = b.Bound(tensors[1]);
  const int moved = b.Binary(BinaryFn::kAdd, first, second);
  Program program = b.Finish({first, b.Reshape(second, {1, 1}), moved});
  for (const Tensor& tensor : tensors) {
    EXPECT_THAT(Message(WriteInto(program, 2, tensor)), HasSubstr("read after a run"));
  }
  EXPECT_EQ(program.steps.size(), 2u);
  // Elsewhere, then over its old place.
  ASSERT_TRUE(WriteInto(program, 0, MakeTensor({0}, {1})).ok());
  ASSERT_TRUE(WriteInto(program, 2, tensors[0]).ok());
  const std::vector<Tensor> outputs = OutputsOf(program, {});
  EXPECT_EQ(Doubles(outputs[0]), Numbers({1}));
  EXPECT_EQ(Doubles(outputs[2]), Numbers({3}));
}

TEST(WriteIntoTest, SeveralAtOnceAreAsOneAfterAnother) {
  const Tensor all = MakeTensor({10, 20, 30, 40, 50, 60}, {6});
  const Tensor parts[] = {ValueOf(all.Rows(0, 2)), ValueOf(all.Rows(2, 4)), ValueOf(all.Rows(4, 6))};
  // The second is read after the first was made, the third by a step that may not run in place.
  Builder b;
  const int x = b.Input({2});
  const int first = b.Binary(BinaryFn::kAdd, b.Bound(parts[0]), x);
  const int second = b.Binary(BinaryFn::kAdd, b.Bound(parts[1]), x);
  const int reversed = b.Add(op::GatherRows{}, {b.Bound(parts[2]), b.Bound(MakeTensor({1, 0}, {2}, DType::kI64))})[0];
  const int late = b.Binary(BinaryFn::kMul, b.Bound(parts[1]), x);
  const Program program = b.Finish({first, second, reversed, late});
  std::vector<Destination> destinations;
  Program one_by_one = program;
  for (const size_t i : {2, 0, 1}) {
    destinations.push_back({i, parts[i]});
    ASSERT_TRUE(WriteInto(one_by_one, i, parts[i]).ok());
  }
  Program at_once = program;
  ASSERT_TRUE(WriteInto(at_once, destinations).ok());
  EXPECT_EQ(ProgramString(at_once), ProgramString(one_by_one));
  EXPECT_EQ(at_once.steps.size(), program.steps.size() + 2);
  Replay replay = MustReplay(at_once);
  ASSERT_TRUE(replay.Run({MakeTensor({1, 2}, {2})}).ok());
  EXPECT_EQ(Doubles(all), Numbers({11, 22, 31, 42, 60, 50}));
  EXPECT_EQ(Doubles(replay.output(3)), Numbers({30, 80}));
}

TEST(WriteIntoTest, DestinationsThatOverlapAreRefusedAndTheProgramStaysAsItWas) {
  const Tensor all = MakeTensor({1, 2, 3}, {3});
  Builder b;
  const int x = b.Input({2});
  Program program = b.Finish({b.Unary(UnaryFn::kNeg, x), b.Unary(UnaryFn::kAbs, x)});
  const std::string before = ProgramString(program);
  const std::vector<Destination> destinations = {{0, ValueOf(all.Rows(0, 2))}, {1, ValueOf(all.Rows(1, 3))}};
  EXPECT_THAT(Message(WriteInto(program, destinations)), HasSubstr("output 1 would overwrite output 0"));
  EXPECT_EQ(ProgramString(program), before);
}

TEST(WriteIntoTest, OfAnotherSpec) {
  Builder b;
  Program program = b.Finish({b.Unary(UnaryFn::kNeg, b.Input({2}))});
  EXPECT_THAT(Message(WriteInto(program, 0, MakeTensor({1}, {1}))), AllOf(HasSubstr("f32[2]"), HasSubstr("f32[1]")));
  EXPECT_FALSE(WriteInto(program, 0, Tensor()).ok());
}

TEST(WriteIntoTest, AnErrorOfTheCopyNamesTheStepThatMadeTheValue) {
  Builder b;
  const int negative = b.Unary(UnaryFn::kNeg, b.Input({2}));
  const int alias = b.Add(op::Reshape{{2, 1}}, {negative}, {"model.cc", 12})[0];
  Program program = b.Finish({alias});
  ASSERT_TRUE(WriteInto(program, 0, MakeTensor({0, 0}, {2, 1})).ok());
  EXPECT_EQ(program.steps.back().origin.ToString(), "model.cc:12");
}

TEST(WithoutUnusedTest, KeepsWhatIsReadBoundOrCustom) {
  Builder b;
  const int x = b.Input({2});
  const int used = b.Unary(UnaryFn::kNeg, x);
  const int dead = b.Unary(UnaryFn::kTanh, x);
  b.Unary(UnaryFn::kExp, dead);
  const int looked_at = b.Unary(UnaryFn::kAbs, x);
  b.Add(op::Custom{std::make_shared<NamedOp>("Look")}, {looked_at});
  const int stored = b.Unary(UnaryFn::kRelu, x);
  Program program = b.Finish({used, stored});
  ASSERT_TRUE(WriteInto(program, 1, MakeTensor({0, 0}, {2})).ok());
  program.outputs = {used};
  const Program kept = WithoutUnused(program);
  EXPECT_THAT(ProgramString(kept), AllOf(HasSubstr("neg"), HasSubstr("abs"), HasSubstr("Look"), HasSubstr("relu")));
  EXPECT_THAT(ProgramString(kept), AllOf(Not(HasSubstr("tanh")), Not(HasSubstr("exp"))));
  EXPECT_EQ(ProgramString(WithoutUnused(kept)), ProgramString(kept));
  EXPECT_EQ(kept.inputs, program.inputs);
  EXPECT_TRUE(Check(kept).ok()) << Check(kept);
}

TEST(CheckTest, RefusesWhatCannotRun) {
  Builder b;
  const Tensor state = MakeTensor({1, 2}, {2});
  const int before = b.Bound(state);
  const int sum = b.Binary(BinaryFn::kAdd, before, b.Input({2}));
  const int last = b.Unary(UnaryFn::kNeg, sum);
  const Program good = b.Finish({last});
  EXPECT_TRUE(Check(good).ok());

  Program swapped = good;
  std::swap(swapped.steps[0], swapped.steps[1]);
  EXPECT_THAT(Message(Check(swapped)), HasSubstr("read before it is written"));

  Program reading_old = good;
  Value& written = reading_old.values[static_cast<size_t>(sum)];
  written = {written.spec, Storage::kBound, state};
  EXPECT_TRUE(Check(reading_old).ok()) << Check(reading_old);
  reading_old.steps[1].inputs = {before};
  EXPECT_THAT(Message(Check(reading_old)), HasSubstr("old bytes"));

  Program old_output = good;
  old_output.values[static_cast<size_t>(sum)] = written;
  old_output.outputs.push_back(before);
  EXPECT_THAT(Message(Check(old_output)), HasSubstr("overwrites"));

  Program wrong_spec = good;
  wrong_spec.values[static_cast<size_t>(last)].spec.shape = {3};
  EXPECT_THAT(Message(Check(wrong_spec)), HasSubstr("wrong outputs"));

  for (const int number : {-1, 99}) {
    Program no_value = good;
    no_value.steps[1].inputs = {number};
    EXPECT_FALSE(Check(no_value).ok());
    no_value = good;
    no_value.outputs = {number};
    EXPECT_FALSE(Check(no_value).ok());
  }

  Program never_made = good;
  never_made.steps.pop_back();
  EXPECT_THAT(Message(Check(never_made)), HasSubstr("no step writes it"));
  EXPECT_FALSE(Replay::Create(never_made, std::make_shared<Arena>(Device::Cpu())).ok());
}

// Each is refused by all that take a Program.
TEST(CheckTest, RefusesWhatWasPutTogetherWrong) {
  Builder b;
  const int x = b.Input({2});
  const int bound = b.Bound(MakeTensor({1, 2}, {2}));
  const int sum = b.Binary(BinaryFn::kAdd, x, bound);
  const int shaped = b.Reshape(sum, {2, 1});
  const Program good = b.Finish({shaped});
  const auto refusal = [&](const std::function<void(Program&)>& spoil) {
    Program bad = good;
    spoil(bad);
    EXPECT_FALSE(MakePlan(bad, std::vector<int64_t>(bad.steps.size(), 0)).ok());
    EXPECT_FALSE(WorkspaceBytes(bad).ok());
    EXPECT_FALSE(Replay::Create(bad, std::make_shared<Arena>(Device::Cpu())).ok());
    return Message(Check(bad));
  };
  EXPECT_THAT(refusal([](Program& p) { p.inputs.clear(); }), HasSubstr("does not list"));
  EXPECT_THAT(refusal([&](Program& p) { p.inputs.push_back(x); }), HasSubstr("given twice"));
  EXPECT_THAT(refusal([&](Program& p) { p.inputs.push_back(sum); }), HasSubstr("no input"));
  const Tensor empty;
  EXPECT_THAT(refusal([&](Program& p) { p.values[1].bound = empty; }), HasSubstr("its tensor is empty"));
  EXPECT_THAT(refusal([&](Program& p) { p.values[1].bound = MakeTensor({1}, {1}); }), HasSubstr("f32[1]"));
  EXPECT_THAT(refusal([](Program& p) { p.steps.push_back(p.steps[0]); }), HasSubstr("written twice"));
  EXPECT_THAT(refusal([](Program& p) { p.steps[1].inputs.clear(); }), HasSubstr("Reshape"));
  EXPECT_THAT(refusal([](Program& p) { p.steps[1].outputs.clear(); }), HasSubstr("Reshape"));
  EXPECT_THAT(refusal([](Program& p) { p.steps[0].inputs.pop_back(); }), HasSubstr("add"));
  EXPECT_THAT(refusal([](Program& p) { p.steps[0].op = op::Custom{}; }), HasSubstr("no CustomOp"));
}

}  // namespace
}  // namespace gemmill
