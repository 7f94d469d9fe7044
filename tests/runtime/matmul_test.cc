#include <cmath>
#include <thread>
#include <vector>

#include "gemmill/runtime/cpu/plain_gemm.h"
#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64};

struct Expected {
  std::vector<double> product;
  std::vector<double> magnitude;  // the sum of the terms' absolute values, to which rounding is relative
};

// The product by its definition, in double. `a` and `b` have the rank of the result; their batches broadcast.
Expected Reference(const std::vector<double>& a, const Shape& a_shape, const std::vector<double>& b,
                   const Shape& b_shape, const Shape& c_shape, const op::MatMul& op) {
  const size_t rank = c_shape.size();
  const int64_t m = c_shape[rank - 2];
  const int64_t n = c_shape[rank - 1];
  const int64_t k = a_shape[a_shape.size() - (op.trans_a ? 2 : 1)];
  const auto matrix = [&](const Shape& shape, int64_t batch) {
    int64_t index = 0;
    int64_t stride = 1;
    for (size_t d = rank - 2; d-- > 0; batch /= c_shape[d]) {
      if (d + shape.size() < rank) continue;
      const int64_t size = shape[d + shape.size() - rank];
      if (size != 1) index += batch % c_shape[d] * stride;
      stride *= size;
    }
    return index;
  };
  Expected expected;
  for (int64_t batch = 0; batch < NumElements(c_shape) / std::max<int64_t>(m * n, 1); ++batch) {
    const double* x = a.data() + matrix(a_shape, batch) * m * k;
    const double* y = b.data() + matrix(b_shape, batch) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double term = x[op.trans_a ? p * m + i : i * k + p] * y[op.trans_b ? j * k + p : p * n + j];
          sum += term;
          magnitude += std::fabs(term);
        }
        expected.product.push_back(sum);
        expected.magnitude.push_back(magnitude);
      }
    }
  }
  return expected;
}

Shape MatrixShape(const Shape& batch, int64_t rows, int64_t columns, bool transposed) {
  Shape shape = batch;
  shape.push_back(transposed ? columns : rows);
  shape.push_back(transposed ? rows : columns);
  return shape;
}

void Check(const Shape& batch_a, const Shape& batch_b, int64_t m, int64_t n, int64_t k, DType dtype, op::MatMul op) {
  const Shape a_shape = MatrixShape(batch_a, m, k, op.trans_a);
  const Shape b_shape = MatrixShape(batch_b, k, n, op.trans_b);
  SCOPED_TRACE(absl::StrCat(DTypeName(dtype), ShapeString(a_shape), op.trans_a ? "^T " : " ", ShapeString(b_shape),
                            op.trans_b ? "^T" : ""));
  const Tensor a = MakeTensor(RandomDoubles(NumElements(a_shape), -1, 1, 1), a_shape, dtype);
  const Tensor b = MakeTensor(RandomDoubles(NumElements(b_shape), -1, 1, 2), b_shape, dtype);
  Expected expected;
  for (int threads : {1, 2}) {
    const Tensor c = RunRepeatedly(op, {a, b}, threads)[0];
    ASSERT_TRUE(c.valid());
    if (threads == 1) expected = Reference(Doubles(a), a_shape, Doubles(b), b_shape, c.shape(), op);
    const std::vector<double> got = Doubles(c);
    ASSERT_EQ(got.size(), expected.product.size());
    const double stored = dtype == DType::kBf16 ? 0x1p-8 : 0;
    const double summed = dtype == DType::kF64 ? 1e-14 : 1e-6;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected.product[i], std::fabs(expected.product[i]) * stored + expected.magnitude[i] * summed)
          << "element " << i << " with " << threads << " threads";
    }
  }
}

void CheckFlags(const Shape& batch_a, const Shape& batch_b, int64_t m, int64_t n, int64_t k, DType dtype) {
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) Check(batch_a, batch_b, m, n, k, dtype, op::MatMul{trans_a, trans_b});
  }
}

TEST(MatMul, SizesOfOne) {
  for (DType dtype : kDTypes) {
    for (int64_t m : {1, 2, 17}) {
      for (int64_t n : {1, 3, 40}) {
        for (int64_t k : {1, 5, 33}) {
          for (const Shape& batch_a : {Shape{}, Shape{1}, Shape{3}}) {
            for (const Shape& batch_b : {Shape{}, Shape{1}, Shape{3}}) CheckFlags(batch_a, batch_b, m, n, k, dtype);
          }
        }
      }
    }
  }
}

