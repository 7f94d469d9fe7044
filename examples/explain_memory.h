// explain --memory: a dry run of training (layers/training/memory_report.h), by the flags of explain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

struct ExplainMemoryOptions {
  std::vector<int64_t> sizes;
  Activation activation = Activation::kGelu;
  DType dtype = DType::kF32;
  // The loss of outputs and target; the target's spec for a number of samples.
  Loss (*loss)(const Var& outputs, const Var& target) = nullptr;
  FieldSpec target;
  std::string device;
  int64_t global_batch = 0;
  std::string micro_batch;    // "auto", or a number
  std::string memory_budget;  // as --memory_budget, without @FILE
  std::string json;           // file; empty: none
};

absl::Status ExplainMemory(const ExplainMemoryOptions& options);

}  // namespace gemmill::examples
