// Loader: a data set as a sequence of batches, shuffled anew in every epoch, divided among ranks and read ahead by a
// thread.
//
//   GM_ASSIGN_OR_RETURN(Loader loader, Loader::Create(train, {.global_batch = 128, .seed = 1}));
//   for (int64_t epoch = 0; epoch < 5; ++epoch) {
//     for (const Batch& batch : loader) {                                 // one epoch
//       GM_ASSIGN_OR_RETURN(StepReport step, trainer.Step(batch));
//     }
//   }
//
// The sequence is a pure function of (samples, options.shuffle, options.seed, position): the same seed gives the same
// batches on every machine, and a run that saves `batch.next` with its weights and seeks to it later goes on at the
// next sample, whatever was read ahead in the meantime. Ranks see the same sequence of global batches, each rank its
// own part.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/data/dataset.h"

namespace gemmill {

// A place in the sequence of samples of all ranks.
struct BatchPosition {
  int64_t epoch = 0;
  int64_t first_sample = 0;  // within the epoch's order
  bool operator==(const BatchPosition&) const = default;
};

// One rank's part of a global batch.
struct Batch {
  absl::Status status = {};        // not OK: reading failed, and there are no fields
  std::vector<Field> fields = {};  // on the CPU, each of `samples` samples
  Tensor index = {};               // i64 [samples]: which samples of the data set these are
  int64_t samples = 0;             // may be 0 where the last global batch has fewer samples than there are ranks
  int64_t global_samples = 0;      // of all ranks together
  int64_t rank_offset = 0;         // this rank's first sample within the global batch
  BatchPosition position = {};     // of the global batch
  BatchPosition next = {};         // of the one after it; `position` itself if reading failed
  bool last_in_epoch = false;

  // The values of a field; the batch's error if it has one.
  absl::StatusOr<Tensor> operator[](absl::string_view name) const;
};

struct LoaderOptions {
  int64_t global_batch = 0;  // samples per step of all ranks together; at least `world`, at most the data set
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;  // leave out the epoch's last samples where they do not fill a global batch
  int64_t rank = 0;        // this process's number, and how many processes share the data
  int64_t world = 1;
  int64_t prefetch = 2;  // batches to read ahead; 0 reads each when it is asked for, without a thread
};

class Loader {
 public:
  static absl::StatusOr<Loader> Create(Dataset dataset, const LoaderOptions& options);
  static absl::StatusOr<Loader> Create(std::shared_ptr<const SampleSource> source, const LoaderOptions& options);

  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();  // waits for the read in progress, not for the epoch

  class Iterator;
  // The rest of the current epoch: all of it, unless a loop was left before its end or Seek set another place. A batch
  // whose reading failed ends the loop; the next loop tries it again.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // The next batch, on and on through the epochs.
  Batch Next();

  // Where the batch that Next would return begins.
  BatchPosition position() const;
  // Continues at `position`, say at `next` of the last batch that was trained on.
  absl::Status Seek(BatchPosition position);

  // Global batches of a whole epoch.
  int64_t batches_per_epoch() const;
  const LoaderOptions& options() const;

 private:
  class Reader;
  explicit Loader(std::unique_ptr<Reader> reader);

  std::unique_ptr<Reader> reader_;
};

class Loader::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = const Batch*;
  using reference = const Batch&;

  explicit Iterator(Loader* loader) : loader_(loader), batch_(loader->Next()) {}

  const Batch& operator*() const { return batch_; }
  const Batch* operator->() const { return &batch_; }
  Iterator& operator++() {
    at_end_ = batch_.last_in_epoch || !batch_.status.ok();
    if (!at_end_) batch_ = loader_->Next();
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return at_end_; }

 private:
  Loader* loader_;
  Batch batch_;
  bool at_end_ = false;
};

inline Loader::Iterator Loader::begin() { return Iterator(this); }

}  // namespace gemmill
