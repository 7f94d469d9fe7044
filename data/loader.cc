#include "gemmill/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/types/span.h"
#include "gemmill/data/order.h"
#include "gemmill/runtime/status.h"

namespace gemmill {

absl::StatusOr<Tensor> Batch::operator[](absl::string_view name) const {
  GM_RETURN_IF_ERROR(status);
  return FindField(fields, name);
}

// Reads batches one after another; with prefetch, in a thread of its own that starts with the first batch asked for.
class Loader::Reader {
 public:
  Reader(std::shared_ptr<const SampleSource> source, int64_t size, const LoaderOptions& options)
      : source_(std::move(source)), size_(size), options_(options) {}

  ~Reader() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Batch Next() {
    if (options_.prefetch == 0 || !StartThread()) {
      Batch batch = Read(position_);
      position_ = batch.next;
      return batch;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty(); });
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    position_ = batch.next;
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

  BatchPosition position() const { return position_; }

  absl::Status Seek(BatchPosition position) {
    constexpr int64_t kMaxEpoch = int64_t{1} << 62;
    if (position.epoch < 0 || position.epoch > kMaxEpoch || position.first_sample < 0 ||
        position.first_sample > size_) {
      return OutOfRange("position is epoch ", position.epoch, ", sample ", position.first_sample,
                        "; expected 0 <= epoch <= 2^62 and 0 <= sample <= ", size_);
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      position_ = Normalized(position);
      ready_.clear();
      ++seeks_;
      ahead_ = position_;
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  int64_t batches_per_epoch() const {
    const int64_t full = size_ / options_.global_batch;
    return options_.drop_last || size_ % options_.global_batch == 0 ? full : full + 1;
  }
  const LoaderOptions& options() const { return options_; }

 private:
  // The next epoch's start where this epoch has no batch left.
  BatchPosition Normalized(BatchPosition position) const {
    const int64_t left = size_ - position.first_sample;
    if (left < (options_.drop_last ? options_.global_batch : 1)) return {position.epoch + 1, 0};
    return position;
  }

  Batch Read(BatchPosition position) {
    Batch batch;
    batch.position = position;
    batch.global_samples = std::min(options_.global_batch, size_ - position.first_sample);
    batch.next = Normalized({position.epoch, position.first_sample + batch.global_samples});
    batch.last_in_epoch = batch.next.epoch != position.epoch;
    const Share share = RankShare(batch.global_samples, options_.rank, options_.world);
    batch.rank_offset = share.begin;
    batch.samples = share.end - share.begin;
    batch.status = CatchExceptions([&] { return Fill(batch); });
    if (!batch.status.ok()) {
      batch.fields.clear();
      batch.samples = 0;
      batch.next = position;
      batch.last_in_epoch = false;
    }
    return batch;
  }

  absl::Status Fill(Batch& batch) {
    if (order_epoch_ != batch.position.epoch) {
      order_epoch_ = -1;
      order_ = EpochOrder(size_, options_.shuffle, options_.seed, batch.position.epoch);
      order_epoch_ = batch.position.epoch;
    }
    const absl::Span<const int64_t> index(order_.data() + batch.position.first_sample + batch.rank_offset,
                                          static_cast<size_t>(batch.samples));
    GM_ASSIGN_OR_RETURN(batch.index, Tensor::From(index, {batch.samples}));
    GM_ASSIGN_OR_RETURN(batch.fields, source_->Gather(index));
    return absl::OkStatus();
  }

  // False where the system has no thread left: then each batch is read when it is asked for.
  bool StartThread() {
    if (thread_.joinable()) return true;
    ahead_ = position_;
    try {
      thread_ = std::thread([this] { ReadAhead(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  void ReadAhead() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || RoomAhead(); });
      if (stop_) return;
      const int64_t seeks = seeks_;
      const BatchPosition position = ahead_;
      lock.unlock();
      Batch batch = Read(position);
      lock.lock();
      if (seeks != seeks_) continue;  // read for a place that was left meanwhile
      ahead_ = batch.next;
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  }

  // A failed batch is tried again only once it has been handed out.
  bool RoomAhead() const {
    return static_cast<int64_t>(ready_.size()) < options_.prefetch && (ready_.empty() || ready_.back().status.ok());
  }

  const std::shared_ptr<const SampleSource> source_;
  const int64_t size_;
  const LoaderOptions options_;
  BatchPosition position_;  // of the user: the batch to hand out next

  // Of whoever reads: the thread, or Next without one.
  std::vector<int64_t> order_;
  int64_t order_epoch_ = -1;

  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  BatchPosition ahead_;  // the batch to read next
  int64_t seeks_ = 0;
  bool stop_ = false;
};

absl::StatusOr<Loader> Loader::Create(Dataset dataset, const LoaderOptions& options) {
  return Create(std::make_shared<const Dataset>(std::move(dataset)), options);
}

absl::StatusOr<Loader> Loader::Create(std::shared_ptr<const SampleSource> source, const LoaderOptions& options) {
  if (source == nullptr) return InvalidArgument("the source of samples is null");
  const int64_t size = source->size();
  if (size < 1) return InvalidArgument("the data set has ", size, " samples, expected at least 1");
  if (options.world < 1) return InvalidArgument("world is ", options.world, ", expected at least 1");
  if (options.rank < 0 || options.rank >= options.world) {
    return InvalidArgument("rank is ", options.rank, ", expected 0 to ", options.world - 1, " in a world of ",
                           options.world);
  }
  if (options.global_batch < 1 || options.global_batch > size) {
    return InvalidArgument("global_batch is ", options.global_batch, ", expected 1 to the data set's ", size,
                           " samples");
  }
  if (options.global_batch < options.world) {
    return InvalidArgument("global_batch is ", options.global_batch, ", less than the ", options.world,
                           " ranks that share it");
  }
  if (options.prefetch < 0) return InvalidArgument("prefetch is ", options.prefetch, ", expected 0 or more batches");
  return Loader(std::make_unique<Reader>(std::move(source), size, options));
}

Loader::Loader(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

Batch Loader::Next() { return reader_->Next(); }
BatchPosition Loader::position() const { return reader_->position(); }
absl::Status Loader::Seek(BatchPosition position) { return reader_->Seek(position); }
int64_t Loader::batches_per_epoch() const { return reader_->batches_per_epoch(); }
const LoaderOptions& Loader::options() const { return reader_->options(); }

}  // namespace gemmill
