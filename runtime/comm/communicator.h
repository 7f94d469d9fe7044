// Communicator: what ranks, which each train a share of every global batch, tell one another. Each rank calls the same
// collectives in the same order, with spans of one size; a collective returns when this rank's part of the result is
// there. Ranks are threads (LocalCommunicators); processes come as further implementations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace gemmill {

enum class ReduceOp : uint8_t { kSum, kMin, kMax };

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t world() const = 0;
  // How many ranks share this machine's memory.
  virtual int64_t ranks_on_host() const = 0;

  // `values` of all ranks become their sum, minimum or maximum, the same bits on every rank and in every run. On the
  // host.
  virtual absl::Status AllReduce(absl::Span<float> values, ReduceOp op) = 0;
  virtual absl::Status AllReduce(absl::Span<double> values, ReduceOp op) = 0;
  virtual absl::Status AllReduce(absl::Span<int64_t> values, ReduceOp op) = 0;
  // Of rank `root` to all others.
  virtual absl::Status Broadcast(absl::Span<char> bytes, int64_t root) = 0;
  virtual absl::Status Barrier() = 0;
};

// OK if `mine` is OK on every rank; else this rank's own error, or the first failed rank's, named. Every rank calls it:
// an error on one rank is an error on all, and none waits for another in a collective that does not come.
absl::Status Agree(Communicator& communicator, const absl::Status& mine);

// One communicator for each of `world` threads of this process.
absl::StatusOr<std::vector<std::shared_ptr<Communicator>>> LocalCommunicators(int64_t world);

}  // namespace gemmill
