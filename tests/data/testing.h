// What several tests of data/ need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gemmill/data/dataset.h"
#include "gemmill/runtime/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {

// The value, which is expected to be there.
template <typename T>
T Must(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return std::move(value).value();
}

// The message of an error, which is expected.
template <typename T>
std::string Error(const absl::StatusOr<T>& value) {
  EXPECT_FALSE(value.ok());
  return std::string(value.status().message());
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return Must(tensor.ToVector<T>());
}

// Samples 0, 1, ..., each with its own number as "x" f32 [n, 1] and as "label" i64 [n].
inline Dataset Numbered(int64_t samples) {
  std::vector<float> x;
  std::vector<int64_t> label;
  for (int64_t i = 0; i < samples; ++i) {
    x.push_back(static_cast<float>(i));
    label.push_back(i);
  }
  return Must(
      Dataset::Create({{"x", Must(Tensor::From(x, {samples, 1}))}, {"label", Must(Tensor::From(label, {samples}))}}));
}

// A directory of its own for each test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = ::testing::TempDir() + "gemmill_data_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace gemmill
