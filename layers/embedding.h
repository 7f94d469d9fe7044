// Embedding: a learnt row for each index.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gemmill/layers/initialize.h"
#include "gemmill/layers/module.h"

namespace gemmill {

struct EmbeddingOptions {
  int64_t rows = 0;  // the vocabulary
  int64_t width = 0;
  double deviation = 1;  // rows start as N(0, deviation^2)
};

// index i32 or i64 [...] -> [..., width]. Parameter: weight [rows, width]. An index outside [0, rows) is an error.
class Embedding : public Module {
 public:
  static absl::StatusOr<Embedding> Create(const EmbeddingOptions& options, const InitOptions& init = {});
  Var operator()(Located index) const;

  const Var& weight() const { return weight_; }  // to tie an output layer to: Linear::FromParameters

 private:
  explicit Embedding(Var weight);

  Var weight_;
};

}  // namespace gemmill
