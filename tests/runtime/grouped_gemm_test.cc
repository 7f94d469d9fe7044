// GroupedMatMul and GroupedMatMulWgrad against a MatMul for each expert, on both sides of every number of rows at which
// they are computed in another way.
#include <numeric>
#include <utility>
#include <vector>

#include "gemmill/runtime/op.h"
#include "gmock/gmock.h"
#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

using testing::HasSubstr;

const std::vector<int64_t> kLoads = {0, 1, 3, 16, 17, 31, 48, 49, 64, 65, 130, 256, 300, 513};

struct Sizes {
  int64_t n, k;
};
// Of whole vectors and not, of one piece of outputs and of several.
const std::vector<Sizes> kSizes = {{32, 64}, {19, 35}, {300, 80}, {1, 16}, {528, 1}};

Tensor Offsets(const std::vector<int64_t>& loads) {
  std::vector<int64_t> offsets(loads.size() + 1, 0);
  std::partial_sum(loads.begin(), loads.end(), offsets.begin() + 1);
  return ValueOf(Tensor::From(offsets, {static_cast<int64_t>(offsets.size())}));
}

Tensor Random(const Shape& shape, DType dtype, uint32_t seed) {
  return MakeTensor(RandomDoubles(NumElements(shape), -1, 1, seed), shape, dtype);
}

// The f64 product of the tensors' values.
std::vector<double> Product(const op::MatMul& op, const Tensor& a, const Tensor& b) {
  const auto wide = [](const Tensor& x) { return MakeTensor(Doubles(x), x.shape(), DType::kF64); };
  return Doubles(RunOp(op, {wide(a), wide(b)})[0]);
}

Tensor RowsOf(const Tensor& x, int64_t begin, int64_t end) { return ValueOf(x.Rows(begin, end)); }

Tensor MatrixOf(const Tensor& stack, int64_t expert) {
  const Tensor one = RowsOf(stack, expert, expert + 1);
  return RunOp(op::Reshape{{stack.shape()[1], stack.shape()[2]}}, {one})[0];
}

void ExpectProduct(const std::vector<double>& values, size_t first, const std::vector<double>& expected, DType dtype) {
  const double tolerance = dtype == DType::kBf16 ? 8e-3 : dtype == DType::kF32 ? 2e-6 : 1e-14;
  ASSERT_LE(first + expected.size(), values.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(values[first + i], expected[i], tolerance * (std::abs(expected[i]) + 10)) << "element " << i;
  }
}

class GroupedGemm : public testing::TestWithParam<std::pair<DType, int>> {};

TEST_P(GroupedGemm, IsAProductForEachExpert) {
  const auto [dtype, threads] = GetParam();
  const WithThreads with(threads);
  const Tensor offsets = Offsets(kLoads);
  const int64_t experts = static_cast<int64_t>(kLoads.size());
  const int64_t rows = std::accumulate(kLoads.begin(), kLoads.end(), int64_t{0}) + 3;  // the last are nobody's
  for (const auto& [n, k] : kSizes) {
    SCOPED_TRACE(testing::Message() << "n " << n << ", k " << k);
    const Tensor x = Random({rows, k}, dtype, 1);
    const Tensor y = Random({rows, n}, dtype, 2);
    const Tensor transposed = Random({experts, n, k}, dtype, 3);
    const Tensor plain = Random({experts, k, n}, dtype, 4);
    const std::vector<double> of_transposed = Doubles(RunOp(op::GroupedMatMul{true}, {x, transposed, offsets})[0]);
    const std::vector<double> of_plain = Doubles(RunOp(op::GroupedMatMul{}, {x, plain, offsets})[0]);
    const std::vector<double> wgrad = Doubles(RunOp(op::GroupedMatMulWgrad{}, {y, x, offsets})[0]);
    int64_t begin = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t load = kLoads[static_cast<size_t>(e)];
      SCOPED_TRACE(testing::Message() << load << " rows");
      const Tensor of_x = RowsOf(x, begin, begin + load);
      const Tensor of_y = RowsOf(y, begin, begin + load);
      const auto first = static_cast<size_t>(begin * n);
      ExpectProduct(of_transposed, first, Product({.trans_b = true}, of_x, MatrixOf(transposed, e)), dtype);
      ExpectProduct(of_plain, first, Product({}, of_x, MatrixOf(plain, e)), dtype);
      ExpectProduct(wgrad, static_cast<size_t>(e * n * k), Product({.trans_a = true}, of_y, of_x), dtype);
      begin += load;
    }
    const std::vector<double> nothing(static_cast<size_t>(3 * n), 0);
    ExpectProduct(of_transposed, static_cast<size_t>(begin * n), nothing, DType::kF64);
    ExpectProduct(of_plain, static_cast<size_t>(begin * n), nothing, DType::kF64);
  }
}

