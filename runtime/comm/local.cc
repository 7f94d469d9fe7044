// Ranks as threads of one process: each reads the others' values where they lie.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "gemmill/runtime/comm/communicator.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

class Meeting {
 public:
  explicit Meeting(int64_t world) : places_(static_cast<size_t>(world)) {}

  struct Place {
    void* data = nullptr;
    size_t size = 0;
  };

  void Leave(int64_t rank, void* data, size_t size) { places_[static_cast<size_t>(rank)] = {data, size}; }
  const std::vector<Place>& places() const { return places_; }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t turn = turn_;
    if (++here_ == places_.size()) {
      here_ = 0;
      ++turn_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(lock, [&] { return turn_ != turn; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<Place> places_;
  size_t here_ = 0;
  int64_t turn_ = 0;
};

template <typename T>
T Combined(T a, T b, ReduceOp op) {
  if (op == ReduceOp::kSum) return a + b;
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Meeting> meeting, int64_t rank, int64_t world)
      : meeting_(std::move(meeting)), rank_(rank), world_(world) {}

  int64_t rank() const override { return rank_; }
  int64_t world() const override { return world_; }
  int64_t ranks_on_host() const override { return world_; }

  absl::Status AllReduce(absl::Span<float> values, ReduceOp op) override { return Reduce(values, op); }
  absl::Status AllReduce(absl::Span<double> values, ReduceOp op) override { return Reduce(values, op); }
  absl::Status AllReduce(absl::Span<int64_t> values, ReduceOp op) override { return Reduce(values, op); }

  absl::Status Broadcast(absl::Span<char> bytes, int64_t root) override {
    GM_RETURN_IF_ERROR(Meet(bytes.data(), bytes.size()));
    if (rank_ != root) {
      const char* const from = static_cast<const char*>(meeting_->places()[static_cast<size_t>(root)].data);
      std::copy_n(from, bytes.size(), bytes.begin());
    }
    return Barrier();
  }

  absl::Status Barrier() override {
    meeting_->Wait();
    return absl::OkStatus();
  }

 private:
  // Every rank's data is there; all see the same sizes, and so fail alike.
  absl::Status Meet(void* data, size_t size) {
    meeting_->Leave(rank_, data, size);
    meeting_->Wait();
    const std::vector<Meeting::Place>& places = meeting_->places();
    const auto other = std::find_if(places.begin(), places.end(),
                                    [&](const Meeting::Place& place) { return place.size != places[0].size; });
    if (other == places.end()) return absl::OkStatus();
    const size_t sizes[] = {places[0].size, other->size};
    meeting_->Wait();  // until all have looked
    return InvalidArgument("a collective of ", sizes[0], " values on rank 0 and of ", sizes[1], " on another");
  }

  // Each rank combines its slice of the values, in the order of ranks, and hands it to all.
  template <typename T>
  absl::Status Reduce(absl::Span<T> values, ReduceOp op) {
    GM_RETURN_IF_ERROR(Meet(values.data(), values.size()));
    const size_t begin = values.size() * static_cast<size_t>(rank_) / static_cast<size_t>(world_);
    const size_t end = values.size() * static_cast<size_t>(rank_ + 1) / static_cast<size_t>(world_);
    const std::vector<Meeting::Place>& places = meeting_->places();
    for (size_t i = begin; i < end; ++i) {
      T combined = static_cast<const T*>(places[0].data)[i];
      for (size_t other = 1; other < places.size(); ++other) {
        combined = Combined(combined, static_cast<const T*>(places[other].data)[i], op);
      }
      for (const Meeting::Place& place : places) static_cast<T*>(place.data)[i] = combined;
    }
    return Barrier();
  }

  const std::shared_ptr<Meeting> meeting_;
  const int64_t rank_;
  const int64_t world_;
};

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<Communicator>>> LocalCommunicators(int64_t world) {
  if (world < 1) return InvalidArgument("world is ", world, ", expected at least 1");
  const auto meeting = std::make_shared<Meeting>(world);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int64_t rank = 0; rank < world; ++rank) {
    ranks.push_back(std::make_shared<LocalCommunicator>(meeting, rank, world));
  }
  return ranks;
}

}  // namespace gemmill
