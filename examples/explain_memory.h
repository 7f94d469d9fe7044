// explain --memory: a dry run of training (layers/training/memory_report.h), by the flags of explain.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gemmill/gemmill.h"

namespace gemmill::examples {

// A model that is only looked at, with weights that take no memory.
struct ExplainedModel {
  std::shared_ptr<const Module> module;
  LossFunction loss;
  std::vector<FieldSpec> fields;
};
using ExplainedModelOf = std::function<absl::StatusOr<ExplainedModel>(DType dtype)>;

struct ExplainMemoryOptions {
  ExplainedModelOf model;
  DType dtype = DType::kF32;
  std::string device;
  int64_t global_batch = 0;
  std::string micro_batch;    // "auto", or a number
  std::string memory_budget;  // as --memory_budget, without @FILE
  std::string json;           // file; empty: none
};

absl::Status ExplainMemory(const ExplainMemoryOptions& options);

}  // namespace gemmill::examples