// Gradients that together are larger than the caches are written around them.
TEST_P(GroupedGemm, ManyExpertsOfFewRows) {
  const auto [dtype, threads] = GetParam();
  const WithThreads with(threads);
  const int64_t experts = 130;
  const Tensor offsets = Offsets(std::vector<int64_t>(static_cast<size_t>(experts), 2));
  const Tensor x = Random({2 * experts, 256}, dtype, 1);
  const Tensor y = Random({2 * experts, 160}, dtype, 2);
  const std::vector<double> wgrad = Doubles(RunOp(op::GroupedMatMulWgrad{}, {y, x, offsets})[0]);
  for (int64_t e = 0; e < experts; e += 43) {
    ExpectProduct(wgrad, static_cast<size_t>(e * 160 * 256),
                  Product({.trans_a = true}, RowsOf(y, 2 * e, 2 * e + 2), RowsOf(x, 2 * e, 2 * e + 2)), dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GroupedGemm,
                         testing::Values(std::pair(DType::kF32, 1), std::pair(DType::kF32, 3),
                                         std::pair(DType::kBf16, 1), std::pair(DType::kBf16, 3),
                                         std::pair(DType::kF64, 2)));

TEST(GroupedGemmMemory, DoesNotDependOnRowsOrTheirRouting) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const auto bytes = [&](const Op& op, int64_t rows) {
      const Shape second = std::holds_alternative<op::GroupedMatMul>(op) ? Shape{4, 96, 64} : Shape{rows, 96};
      const std::vector<Spec> in{Spec{{rows, 64}, dtype}, Spec{second, dtype}, Spec{{5}, DType::kI64}};
      const std::vector<Spec> out = ValueOf(Infer(op, in));
      return ValueOf(Prepare(op, in, out)).workspace_bytes;
    };
    for (const Op& op : {Op(op::GroupedMatMul{.trans_b = true}), Op(op::GroupedMatMulWgrad{})}) {
      EXPECT_EQ(bytes(op, 1 << 12), bytes(op, 1 << 22));
      EXPECT_LE(bytes(op, 1 << 22), 4 << 20);
    }
  }
}

TEST(GroupedGemmMemory, BeyondTwoToThe31Bytes) {
  const int64_t size = 13000;  // three matrices of 676 MB in f32
  const Tensor offsets = Offsets({0, 0, 2});
  const Tensor x = Random({2, size}, DType::kF32, 1);
  const auto at = [](const Tensor& stack, int64_t expert, int64_t row, int64_t column) -> float& {
    return static_cast<float*>(stack.data())[(expert * size + row) * size + column];
  };
  const Tensor y = RunOp(op::GroupedMatMulWgrad{}, {x, x, offsets})[0];
  EXPECT_NEAR(at(y, 2, size - 1, size - 2),
              Doubles(x)[size - 1] * Doubles(x)[size - 2] + Doubles(x)[2 * size - 1] * Doubles(x)[2 * size - 2], 1e-6);
  EXPECT_EQ(at(y, 0, 0, 0), 0);
  EXPECT_EQ(at(y, 1, size - 1, size - 1), 0);
  const Tensor weights = ValueOf(Tensor::Zeros(Spec{{3, size, size}, DType::kF32}));
  at(weights, 2, size - 1, size - 2) = 3;
  const size_t last = 2 * size - 1;
  EXPECT_NEAR(Doubles(RunOp(op::GroupedMatMul{true}, {x, weights, offsets})[0])[last], 3 * Doubles(x)[last - 1], 1e-6);
  EXPECT_NEAR(Doubles(RunOp(op::GroupedMatMul{}, {x, weights, offsets})[0])[last - 1], 3 * Doubles(x)[last], 1e-6);
}

TEST(GroupedGemmOffsets, OutsideTheRowsAreRefused) {
  const Tensor x = MakeTensor({1, 2, 3, 4}, {2, 2});
  const Tensor w = MakeTensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const auto message = [&](const std::vector<double>& offsets) {
    return Message(TryOp(op::GroupedMatMul{}, {x, w, MakeTensor(offsets, {3}, DType::kI64)}).status());
  };
  EXPECT_THAT(message({0, 1, 3}), HasSubstr("offset 2 is 3, expected 1 to 2"));
  EXPECT_THAT(message({0, 2, 1}), HasSubstr("offset 2 is 1, expected 2 to 2"));
  EXPECT_THAT(message({1, 1, 2}), HasSubstr("offset 0 is 1, expected 0"));
  EXPECT_THAT(message({0, -1, 2}), HasSubstr("offset 1 is -1, expected 0 to 2"));
}

}  // namespace
}  // namespace gemmill
