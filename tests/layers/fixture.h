// The fixtures of tests/oracle (its README says what each holds).
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "gemmill/layers/module.h"
#include "nlohmann/json.hpp"
#include "tests/autograd/vars.h"

namespace gemmill {

inline nlohmann::json ReadFixture(const std::string& name) {
  std::ifstream file(std::string(GEMMILL_SOURCE_DIR) + "/tests/oracle/" + name);
  EXPECT_TRUE(file) << name;
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

inline std::vector<double> FixtureValues(const nlohmann::json& tensor) {
  return tensor["values"].get<std::vector<double>>();
}

inline Tensor FixtureTensor(const nlohmann::json& tensor, DType dtype = DType::kF32) {
  const auto sizes = tensor["shape"].get<std::vector<int64_t>>();
  return MakeTensor(FixtureValues(tensor), Shape(sizes.begin(), sizes.end()), dtype);
}

inline void ExpectFixture(const Var& var, const nlohmann::json& tensor, double relative, double absolute) {
  EXPECT_EQ(var.shape(), FixtureTensor(tensor).shape());
  ExpectVar(var, FixtureValues(tensor), relative, absolute);
}

// Overwrites a parameter.
inline void SetValue(const Var& parameter, const Tensor& value) {
  Tensor stored = TensorIn(parameter);
  EXPECT_EQ(stored.spec(), value.spec());
  EXPECT_TRUE(stored.CopyFrom(value).ok());
}

}  // namespace gemmill
