#include "gemmill/runtime/comm/communicator.h"

#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

using testing::Each;
using testing::HasSubstr;

// Runs `rank` on as many threads.
void OnRanks(int64_t world, const std::function<void(Communicator&)>& rank) {
  const auto communicators = LocalCommunicators(world).value();
  std::vector<std::thread> threads;
  for (const auto& communicator : communicators) threads.emplace_back([&] { rank(*communicator); });
  for (std::thread& thread : threads) thread.join();
}

TEST(LocalCommunicator, ReducesToTheSameBitsOnEveryRank) {
  for (int64_t world : {1, 2, 3, 4}) {
    for (size_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::vector<float>> sums(static_cast<size_t>(world));
      OnRanks(world, [&](Communicator& communicator) {
        for (int round = 0; round < 20; ++round) {
          std::vector<float> values(count);
          std::iota(values.begin(), values.end(), 0.1f * static_cast<float>(communicator.rank() + 1));
          EXPECT_TRUE(communicator.AllReduce(absl::MakeSpan(values), ReduceOp::kSum).ok());
          sums[static_cast<size_t>(communicator.rank())] = values;
        }
      });
      EXPECT_THAT(sums, Each(sums[0]));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(
            sums[0][i],
            static_cast<double>(world) * static_cast<double>(i) + 0.05 * static_cast<double>(world * (world + 1)),
            1e-3);
      }
    }
  }
}

TEST(LocalCommunicator, MinimaMaximaAndBroadcasts) {
  OnRanks(3, [](Communicator& communicator) {
    int64_t least = 10 + communicator.rank();
    double most = static_cast<double>(communicator.rank());
    char letter = static_cast<char>('a' + communicator.rank());
    EXPECT_TRUE(communicator.AllReduce(absl::MakeSpan(&least, 1), ReduceOp::kMin).ok());
    EXPECT_TRUE(communicator.AllReduce(absl::MakeSpan(&most, 1), ReduceOp::kMax).ok());
    EXPECT_TRUE(communicator.Broadcast(absl::MakeSpan(&letter, 1), 1).ok());
    EXPECT_TRUE(communicator.Barrier().ok());
    EXPECT_EQ(least, 10);
    EXPECT_EQ(most, 2);
    EXPECT_EQ(letter, 'b');
  });
}

TEST(LocalCommunicator, DifferentSizesAreAnErrorOnEveryRank) {
  OnRanks(3, [](Communicator& communicator) {
    std::vector<float> values(communicator.rank() == 1 ? 5 : 4);
    EXPECT_THAT(Message(communicator.AllReduce(absl::MakeSpan(values), ReduceOp::kSum)), HasSubstr("4 values"));
    EXPECT_TRUE(communicator.Barrier().ok());
  });
}

TEST(Agree, AnErrorOnOneRankIsAnErrorOnAll) {
  OnRanks(4, [](Communicator& communicator) {
    EXPECT_TRUE(Agree(communicator, absl::OkStatus()).ok());
    const bool fails = communicator.rank() >= 2;
    const absl::Status mine = fails ? absl::InternalError("lost a wheel") : absl::OkStatus();
    const absl::Status all = Agree(communicator, mine);
    if (fails) {
      EXPECT_EQ(all, mine);
    } else {
      EXPECT_THAT(Message(all), testing::AllOf(HasSubstr("rank 2 of 4"), HasSubstr("lost a wheel")));
    }
  });
}

TEST(LocalCommunicators, AreOneOrMore) { EXPECT_FALSE(LocalCommunicators(0).ok()); }

}  // namespace
}  // namespace gemmill
