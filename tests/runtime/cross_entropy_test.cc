#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64};

struct Expected {
  double sum = 0;
  double count = 0;
  std::vector<double> logsumexp;
  std::vector<double> dlogits;
};

Expected Reference(const std::vector<double>& x, const std::vector<double>& labels, int64_t classes,
                   const op::CrossEntropy& op, double dsum) {
  const double smoothing = static_cast<double>(op.label_smoothing);
  const size_t n = static_cast<size_t>(classes);
  Expected expected;
  for (size_t row = 0; row < labels.size(); ++row) {
    const double* logits = x.data() + row * n;
    const double max = *std::max_element(logits, logits + n);
    double total = 0;
    double mean = 0;
    for (size_t c = 0; c < n; ++c) {
      total += std::exp(logits[c] - max);
      mean += logits[c] / static_cast<double>(n);
    }
    const double logsumexp = max + std::log(total);
    expected.logsumexp.push_back(logsumexp);
    const bool counted = static_cast<int64_t>(labels[row]) != op.ignore_index;
    const size_t label = counted ? static_cast<size_t>(labels[row]) : 0;
    for (size_t c = 0; c < n; ++c) {
      const double target = smoothing / static_cast<double>(n) + (c == label ? 1 - smoothing : 0);
      expected.dlogits.push_back(counted ? dsum * (std::exp(logits[c] - logsumexp) - target) : 0);
    }
    if (!counted) continue;
    expected.count += 1;
    expected.sum += (1 - smoothing) * (logsumexp - logits[label]) + smoothing * (logsumexp - mean);
  }
  return expected;
}

std::vector<double> RandomLabels(int64_t rows, int64_t classes, int64_t ignore_index) {
  std::vector<double> labels;
  for (double value : RandomDoubles(rows, 0, 1.25, 7)) {
    labels.push_back(value < 1 ? std::floor(value * static_cast<double>(classes)) : static_cast<double>(ignore_index));
  }
  return labels;
}

TEST(CrossEntropy, ManyShapes) {
  const Shape shapes[] = {{1, 1}, {5, 2}, {128, 10}, {3, 16}, {7, 17}, {2, 1000}, {3000, 33}, {0, 5}};
  for (DType dtype : kDTypes) {
    for (DType label_dtype : {DType::kI32, DType::kI64}) {
      for (const Shape& shape : shapes) {
        for (float smoothing : {0.0f, 0.125f, 1.0f}) {
          const op::CrossEntropy op{.ignore_index = -7, .label_smoothing = smoothing};
          const Tensor x = MakeTensor(RandomDoubles(NumElements(shape), -6, 8, 5), shape, dtype);
          const Tensor labels = MakeTensor(RandomLabels(shape[0], shape[1], -7), {shape[0]}, label_dtype);
          SCOPED_TRACE(absl::StrCat(x.spec().ToString(), labels.spec().ToString(), smoothing));
          const Expected expected = Reference(Doubles(x), Doubles(labels), shape[1], op, 0.5);
          std::vector<std::vector<Tensor>> of_threads;
          for (int threads : {1, 2}) of_threads.push_back(RunRepeatedly(op, {x, labels}, threads));
          for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(SameBits(of_threads[0][i], of_threads[1][i]));
          const std::vector<Tensor>& outputs = of_threads[0];
          const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
          EXPECT_EQ(outputs[0].dtype(), wide);
          const double tolerance = wide == DType::kF64 ? 1e-12 : 2e-6;
          ExpectClose(outputs[0], {expected.sum}, tolerance, tolerance);
          ExpectClose(outputs[1], {expected.count}, 0, 0);
          ExpectClose(outputs[2], expected.logsumexp, tolerance, tolerance);
          const op::CrossEntropyGrad grad{.ignore_index = -7, .label_smoothing = smoothing};
          const Tensor dsum = MakeTensor({0.5}, {}, wide);
          const Tensor dlogits = RunRepeatedly(grad, {x, labels, dsum}, 2)[0];
          EXPECT_EQ(dlogits.dtype(), dtype);
          ExpectClose(dlogits, expected.dlogits, RelativeTolerance(dtype), tolerance);
        }
      }
    }
  }
}

TEST(CrossEntropy, EveryTargetIgnored) {
  for (DType dtype : kDTypes) {
    const Tensor x = MakeTensor({1, 2, 3, std::nan(""), 5, kInfinity}, {2, 3}, dtype);
    const Tensor labels = MakeTensor({-100, -100}, {2}, DType::kI64);
    const std::vector<Tensor> outputs = RunOp(op::CrossEntropy{}, {x, labels});
    ExpectClose(outputs[0], {0}, 0, 0);
    ExpectClose(outputs[1], {0}, 0, 0);
    const Tensor dsum = MakeTensor({3}, {}, outputs[0].dtype());
    const Tensor dlogits = RunOp(op::CrossEntropyGrad{}, {x, labels, dsum})[0];
    EXPECT_THAT(Doubles(dlogits), testing::Each(0));
  }
}

