// What Dropout's mask depends on: seed, step, stream and the position of a sample in the global batch.
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/training_scope.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Var Ones(const Shape& shape) { return Fill(shape, 1); }

std::vector<double> Dropped(const Shape& shape, const RandomInputs& random, const DropoutOptions& options = {}) {
  const TrainingScope training(random);
  return Read(ApplyDropout(Ones(shape), options));
}

void Append(std::vector<double>& all, const std::vector<double>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

TEST(DropoutScopeTest, IsTheIdentityOutsideOfATrainingScope) {
  const Var x = Ones({4, 8});
  EXPECT_TRUE(ApplyDropout(x, {.rate = 0.9f}).Is(x));
  EXPECT_EQ(TrainingRandom(), nullptr);
  {
    const TrainingScope training({.seed = 1});
    EXPECT_FALSE(ApplyDropout(x, {.rate = 0.9f}).Is(x));
    EXPECT_EQ(Read(TrainingRandom()->key)[0], 1);
    const TrainingScope inner({.seed = 2});
    EXPECT_EQ(Read(TrainingRandom()->key)[0], 2);
  }
  EXPECT_TRUE(ApplyDropout(x, {.rate = 0.9f}).Is(x));
}

TEST(DropoutScopeTest, ScalesWhatItKeeps) {
  const std::vector<double> y = Dropped({1000, 64}, {.seed = 3}, {.rate = 0.25f});
  int64_t kept = 0;
  for (double value : y) {
    ASSERT_TRUE(value == 0 || value == static_cast<double>(1 / 0.75f)) << value;
    kept += value != 0 ? 1 : 0;
  }
  // Five standard deviations of a binomial distribution.
  EXPECT_NEAR(static_cast<double>(kept) / 64000, 0.75, 5 * 0.4330 / 253);
}

TEST(DropoutScopeTest, TheGradientHasTheSameMask) {
  const TrainingScope training({.seed = 4});
  const Var x = Parameter(std::vector<double>(64, 1), {8, 8});
  const Var y = ApplyDropout(x, {});
  ExpectVar(Grad(Sum(y), {x})[0], Read(y));
}

TEST(DropoutScopeTest, DoesNotDependOnHowABatchWasSplit) {
  const RandomInputs whole{.seed = 5, .step = 7, .first_sample = 0, .samples = 10};
  const std::vector<double> expected = Dropped({10, 6}, whole);
  for (int64_t size : {1, 3, 4}) {
    std::vector<double> parts;
    for (int64_t start = 0; start < 10; start += size) {
      const int64_t samples = std::min(size, 10 - start);
      Append(parts, Dropped({samples, 6}, {5, 7, start, samples}));
    }
    EXPECT_EQ(parts, expected) << "in parts of " << size;
  }
}

TEST(DropoutScopeTest, NorWithSeveralRowsPerSample) {
  const std::vector<double> expected = Dropped({6, 4, 5}, {5, 7, 0, 6});
  std::vector<double> parts;
  Append(parts, Dropped({4, 4, 5}, {5, 7, 0, 4}));
  Append(parts, Dropped({2 * 4, 5}, {5, 7, 4, 2}));  // flattened to rows, with the number of samples
  EXPECT_EQ(parts, expected);
  EXPECT_EQ(Dropped({6 * 4, 5}, {5, 7, 0, 6}), expected);
}

TEST(DropoutScopeTest, RowsOfItsOwn) {
  const std::vector<double> all = Dropped({10, 6}, {5, 7, 0, 10});
  const DropoutOptions options{.index = Constant({9, 0}, {2}, DType::kI64)};
  std::vector<double> expected(all.begin() + 9 * 6, all.end());
  expected.insert(expected.end(), all.begin(), all.begin() + 6);
  EXPECT_EQ(Dropped({2, 6}, {5, 7, 0, 10}, options), expected);
}

TEST(DropoutScopeTest, EveryOtherInputGivesAnotherMask) {
  const Shape shape{16, 16};
  const std::vector<double> mask = Dropped(shape, {1, 1, 0, 16});
  EXPECT_EQ(Dropped(shape, {1, 1, 0, 16}), mask);
  EXPECT_NE(Dropped(shape, {2, 1, 0, 16}), mask);
  EXPECT_NE(Dropped(shape, {1, 2, 0, 16}), mask);
  EXPECT_NE(Dropped(shape, {1, 1, 16, 16}), mask);
  EXPECT_NE(Dropped(shape, {1, 1, 0, 16}, {.stream = 1}), mask);
  EXPECT_NE(Dropped(shape, {uint64_t{1} << 40, 1, 0, 16}), Dropped(shape, {uint64_t{1} << 50, 1, 0, 16}));
}

TEST(DropoutScopeTest, Refuses) {
  const TrainingScope training({.seed = 1, .samples = 4});
  const int line = __LINE__ + 1;
  const Var y = ApplyDropout(Ones({6, 2}), {});
  EXPECT_THAT(Message(y), AllOf(HasSubstr("6 rows"), HasSubstr("4 samples"), HasSubstr(Place(__FILE__, line))));
  EXPECT_THAT(Message(ApplyDropout(Ones({}), {})), HasSubstr("scalar"));
  EXPECT_THAT(Message(ApplyDropout(Ones({4, 2}), {.rate = 1})), HasSubstr("rate is 1"));
  EXPECT_THAT(Message(ApplyDropout(Ones({4, 2}), {.rate = -0.5f})), HasSubstr("rate is -0.5"));
  EXPECT_THAT(Message(ApplyDropout(Ones({4, 2}), {.index = Constant({0}, {1}, DType::kI64)})), HasSubstr("i64[1]"));
  EXPECT_THAT(Message(ApplyDropout(Var(), {})), HasSubstr("empty Var"));
}

TEST(DropoutScopeTest, OfNothing) {
  EXPECT_TRUE(Dropped({0, 4}, {.seed = 1}).empty());
  EXPECT_TRUE(Dropped({4, 0}, {.seed = 1}).empty());
}

}  // namespace
}  // namespace gemmill