TEST(MatMul, ManyShapes) {
  const int64_t shapes[][3] = {{8, 8, 8},    {16, 16, 16}, {31, 33, 35},   {64, 10, 512}, {64, 256, 784},
                               {65, 1, 300}, {1, 65, 300}, {129, 127, 64}, {200, 300, 1}, {7, 1000, 100}};
  for (const auto& [m, n, k] : shapes) {
    for (DType dtype : kDTypes) CheckFlags({}, {}, m, n, k, dtype);
  }
}

TEST(MatMul, BatchesBroadcast) {
  const Shape batches[][2] = {{{4}, {4}},          {{4}, {}},
                              {{}, {4}},           {{1}, {4}},
                              {{4}, {1}},          {{2, 3}, {2, 3}},
                              {{2, 3}, {3}},       {{2, 3}, {2, 1}},
                              {{2, 1}, {1, 3}},    {{1, 3}, {2, 1}},
                              {{2, 1, 3}, {4, 1}}, {{5, 1, 1}, {1, 2, 3}},
                              {{1, 1}, {1}},       {{2, 3, 4}, {2, 1, 4}}};
  for (const auto& [batch_a, batch_b] : batches) {
    for (DType dtype : kDTypes) {
      CheckFlags(batch_a, batch_b, 9, 20, 12, dtype);
      CheckFlags(batch_a, batch_b, 1, 20, 12, dtype);
    }
  }
  const Shape wide[][2] = {{{5}, {5}}, {{5}, {}}, {{}, {5}}, {{2, 1}, {1, 3}}};  // enough work for two threads
  for (const auto& [batch_a, batch_b] : wide) {
    for (DType dtype : kDTypes) CheckFlags(batch_a, batch_b, 70, 64, 66, dtype);
  }
}

TEST(MatMul, EmptySizes) {
  for (DType dtype : kDTypes) {
    CheckFlags({}, {}, 3, 4, 0, dtype);  // zeros
    CheckFlags({2}, {}, 3, 4, 0, dtype);
    CheckFlags({}, {}, 0, 4, 5, dtype);
    CheckFlags({}, {}, 3, 0, 5, dtype);
    CheckFlags({0}, {}, 3, 4, 5, dtype);
    CheckFlags({0}, {1}, 3, 4, 0, dtype);
    CheckFlags({0, 2}, {2}, 3, 4, 5, dtype);
  }
}

// 4096 ones of bf16 would stop at 256 if the sum were kept in bf16.
TEST(MatMul, Bf16AccumulatesInF32) {
  const int64_t k = 4096;
  const Tensor a = MakeTensor(std::vector<double>(static_cast<size_t>(k), 1), {1, k}, DType::kBf16);
  const Tensor b = MakeTensor(std::vector<double>(static_cast<size_t>(k) * 3, 1), {k, 3}, DType::kBf16);
  EXPECT_THAT(Doubles(RunOp(op::MatMul{}, {a, b})[0]), testing::Each(4096));
}

// Rows so long that 64 of them do not fit 2^31 bytes: oneDNN crashed at [16, 4e7] [4e7, 2], and left out rows at
// [4, 3e8] [3e8, 2].
TEST(MatMul, LongRowsAreNotForOneDnn) {
  const auto can = [](int64_t m, int64_t n, int64_t k, bool trans_a = false, bool trans_b = false) {
    return cpu::OneDnnCanAddress({.m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b});
  };
  EXPECT_FALSE(can(16, 2, 40000000));
  EXPECT_FALSE(can(4, 2, 300000000));
  EXPECT_FALSE(can(2, 40000000, 2));
  EXPECT_FALSE(can(40000000, 2, 2, true));
  EXPECT_FALSE(can(2, 2, 40000000, true, true));
  EXPECT_TRUE(can(40000000, 2, 2));
  EXPECT_TRUE(can(2, 2, 40000000, true));
  EXPECT_TRUE(can(1 << 20, 1 << 17, 1 << 16, true, true));
  EXPECT_TRUE(can(8, 8, (1 << 23) - 1));
  EXPECT_FALSE(can(8, 8, 1 << 23));
  EXPECT_TRUE(cpu::OneDnnCanAddress({.dtype = DType::kBf16, .m = 8, .n = 8, .k = 1 << 23}));
}

