#include "gemmill/data/loader.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tests/data/testing.h"

namespace gemmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Loader Make(int64_t samples, const LoaderOptions& options) { return Must(Loader::Create(Numbered(samples), options)); }

// The samples of the rest of an epoch, in order.
std::vector<int64_t> Epoch(Loader& loader) {
  std::vector<int64_t> samples;
  for (const Batch& batch : loader) {
    EXPECT_TRUE(batch.status.ok()) << batch.status;
    const std::vector<int64_t> index = Values<int64_t>(batch.index);
    EXPECT_EQ(index, Values<int64_t>(Must(batch["label"])));
    EXPECT_EQ(static_cast<int64_t>(index.size()), batch.samples);
    samples.insert(samples.end(), index.begin(), index.end());
  }
  return samples;
}

std::vector<int64_t> Sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> UpTo(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(LoaderTest, EveryEpochVisitsEverySampleOnceInItsOwnOrder) {
  for (int64_t prefetch : {0, 1, 3}) {
    Loader loader = Make(23, {.global_batch = 5, .seed = 1, .prefetch = prefetch});
    const std::vector<int64_t> first = Epoch(loader);
    const std::vector<int64_t> second = Epoch(loader);
    EXPECT_EQ(Sorted(first), UpTo(23));
    EXPECT_EQ(Sorted(second), UpTo(23));
    EXPECT_NE(first, second);
    EXPECT_NE(first, UpTo(23));
  }
}

TEST(LoaderTest, TheSameSeedGivesTheSameBatchesWhateverIsReadAhead) {
  Loader a = Make(50, {.global_batch = 8, .seed = 4, .prefetch = 0});
  Loader b = Make(50, {.global_batch = 8, .seed = 4, .prefetch = 4});
  Loader other = Make(50, {.global_batch = 8, .seed = 5});
  const std::vector<int64_t> first = Epoch(a);
  EXPECT_EQ(first, Epoch(b));
  EXPECT_NE(first, Epoch(other));
  EXPECT_EQ(Epoch(a), Epoch(b));
}

TEST(LoaderTest, WithoutShuffleSamplesComeInOrder) {
  Loader loader = Make(7, {.global_batch = 3, .shuffle = false});
  EXPECT_EQ(Epoch(loader), UpTo(7));
  EXPECT_EQ(Epoch(loader), UpTo(7));
}

TEST(LoaderTest, TheLastBatchIsShortOrDropped) {
  const auto sizes = [](Loader loader) {
    std::vector<int64_t> result;
    for (const Batch& batch : loader) {
      result.push_back(batch.samples);
      EXPECT_EQ(batch.last_in_epoch, static_cast<int64_t>(result.size()) == loader.batches_per_epoch());
    }
    return result;
  };
  EXPECT_THAT(sizes(Make(10, {.global_batch = 4})), ElementsAre(4, 4, 2));
  EXPECT_THAT(sizes(Make(10, {.global_batch = 4, .drop_last = true})), ElementsAre(4, 4));
  EXPECT_THAT(sizes(Make(8, {.global_batch = 4})), ElementsAre(4, 4));
  EXPECT_THAT(sizes(Make(8, {.global_batch = 4, .drop_last = true})), ElementsAre(4, 4));
  EXPECT_THAT(sizes(Make(3, {.global_batch = 3})), ElementsAre(3));
}

TEST(LoaderTest, DropLastLeavesOutDifferentSamplesInEachEpoch) {
  Loader loader = Make(10, {.global_batch = 4, .seed = 2, .drop_last = true});
  EXPECT_NE(Sorted(Epoch(loader)), Sorted(Epoch(loader)));
}

TEST(LoaderTest, ABatchCarriesItsPlace) {
  Loader loader = Make(10, {.global_batch = 4, .shuffle = false});
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(loader.Next());
  EXPECT_EQ(batches[2].position, (BatchPosition{0, 8}));
  EXPECT_EQ(batches[2].next, (BatchPosition{1, 0}));
  EXPECT_TRUE(batches[2].last_in_epoch);
  EXPECT_EQ(batches[3].position, (BatchPosition{1, 0}));
  EXPECT_EQ(batches[3].next, (BatchPosition{1, 4}));
  EXPECT_EQ(loader.position(), (BatchPosition{1, 4}));
  EXPECT_THAT(Values<float>(Must(batches[1]["x"])), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Error(batches[1]["y"]), HasSubstr("no field 'y'"));
}

// Every place of three epochs, though other batches had been read ahead.
TEST(LoaderTest, ResumesAtTheNextSample) {
  for (bool drop_last : {false, true}) {
    const LoaderOptions options{.global_batch = 4, .seed = 9, .drop_last = drop_last, .prefetch = 3};
    Loader whole = Make(10, options);
    std::vector<Batch> batches;
    for (int i = 0; i < 9; ++i) batches.push_back(whole.Next());
    for (size_t trained = 0; trained < batches.size(); ++trained) {
      Loader resumed = Make(10, options);
      EXPECT_TRUE(resumed.Seek(batches[trained].next).ok());
      EXPECT_EQ(resumed.position(), batches[trained].next);
      for (size_t i = trained + 1; i < batches.size(); ++i) {
        const Batch batch = resumed.Next();
        EXPECT_EQ(batch.position, batches[i].position);
        EXPECT_EQ(Values<float>(Must(batch["x"])), Values<float>(Must(batches[i]["x"])));
      }
    }
  }
}

TEST(LoaderTest, SeekInTheMiddleDiscardsWhatWasReadAhead) {
  Loader loader = Make(12, {.global_batch = 3, .seed = 3, .prefetch = 2});
  const std::vector<int64_t> first = Epoch(loader);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(loader.Seek({0, 3}).ok());
    EXPECT_EQ(Epoch(loader), std::vector<int64_t>(first.begin() + 3, first.end()));
    EXPECT_EQ(loader.position(), (BatchPosition{1, 0}));
  }
}

