#include "gemmill/examples/memory_options.h"

#include "absl/strings/numbers.h"
#include "gemmill/runtime/status.h"

namespace gemmill::examples {

absl::StatusOr<MemoryOptions> ParseMemoryOptions(const std::string& micro_batch, const std::string& memory_budget,
                                                 bool tune_micro_batch, bool check_numerics) {
  MemoryOptions options{.tune = tune_micro_batch};
  int64_t samples = 0;
  if (micro_batch == "auto") {
    options.micro_batch = MicroBatch::Auto();
  } else if (absl::SimpleAtoi(micro_batch, &samples) && samples >= 0) {
    options.micro_batch = samples;
  } else {
    return InvalidArgument("--micro_batch is \"", micro_batch, "\", expected auto, or a number of samples");
  }
  if (tune_micro_batch && micro_batch != "auto") {
    return InvalidArgument("--tune_micro_batch times sizes, and --micro_batch ", micro_batch,
                           " is one already; give one of them");
  }
  if (check_numerics && (tune_micro_batch || !memory_budget.empty())) {
    return InvalidArgument(tune_micro_batch ? "--tune_micro_batch" : "--memory_budget",
                           " is of recorded steps, and --check_numerics runs eagerly; give one of them");
  }
  absl::StatusOr<MemoryBudget> budget = MemoryBudget::Parse(memory_budget);
  if (!budget.ok()) return Annotate(budget.status(), "--memory_budget: ");
  options.budget = *std::move(budget);
  return options;
}

}  // namespace gemmill::examples