TEST(MatMul, LongSumsKeepTheirTerms) {
  const int64_t k = 17000000;  // an f32 that counts by one stops at 16777216
  Tensor ones = ValueOf(Tensor::Empty(Spec{{1, k}}));
  std::fill_n(static_cast<float*>(ones.data()), k, 1.0f);
  EXPECT_THAT(Doubles(RunOp(op::MatMul{.trans_b = true}, {ones, ones})[0]), testing::ElementsAre(17000000));
}

TEST(MatMul, PlainLoopsGiveWhatOneDnnGives) {
  const Shape c_shape{67, 150};
  for (DType dtype : kDTypes) {
    for (const auto& [trans_a, trans_b] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
      const cpu::Gemm gemm{.dtype = dtype, .m = 67, .n = 150, .k = 333, .trans_a = trans_a, .trans_b = trans_b};
      const Tensor a = MakeTensor(RandomDoubles(67 * 333, -1, 1, 1), MatrixShape({}, 67, 333, trans_a), dtype);
      const Tensor b = MakeTensor(RandomDoubles(150 * 333, -1, 1, 2), MatrixShape({}, 333, 150, trans_b), dtype);
      Tensor c = ValueOf(Tensor::Empty(Spec{c_shape, dtype}));
      cpu::PlainGemm(gemm, a.data(), b.data(), c.data());
      const op::MatMul op{trans_a, trans_b};
      const Expected expected = Reference(Doubles(a), a.shape(), Doubles(b), b.shape(), c_shape, op);
      ExpectClose(c, expected.product, RelativeTolerance(dtype), dtype == DType::kF64 ? 1e-12 : 1e-5);
    }
  }
}

TEST(MatMul, NanStaysInItsRow) {
  std::vector<double> values(12, 1);
  values[5] = std::nan("");
  const Tensor c = RunOp(op::MatMul{}, {MakeTensor(values, {3, 4}), MakeTensor(std::vector<double>(8, 1), {4, 2})})[0];
  ExpectClose(c, {4, 4, std::nan(""), std::nan(""), 4, 4}, 0, 0);
}

// One kernel, run by several threads at once, with other buffers each time.
TEST(MatMul, OneKernelInSeveralThreads) {
  constexpr int kThreads = 4;
  constexpr int64_t kSize = 24;
  const Spec spec{{kSize, kSize}};
  const std::vector<Spec> in{spec, spec};
  const std::vector<Spec> out{spec};
  const Kernel kernel = ValueOf(Prepare(op::MatMul{}, in, out));
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Tensor a = MakeTensor(RandomDoubles(kSize * kSize, -1, 1, static_cast<uint32_t>(t)), spec.shape);
      const Tensor b = MakeTensor(RandomDoubles(kSize * kSize, -1, 1, 99), spec.shape);
      const Tensor expected = RunOp(op::MatMul{}, {a, b})[0];
      for (int run = 0; run < 500; ++run) {
        Tensor c = ValueOf(Tensor::Zeros(spec));
        Tensor workspace = ValueOf(Tensor::Empty(Spec{{kernel.workspace_bytes + 1}, DType::kU8}));
        const void* inputs[] = {a.data(), b.data()};
        void* outputs[] = {c.data()};
        const absl::Status status = kernel.run({inputs, outputs, workspace.data()}, Stream::Default(Device::Cpu()));
        if (!status.ok() || !SameBits(c, expected)) ++wrong[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

// More shapes than the cache of primitives holds, then the first again.
TEST(MatMul, ManyMoreShapesThanAreKept) {
  for (int64_t n = 1; n <= 1100; ++n) {
    const Tensor a = MakeTensor({2}, {1, 1});
    const Tensor b = MakeTensor(std::vector<double>(static_cast<size_t>(n), 3), {1, n});
    ASSERT_THAT(Doubles(RunOp(op::MatMul{}, {a, b})[0]), testing::Each(6));
  }
  Check({}, {}, 1, 1, 1, DType::kF32, op::MatMul{});
}

}  // namespace
}  // namespace gemmill