TEST(LoaderTest, ALoopThatWasLeftGoesOnWhereItStopped) {
  Loader loader = Make(9, {.global_batch = 2, .shuffle = false});
  for (const Batch& batch : loader) {
    if (batch.position.first_sample == 2) break;
  }
  EXPECT_THAT(Epoch(loader), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_EQ(Epoch(loader), UpTo(9));
}

TEST(LoaderTest, SeekToAnEpochsEndIsTheNextEpochsStart) {
  Loader loader = Make(10, {.global_batch = 4, .shuffle = false});
  EXPECT_TRUE(loader.Seek({2, 10}).ok());
  EXPECT_EQ(loader.position(), (BatchPosition{3, 0}));
  Loader dropping = Make(10, {.global_batch = 4, .shuffle = false, .drop_last = true});
  EXPECT_TRUE(dropping.Seek({2, 7}).ok());
  EXPECT_EQ(dropping.position(), (BatchPosition{3, 0}));
}

TEST(LoaderTest, SeekRefusesPlacesThatAreNone) {
  Loader loader = Make(10, {.global_batch = 4});
  EXPECT_THAT(loader.Seek({-1, 0}).message(), HasSubstr("epoch -1, sample 0"));
  EXPECT_THAT(loader.Seek({0, -2}).message(), HasSubstr("sample -2"));
  EXPECT_THAT(loader.Seek({0, 11}).message(),
              HasSubstr("sample 11; expected 0 <= epoch <= 2^62 and 0 <= sample <= 10"));
  EXPECT_THAT(loader.Seek({std::numeric_limits<int64_t>::max(), 0}).message(), HasSubstr("epoch 9223372036854775807"));
  EXPECT_EQ(loader.position(), (BatchPosition{0, 0}));
}

// Ranks together see what one process sees, in every epoch, whatever the sizes.
TEST(LoaderTest, RanksPartitionEveryGlobalBatch) {
  for (int64_t world : {2, 3, 4}) {
    for (bool drop_last : {false, true}) {
      const LoaderOptions options{.global_batch = 6, .seed = 8, .drop_last = drop_last};
      Loader single = Make(19, options);  // the last batch has 1 sample
      std::vector<Loader> ranks;
      for (int64_t rank = 0; rank < world; ++rank) {
        LoaderOptions own = options;
        own.rank = rank;
        own.world = world;
        ranks.push_back(Make(19, own));
      }
      for (int i = 0; i < 9; ++i) {
        const Batch expected = single.Next();
        std::vector<int64_t> joined;
        for (Loader& loader : ranks) {
          const Batch batch = loader.Next();
          EXPECT_EQ(batch.position, expected.position);
          EXPECT_EQ(batch.next, expected.next);
          EXPECT_EQ(batch.last_in_epoch, expected.last_in_epoch);
          EXPECT_EQ(batch.global_samples, expected.samples);
          EXPECT_EQ(batch.rank_offset, static_cast<int64_t>(joined.size()));
          EXPECT_LE(batch.samples, (expected.samples + world - 1) / world);
          const std::vector<int64_t> index = Values<int64_t>(batch.index);
          joined.insert(joined.end(), index.begin(), index.end());
        }
        EXPECT_EQ(joined, Values<int64_t>(expected.index));
      }
    }
  }
}

TEST(LoaderTest, AShortLastBatchLeavesSomeRanksWithAnEmptyOne) {
  Loader loader = Make(9, {.global_batch = 4, .rank = 3, .world = 4});
  Batch last;
  int64_t batches = 0;
  for (const Batch& batch : loader) {
    last = batch;
    ++batches;
  }
  EXPECT_EQ(batches, 3);
  EXPECT_TRUE(last.last_in_epoch);
  EXPECT_EQ(last.samples, 0);
  EXPECT_EQ(last.global_samples, 1);
  EXPECT_EQ(Must(last["x"]).spec().ToString(), "f32[0, 1]");
  EXPECT_EQ(last.index.spec().ToString(), "i64[0]");
}

TEST(LoaderTest, RefusesSizesThatCannotBe) {
  const auto error = [](const LoaderOptions& options) { return Error(Loader::Create(Numbered(10), options)); };
  EXPECT_THAT(Error(Loader::Create(std::shared_ptr<const SampleSource>(), {.global_batch = 1})), HasSubstr("null"));
  EXPECT_THAT(error({}), HasSubstr("global_batch is 0, expected 1 to the data set's 10 samples"));
  EXPECT_THAT(error({.global_batch = -5}), HasSubstr("global_batch is -5"));
  EXPECT_THAT(error({.global_batch = 11}), HasSubstr("global_batch is 11, expected 1 to the data set's 10 samples"));
  EXPECT_THAT(error({.global_batch = 4, .rank = 2, .world = 2}), HasSubstr("rank is 2, expected 0 to 1"));
  EXPECT_THAT(error({.global_batch = 4, .rank = -1, .world = 2}), HasSubstr("rank is -1"));
  EXPECT_THAT(error({.global_batch = 4, .world = 0}), HasSubstr("world is 0"));
  EXPECT_THAT(error({.global_batch = 4, .world = 5}), HasSubstr("global_batch is 4, less than the 5 ranks"));
  EXPECT_THAT(error({.global_batch = 4, .prefetch = -1}), HasSubstr("prefetch is -1"));
}

TEST(LoaderTest, BatchesPerEpoch) {
  EXPECT_EQ(Make(10, {.global_batch = 4}).batches_per_epoch(), 3);
  EXPECT_EQ(Make(10, {.global_batch = 4, .drop_last = true}).batches_per_epoch(), 2);
  EXPECT_EQ(Make(8, {.global_batch = 4}).batches_per_epoch(), 2);
}

// Fails `failures` times when the sample `bad` is asked for, and counts what is read.
class FailingSource : public SampleSource {
 public:
  FailingSource(int64_t bad, int failures) : bad_(bad), failures_(failures) {}

  int64_t size() const override { return dataset_.size(); }
  absl::StatusOr<std::vector<Field>> Gather(absl::Span<const int64_t> index) const override {
    ++reads;
    if (std::find(index.begin(), index.end(), bad_) != index.end() && failures_-- > 0) {
      return absl::DataLossError("disk 7 is gone");
    }
    return dataset_.Gather(index);
  }

  mutable std::atomic<int> reads = 0;

 private:
  Dataset dataset_ = Numbered(12);
  int64_t bad_;
  mutable std::atomic<int> failures_;
};

TEST(LoaderTest, AFailedReadIsABatchWithAnErrorAndCanBeTriedAgain) {
  for (int64_t prefetch : {0, 1, 4}) {
    Loader loader = Must(Loader::Create(std::make_shared<FailingSource>(5, 2),
                                        {.global_batch = 3, .shuffle = false, .prefetch = prefetch}));
    for (int attempt = 0; attempt < 2; ++attempt) {
      Batch last;
      for (const Batch& batch : loader) last = batch;
      EXPECT_EQ(last.status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(Error(last["x"]), HasSubstr("disk 7"));
      EXPECT_EQ(last.position, (BatchPosition{0, 3}));
      EXPECT_EQ(loader.position(), last.position);
      EXPECT_EQ(last.samples, 0);
    }
    EXPECT_THAT(Epoch(loader), ElementsAre(3, 4, 5, 6, 7, 8, 9, 10, 11));
  }
}

// Throws when the samples are asked for for the first time.
class ThrowingSource : public SampleSource {
 public:
  explicit ThrowingSource(std::function<void()> thrower) : thrower_(std::move(thrower)) {}

  int64_t size() const override { return dataset_.size(); }
  absl::StatusOr<std::vector<Field>> Gather(absl::Span<const int64_t> index) const override {
    if (!thrown_.exchange(true)) thrower_();
    return dataset_.Gather(index);
  }

 private:
  Dataset dataset_ = Numbered(4);
  std::function<void()> thrower_;
  mutable std::atomic<bool> thrown_ = false;
};

TEST(LoaderTest, WhatASourceThrowsIsTheBatchsError) {
  for (int64_t prefetch : {0, 2}) {
    const auto status_of = [&](std::function<void()> thrower) {
      Loader loader = Must(Loader::Create(std::make_shared<ThrowingSource>(std::move(thrower)),
                                          {.global_batch = 2, .shuffle = false, .prefetch = prefetch}));
      const absl::Status status = loader.Next().status;
      EXPECT_EQ(Epoch(loader), UpTo(4));
      return status;
    };
    EXPECT_THAT(status_of([] { throw std::runtime_error("disk 7 is gone"); }).message(), HasSubstr("disk 7 is gone"));
    EXPECT_EQ(status_of([] { throw std::bad_alloc(); }).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(status_of([] { throw 7; }).ok());
  }
}

TEST(LoaderTest, DestructionInTheMiddleOfAnEpochDoesNotReadOn) {
  for (int taken = 0; taken < 4; ++taken) {
    const auto source = std::make_shared<FailingSource>(-1, 0);
    {
      Loader loader = Must(Loader::Create(source, {.global_batch = 1, .prefetch = 2}));
      for (int i = 0; i < taken; ++i) loader.Next();
    }
    EXPECT_LE(source->reads, taken == 0 ? 0 : taken + 3);
    EXPECT_EQ(source.use_count(), 1);
  }
}

TEST(LoaderTest, MovesWhileReadingAhead) {
  Loader loader = Make(20, {.global_batch = 2, .shuffle = false, .prefetch = 3});
  loader.Next();
  Loader moved = std::move(loader);
  EXPECT_EQ(Values<int64_t>(moved.Next().index), (std::vector<int64_t>{2, 3}));
  moved = Make(5, {.global_batch = 5, .shuffle = false});
  EXPECT_EQ(Epoch(moved), UpTo(5));
}

}  // namespace
}  // namespace gemmill
