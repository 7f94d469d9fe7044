// Mixture-of-Experts blocks for tests.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "gemmill/layers/auxiliary.h"
#include "gemmill/layers/moe.h"
#include "tests/layers/fixture.h"
#include "tests/layers/training.h"

namespace gemmill {

inline Moe MakeMoe(const MoeOptions& options, const InitOptions& init = {.seed = 1}) {
  absl::StatusOr<Moe> moe = Moe::Create(options, init);
  EXPECT_TRUE(moe.ok()) << moe.status();
  return *std::move(moe);
}

inline void Set(const Module& module, const std::string& name, const std::vector<double>& values) {
  const Var parameter = module.parameter(name);
  SetValue(parameter, MakeTensor(values, parameter.shape(), parameter.dtype()));
}

inline std::vector<double> Identity(int64_t size, double diagonal = 1) {
  std::vector<double> values(static_cast<size_t>(size * size), 0);
  for (int64_t i = 0; i < size; ++i) values[static_cast<size_t>(i * size + i)] = diagonal;
  return values;
}

// A block whose input's columns are the logits of as many experts, and whose output's columns are their weights:
// experts compute relu(sum_i x_i 0 + 1), with a last column of ones in the input.
inline Moe RevealingMoe(MoeOptions options) {
  const int64_t experts = options.experts;
  const int64_t width = experts + 1;
  options.hidden = width;
  options.ffn = 1;
  options.activation = Activation::kRelu;
  options.gated = false;
  Moe moe = MakeMoe(options);
  std::vector<double> router, fc1, fc2;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t i = 0; i < width; ++i) {
      router.push_back(i == e ? 1 : 0);
      fc1.push_back(i == experts ? 1 : 0);
      fc2.push_back(i == e ? 1 : 0);
    }
  }
  Set(moe, "router.weight", router);
  Set(moe, "experts.fc1", fc1);
  Set(moe, "experts.fc2", fc2);
  return moe;
}

// An input of RevealingMoe with these logits.
inline Tensor Logits(const std::vector<std::vector<double>>& tokens) {
  std::vector<double> values;
  for (const std::vector<double>& logits : tokens) {
    values.insert(values.end(), logits.begin(), logits.end());
    values.push_back(1);
  }
  const int64_t width = tokens.empty() ? 1 : static_cast<int64_t>(tokens[0].size()) + 1;
  return MakeTensor(values, {static_cast<int64_t>(tokens.size()), width});
}

// Logits that choose one expert each.
inline std::vector<std::vector<double>> Choosing(const std::vector<int64_t>& experts, int64_t count) {
  std::vector<std::vector<double>> tokens;
  for (const int64_t expert : experts) {
    tokens.emplace_back(static_cast<size_t>(count), 0);
    tokens.back()[static_cast<size_t>(expert)] = 5;
  }
  return tokens;
}

}  // namespace gemmill