TEST(CrossEntropy, LabelOutOfRangeNamesIndexAndValue) {
  const Tensor x = MakeTensor(std::vector<double>(12, 0), {4, 3});
  for (DType label_dtype : {DType::kI32, DType::kI64}) {
    for (int bad : {-4, 3, 1000000}) {
      const Tensor labels = MakeTensor({0, -100, static_cast<double>(bad), 1}, {4}, label_dtype);
      const absl::Status status = TryOp(op::CrossEntropy{}, {x, labels}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
      EXPECT_THAT(std::string(status.message()),
                  testing::HasSubstr(absl::StrCat("the label of row 2 is ", bad, ", expected 0 to 2, or ")));
      const Tensor dsum = MakeTensor({1}, {});
      EXPECT_EQ(TryOp(op::CrossEntropyGrad{}, {x, labels, dsum}).status().code(), absl::StatusCode::kOutOfRange);
    }
  }
}

TEST(CrossEntropy, IgnoreIndexMayBeAClass) {
  const Tensor x = MakeTensor({0, 0, 0, 0, 0, 0}, {3, 2});
  const Tensor labels = MakeTensor({0, 1, 0}, {3}, DType::kI64);
  const std::vector<Tensor> outputs = RunOp(op::CrossEntropy{.ignore_index = 0}, {x, labels});
  ExpectClose(outputs[0], {std::log(2.0)}, 1e-6, 0);
  ExpectClose(outputs[1], {1}, 0, 0);
}

// Classes that are masked with -inf, as long as they are not the label, take no part.
TEST(CrossEntropy, MinusInfinity) {
  for (DType dtype : kDTypes) {
    const Tensor x = MakeTensor({0, 0, -kInfinity}, {1, 3}, dtype);
    const Tensor label = MakeTensor({0}, {1}, DType::kI64);
    const std::vector<Tensor> outputs = RunOp(op::CrossEntropy{}, {x, label});
    ExpectClose(outputs[0], {std::log(2.0)}, 1e-6, 0);
    const Tensor dsum = MakeTensor({1}, {}, outputs[0].dtype());
    const Tensor dlogits = RunOp(op::CrossEntropyGrad{}, {x, label, dsum})[0];
    ExpectClose(dlogits, {-0.5, 0.5, 0}, 1e-6, 0);

    // The label's own probability is 0; with smoothing every class counts; with smoothing 1 the label does not.
    const Tensor impossible = MakeTensor({2}, {1}, DType::kI64);
    ExpectClose(RunOp(op::CrossEntropy{}, {x, impossible})[0], {kInfinity}, 0, 0);
    ExpectClose(RunOp(op::CrossEntropy{.label_smoothing = 0.5f}, {x, label})[0], {kInfinity}, 0, 0);
    const Tensor finite = MakeTensor({0, 0, 0}, {1, 3}, dtype);
    ExpectClose(RunOp(op::CrossEntropy{.label_smoothing = 1}, {finite, label})[0], {std::log(3.0)}, 1e-6, 0);

    // A row of nothing else has infinite loss and gradient 0, and leaves the other rows alone.
    const Tensor rows = MakeTensor({-kInfinity, -kInfinity, 0, 0}, {2, 2}, dtype);
    const Tensor labels = MakeTensor({1, 1}, {2}, DType::kI32);
    const std::vector<Tensor> of_rows = RunOp(op::CrossEntropy{}, {rows, labels});
    ExpectClose(of_rows[0], {kInfinity}, 0, 0);
    ExpectClose(of_rows[2], {-kInfinity, std::log(2.0)}, 1e-6, 0);
    ExpectClose(RunOp(op::CrossEntropyGrad{}, {rows, labels, dsum})[0], {0, 0, 0.5, -0.5}, 1e-6, 0);
  }
}

TEST(CrossEntropy, LargeLogits) {
  const Tensor x = MakeTensor({1e4, 0, 3e38, -3e38}, {2, 2});
  ExpectClose(RunOp(op::CrossEntropy{}, {x, MakeTensor({1, 0}, {2}, DType::kI64)})[0], {1e4}, 1e-6, 0);

  const Tensor close = MakeTensor({1e8, 1e8, -1e8, 1e4, 1e4 + 1, 1e4 + 2}, {2, 3});
  const Tensor labels = MakeTensor({0, 0}, {2}, DType::kI64);
  const Tensor dlogits = RunOp(op::CrossEntropyGrad{}, {close, labels, MakeTensor({1}, {})})[0];
  ExpectClose(dlogits, {-0.5, 0.5, 0, -0.909969426, 0.244728471, 0.665240956}, 2e-7, 0);
}

}  // namespace
}  // namespace gemmill
