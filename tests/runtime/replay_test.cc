#include "gemmill/runtime/replay.h"

#include <memory>
#include <string>
#include <vector>

#include "gemmill/runtime/memory.h"
#include "gmock/gmock.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Numbers = std::vector<double>;

// tanh(a) + b, of n elements.
Program Sums(int64_t n) {
  Builder b;
  const int x = b.Unary(UnaryFn::kAbs, b.Input({n}));
  return b.Finish({b.Binary(BinaryFn::kAdd, x, b.Input({n}))});
}

Tensor Filled(double value, int64_t n) { return MakeTensor(std::vector<double>(static_cast<size_t>(n), value), {n}); }

TEST(ReplayTest, InputsAtOtherAddresses) {
  Replay replay = MustReplay(Sums(2));
  const Tensor a = MakeTensor({-1, 2}, {2});
  const Tensor b = MakeTensor({10, 20}, {2});
  ASSERT_TRUE(replay.Run({a, b}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({11, 22}));
  ASSERT_TRUE(replay.Run({b, a}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({9, 22}));
  ASSERT_TRUE(replay.Run({a, a}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({0, 4}));
  const Tensor rows = MakeTensor({0, -5, 7}, {3});
  ASSERT_TRUE(replay.Run({ValueOf(rows.Rows(1, 3)), b}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({15, 27}));
}

TEST(ReplayTest, RefusedInputsLeaveNothingBehind) {
  Replay replay = MustReplay(Sums(2));
  const Tensor a = MakeTensor({1, 1}, {2});
  const Tensor b = MakeTensor({2, 2}, {2});
  const Tensor other = MakeTensor({5, 5}, {2});
  ASSERT_TRUE(replay.Run({a, b}).ok());
  EXPECT_THAT(Message(replay.Run({other, MakeTensor({1}, {1})})),
              AllOf(HasSubstr("input 1"), HasSubstr("f32[1]"), HasSubstr("expected f32[2]")));
  ASSERT_TRUE(replay.Run({other, b}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({7, 7}));
  EXPECT_THAT(Message(replay.Run({a})), HasSubstr("2 inputs was given 1"));
  EXPECT_THAT(Message(replay.Run({a, b, b})), HasSubstr("given 3"));
  EXPECT_THAT(Message(replay.Run({a, MakeTensor({1, 1}, {2}, DType::kF64)})), HasSubstr("f64[2]"));
  Builder empty;
  Replay of_nothing = MustReplay(empty.Finish({empty.Unary(UnaryFn::kNeg, empty.Input({0}))}));
  EXPECT_THAT(Message(of_nothing.Run({Tensor()})), HasSubstr("an empty Tensor"));
  EXPECT_TRUE(of_nothing.Run({Filled(0, 0)}).ok());
}

TEST(ReplayTest, AnArenaThatGrows) {
  const auto arena = std::make_shared<Arena>(Device::Cpu());
  Replay small = MustReplay(Sums(3), arena);
  const int64_t small_bytes = arena->bytes();
  EXPECT_EQ(small_bytes, small.plan().arena_bytes);
  const Tensor threes[] = {Filled(-1, 3), Filled(10, 3)};
  ASSERT_TRUE(small.Run(threes).ok());
  Replay large = MustReplay(Sums(5000), arena);
  EXPECT_EQ(arena->bytes(), large.plan().arena_bytes);
  ASSERT_GT(arena->bytes(), small_bytes);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(small.Run(threes).ok());
    EXPECT_EQ(Doubles(small.output(0)), Numbers(3, 11.0));
    ASSERT_TRUE(large.Run({Filled(-turn, 5000), Filled(1, 5000)}).ok());
    EXPECT_EQ(Doubles(large.output(0)), Numbers(5000, turn + 1.0));
  }
  EXPECT_EQ(arena->bytes(), large.plan().arena_bytes);
}

TEST(ReplayTest, AnArenaThatGrewKeepsNoOldBytes) {
  const auto arena = std::make_shared<Arena>(Device::Cpu());
  Replay small = MustReplay(Sums(1000), arena);
  const Tensor inputs[] = {Filled(-1, 1000), Filled(10, 1000)};
  ASSERT_TRUE(small.Run(inputs).ok());
  const int64_t before = BytesInUse(Device::Cpu()) - arena->bytes();
  const Replay large = MustReplay(Sums(5000), arena);
  EXPECT_EQ(BytesInUse(Device::Cpu()) - arena->bytes(), before);
}

TEST(ReplayTest, AnArenaThatCouldNotGrowIsTakenAgain) {
  const auto arena = std::make_shared<Arena>(Device::Cpu());
  Replay replay = MustReplay(Sums(3), arena);
  const Tensor inputs[] = {Filled(-1, 3), Filled(10, 3)};
  ASSERT_TRUE(replay.Run(inputs).ok());
  EXPECT_EQ(arena->Reserve(TotalBytes(Device::Cpu()) + 1).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(replay.Run(inputs).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers(3, 11.0));
}

TEST(ReplayTest, ErrorsNameTheStep) {
  Builder b;
  const int index = b.Input({1}, DType::kI64);
  const int rows =
      b.Add(op::GatherRows{}, {b.Bound(MakeTensor({1, 2, 3}, {3})), index}, {"/home/user/model.cc", 12})[0];
  Replay replay = MustReplay(b.Finish({rows}));
  const auto at = [](double value) { return MakeTensor({value}, {1}, DType::kI64); };
  EXPECT_THAT(Message(replay.Run({at(7)})), AllOf(HasSubstr("model.cc:12: GatherRows"), HasSubstr("7")));
  ASSERT_TRUE(replay.Run({at(2)}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({3}));
}

TEST(ReplayTest, VersionsOfWrittenTensorsAdvance) {
  const Tensor total = MakeTensor({1}, {1});
  const Tensor read = MakeTensor({2}, {1});
  Builder b;
  const int sum = b.Binary(BinaryFn::kAdd, b.Bound(total), b.Bound(read));
  const int index = b.Input({1}, DType::kI64);
  const int row = b.Add(op::GatherRows{}, {sum, index})[0];
  Program program = b.Finish({sum, row});
  ASSERT_TRUE(WriteInto(program, 0, total).ok());
  Replay replay = MustReplay(program);
  const int64_t version = total.buffer()->version();
  ASSERT_TRUE(replay.Run({MakeTensor({0}, {1}, DType::kI64)}).ok());
  EXPECT_EQ(total.buffer()->version(), version + 1);
  EXPECT_EQ(read.buffer()->version(), 0);
  // A run that fails has written what came before.
  EXPECT_FALSE(replay.Run({MakeTensor({9}, {1}, DType::kI64)}).ok());
  EXPECT_EQ(total.buffer()->version(), version + 2);
  EXPECT_EQ(Doubles(total), Numbers({5}));
}

TEST(ReplayTest, OutputsThatAreInputsOrBound) {
  const Tensor bound = MakeTensor({5}, {1});
  Builder b;
  Replay replay = MustReplay(b.Finish({b.Input({1}), b.Bound(bound)}));
  const Tensor input = MakeTensor({3}, {1});
  ASSERT_TRUE(replay.Run({input}).ok());
  EXPECT_EQ(replay.output(0).data(), input.data());
  EXPECT_EQ(replay.output(1).data(), bound.data());
}

TEST(ReplayTest, WithoutAnArena) {
  EXPECT_THAT(Message(Replay::Create(Sums(2), nullptr).status()), HasSubstr("arena of a replay is null"));
}

TEST(ReplayTest, AnOutputThatIsNotThereIsEmpty) {
  const auto arena = std::make_shared<Arena>(Device::Cpu());
  Replay replay = MustReplay(Sums(2), arena);
  EXPECT_FALSE(replay.output(0).valid());
  ASSERT_TRUE(replay.Run({Filled(-1, 2), Filled(10, 2)}).ok());
  EXPECT_EQ(Doubles(replay.output(0)), Numbers({11, 11}));
  EXPECT_FALSE(replay.output(1).valid());
  EXPECT_THAT(Message(replay.output(1).ToDoubles().status()), HasSubstr("empty Tensor"));
  const Replay large = MustReplay(Sums(5000), arena);
  EXPECT_FALSE(replay.output(0).valid()) << "its bytes went with the smaller arena";
}

TEST(ReplayTest, Watch) {
  Builder b;
  const int x = b.Reshape(b.Input({2}), {2, 1});
  Replay replay = MustReplay(b.Finish({b.Unary(UnaryFn::kNeg, b.Unary(UnaryFn::kAbs, x))}));
  std::vector<size_t> steps;
  double seconds = 0;
  replay.SetWatch([&](const Program&, size_t step, double took) {
    steps.push_back(step);
    seconds += took;
  });
  ASSERT_TRUE(replay.Run({MakeTensor({1, 2}, {2})}).ok());
  EXPECT_EQ(steps, std::vector<size_t>({1, 2}));  // the Reshape has nothing to do
  EXPECT_GE(seconds, 0);
  replay.SetWatch(nullptr);
  ASSERT_TRUE(replay.Run({MakeTensor({1, 2}, {2})}).ok());
  EXPECT_EQ(steps.size(), 2u);
}

TEST(ReplayTest, MovedAndCopied) {
  Replay first = MustReplay(Sums(2));
  ASSERT_TRUE(first.Run({Filled(1, 2), Filled(2, 2)}).ok());
  Replay copied = first;
  Replay moved = std::move(first);
  ASSERT_TRUE(moved.Run({Filled(1, 2), Filled(5, 2)}).ok());
  EXPECT_EQ(Doubles(moved.output(0)), Numbers({6, 6}));
  ASSERT_TRUE(copied.Run({Filled(1, 2), Filled(7, 2)}).ok());
  EXPECT_EQ(Doubles(copied.output(0)), Numbers({8, 8}));
}

}  // namespace
}  // namespace gemmill
