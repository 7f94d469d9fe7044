// Passes change how many Steps there are, and no bit.
#include "gemmill/runtime/passes/passes.h"

#include <string>
#include <vector>

#include "gemmill/runtime/cost.h"
#include "gmock/gmock.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

std::vector<Tensor> Outputs(const Program& program) { return OutputsOf(program, InputsFor(program, 0)); }

void ExpectSame(const Program& program, const Program& passed, size_t steps) {
  EXPECT_EQ(passed.steps.size(), steps) << ProgramString(passed);
  const std::vector<Tensor> expected = Outputs(program);
  const std::vector<Tensor> outputs = Outputs(passed);
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(SameBits(outputs[i], expected[i])) << "output " << i;
}

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64};

TEST(Passes, EpilogueOfAMatMul) {
  for (DType dtype : kDTypes) {
    for (const UnaryFn fn : {UnaryFn::kRelu, UnaryFn::kGeluErf, UnaryFn::kTanh}) {
      for (const bool keep : {false, true}) {
        for (const Shape& rows : {Shape{5, 3}, Shape{70, 130}, Shape{2, 3, 3}}) {
          Builder b;
          const int x = b.Input(rows, dtype);
          const int w = b.Input({33, rows.back()}, dtype);
          const int bias = b.Input({33}, dtype);
          const int product = b.Add(op::MatMul{false, true}, {x, w})[0];
          const int sum = b.Add(op::Binary{BinaryFn::kAdd}, {product, bias})[0];
          const int y = b.Add(op::Unary{fn}, {sum})[0];
          const Program program = b.Finish(keep ? std::vector<int>{sum, y} : std::vector<int>{y});
          const Program passed = passes::FuseEpilogues(program);
          ExpectSame(program, passed, 1);
          EXPECT_EQ(std::get<op::FusedMatMul>(passed.steps[0].op).keep, keep);
        }
      }
    }
  }
}

TEST(Passes, AMatMulAloneOrReadTwiceStays) {
  Builder b;
  const int x = b.Input({4, 3});
  const int w = b.Input({3, 4});
  const int bias = b.Input({4});
  const int matrix = b.Input({4, 4});
  const int one = b.Add(op::MatMul{}, {x, w})[0];
  const int read_twice = b.Add(op::Binary{BinaryFn::kAdd}, {one, bias})[0];
  const int two = b.Add(op::MatMul{}, {x, w})[0];
  const int no_bias = b.Add(op::Binary{BinaryFn::kAdd}, {two, matrix})[0];
  const Program program = b.Finish({one, read_twice, no_bias});
  ExpectSame(program, passes::Default(program), 4);
}

TEST(Passes, ABiasThatIsMadeAfterTheProduct) {
  Builder b;
  const int x = b.Input({4, 3});
  const int w = b.Input({3, 4});
  const int bias = b.Input({4});
  const int product = b.Add(op::MatMul{}, {x, w})[0];
  const int late = b.Add(op::Unary{UnaryFn::kNeg}, {bias})[0];
  const int sum = b.Add(op::Binary{BinaryFn::kAdd}, {product, late})[0];
  const int y = b.Add(op::Unary{UnaryFn::kRelu}, {sum})[0];
  const Program program = b.Finish({y});
  ExpectSame(program, passes::Default(program), 2);
}

TEST(Passes, BiasOnTheLeftAndNoActivation) {
  Builder b;
  const int product = b.Add(op::MatMul{}, {b.Input({4, 3}), b.Input({3, 4})})[0];
  const int sum = b.Add(op::Binary{BinaryFn::kAdd}, {b.Input({4}), product})[0];
  const Program program = b.Finish({sum});
  // The bias was made after the product, as a value that is there from the start.
  ExpectSame(program, passes::Default(program), 1);
}

TEST(Passes, GradientOfActivationAndBias) {
  for (DType dtype : kDTypes) {
    for (const Shape& shape : {Shape{5, 3}, Shape{1000, 7}, Shape{300, 700}, Shape{4, 50, 66}, Shape{3000, 512}}) {
      Builder b;
      const int v = b.Input(shape, dtype);
      const int dy = b.Input(shape, dtype);
      const int dx = b.Add(op::UnaryGrad{UnaryFn::kGeluErf}, {v, dy})[0];
      Axes rows;
      for (size_t d = 0; d + 1 < shape.size(); ++d) rows.push_back(static_cast<int64_t>(d));
      const int db = b.Add(op::Reduce{ReduceFn::kSum, rows}, {dx})[0];
      const Program program = b.Finish({dx, db});
      ExpectSame(program, passes::FuseBiasGradients(program), 1);
    }
  }
}

TEST(Passes, OtherSumsStay) {
  Builder b;
  const int v = b.Input({4, 3});
  const int dx = b.Add(op::UnaryGrad{UnaryFn::kTanh}, {v, v})[0];
  const int columns = b.Add(op::Reduce{ReduceFn::kSum, {1}}, {dx})[0];
  const int kept = b.Add(op::Reduce{ReduceFn::kSum, {0}, true}, {dx})[0];
  const int mean = b.Add(op::Reduce{ReduceFn::kMean, {0}}, {dx})[0];
  const Program program = b.Finish({columns, kept, mean});
  ExpectSame(program, passes::Default(program), 4);
}

TEST(Passes, AFusedMatMulIsStillAGemm) {
  const std::vector<Spec> in{Spec{{4, 3}}, Spec{{5, 3}}, Spec{{5}}};
  const op::FusedMatMul op{{false, true}, true, UnaryFn::kRelu, false};
  const std::vector<Spec> out = ValueOf(Infer(op, in));
  const OpCost cost = Cost(op, in, out);
  EXPECT_EQ(cost.gemm, (GemmShape{.m = 4, .n = 5, .k = 3}));
  EXPECT_EQ(cost.flops, 2 * 4 * 5 * 3);
}

}  // namespace
}  // namespace gemmill
