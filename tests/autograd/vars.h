// Vars made of plain numbers, and the numbers in them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/var.h"
#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {

inline Var Constant(const std::vector<double>& values, const Shape& shape, DType dtype = DType::kF32) {
  return Var(MakeTensor(values, shape, dtype));
}

inline Var Parameter(const std::vector<double>& values, const Shape& shape, DType dtype = DType::kF32) {
  return Var::Parameter(MakeTensor(values, shape, dtype));
}

// The value; an error fails the test and gives an invalid tensor.
inline Tensor TensorIn(const Var& var) { return ValueOf(var.Value()); }

inline std::vector<double> Read(const Var& var) {
  const Tensor value = TensorIn(var);
  return value.valid() ? Doubles(value) : std::vector<double>{};
}

inline double ReadOne(const Var& var) { return ValueOf(var.Item()); }

inline void ExpectVar(const Var& var, const std::vector<double>& expected, double relative = 1e-6,
                      double absolute = 1e-7) {
  ExpectClose(TensorIn(var), expected, relative, absolute);
}

inline std::string Message(const Var& var) { return Message(var.status()); }

// How messages name line `line` of `file`, given as __FILE__.
inline std::string Place(const std::string& file, int line) {
  return absl::StrCat(file.substr(file.rfind('/') + 1), ":", line);
}

}  // namespace gemmill
