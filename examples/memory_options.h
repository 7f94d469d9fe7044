// The flags of the training examples that are about memory.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

struct MemoryOptions {
  MicroBatch micro_batch;
  MemoryBudget budget;
  bool tune = false;
};

// Of --micro_batch, --memory_budget, --tune_micro_batch and --check_numerics; contradictory ones are named.
absl::StatusOr<MemoryOptions> ParseMemoryOptions(const std::string& micro_batch, const std::string& memory_budget,
                                                 bool tune_micro_batch, bool check_numerics);

}  // namespace gemmill::examples
