#include <numeric>
#include <vector>

#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF64, DType::kI32, DType::kI64, DType::kU8};

// 0, 1, 2, ... below 100, which every dtype holds.
Tensor Counting(const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 101);
  return MakeTensor(values, shape, dtype);
}

std::vector<int64_t> IndexOf(const Shape& shape, int64_t i) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; i /= shape[d]) index[d] = i % shape[d];
  return index;
}

size_t OffsetOf(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + index[d];
  return static_cast<size_t>(offset);
}

TEST(Movement, ReshapeKeepsTheBytes) {
  for (DType dtype : kDTypes) {
    const Tensor x = Counting({4, 6}, dtype);
    const Tensor y = RunOp(op::Reshape{{2, 3, 4}}, {x})[0];
    EXPECT_EQ(y.shape(), (Shape{2, 3, 4}));
    EXPECT_EQ(Doubles(y), Doubles(x));
  }
}

TEST(Movement, BroadcastTo) {
  struct Case {
    Shape from, to;
  };
  for (const Case& c : std::vector<Case>{{{}, {}},
                                         {{}, {5}},
                                         {{1}, {3, 4}},
                                         {{4}, {3, 4}},
                                         {{3, 1}, {3, 4}},
                                         {{1, 4}, {3, 4}},
                                         {{2, 1, 3, 1}, {2, 4, 3, 5}},
                                         {{3}, {0, 3}},
                                         {{1, 0}, {4, 0}},
                                         {{257, 1}, {257, 300}}}) {
    for (DType dtype : kDTypes) {
      const Tensor x = Counting(c.from, dtype);
      const std::vector<double> values = Doubles(x);
      const Tensor y = RunOp(op::BroadcastTo{c.to}, {x})[0];
      EXPECT_EQ(y.shape(), c.to);
      const std::vector<double> got = Doubles(y);
      for (size_t i = 0; i < got.size(); ++i) {
        std::vector<int64_t> index = IndexOf(c.to, static_cast<int64_t>(i));
        index.erase(index.begin(), index.begin() + static_cast<int64_t>(c.to.size() - c.from.size()));
        for (size_t d = 0; d < index.size(); ++d) index[d] = c.from[d] == 1 ? 0 : index[d];
        ASSERT_EQ(got[i], values[OffsetOf(c.from, index)]) << ShapeString(c.from) << ShapeString(c.to);
      }
    }
  }
}

TEST(Movement, PermuteByEveryOrderOfAxes) {
  for (const Shape& shape : std::vector<Shape>{
           {}, {5}, {3, 70}, {130, 33}, {1, 4}, {2, 3, 4}, {17, 5, 33}, {2, 1, 3, 4}, {3, 0, 2}, {2, 3, 20, 18}}) {
    Axes axes(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    do {
      for (DType dtype : {DType::kF32, DType::kBf16, DType::kF64, DType::kU8}) {
        const Tensor x = Counting(shape, dtype);
        const std::vector<double> values = Doubles(x);
        const Tensor y = RunOp(op::Permute{axes}, {x})[0];
        ASSERT_TRUE(y.valid());
        const std::vector<double> got = Doubles(y);
        ASSERT_EQ(got.size(), values.size());
        for (size_t i = 0; i < got.size(); ++i) {
          const std::vector<int64_t> index = IndexOf(y.shape(), static_cast<int64_t>(i));
          std::vector<int64_t> source(index.size());
          for (size_t d = 0; d < axes.size(); ++d) source[static_cast<size_t>(axes[d])] = index[d];
          ASSERT_EQ(got[i], values[OffsetOf(shape, source)])
              << ShapeString(shape) << ShapeString(Shape(axes)) << " " << i;
        }
      }
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
}

TEST(Movement, SliceAndUnslice) {
  for (DType dtype : kDTypes) {
    for (int64_t axis = 0; axis < 3; ++axis) {
      for (const op::Slice& slice : std::vector<op::Slice>{
               {axis, 0, 6, 1}, {axis, 1, 5, 1}, {axis, 0, 6, 2}, {axis, 1, 6, 3}, {axis, 2, 3, 4}, {axis, 3, 3, 1}}) {
        const Shape shape = {6, 7, 8};
        const Tensor x = Counting(shape, dtype);
        const std::vector<double> values = Doubles(x);
        const Tensor y = RunOp(slice, {x})[0];
        ASSERT_TRUE(y.valid());
        const std::vector<double> got = Doubles(y);
        std::vector<double> unsliced(values.size(), 0);
        for (size_t i = 0; i < got.size(); ++i) {
          std::vector<int64_t> index = IndexOf(y.shape(), static_cast<int64_t>(i));
          int64_t& along = index[static_cast<size_t>(axis)];
          along = slice.start + along * slice.step;
          EXPECT_EQ(got[i], values[OffsetOf(shape, index)]);
          unsliced[OffsetOf(shape, index)] = got[i];
        }
        const op::Unslice unslice = {axis, slice.start, slice.step, shape[static_cast<size_t>(axis)]};
        EXPECT_EQ(Doubles(RunOp(unslice, {y})[0]), unsliced);
      }
    }
  }
}

TEST(Movement, StepsOfAnySize) {
  for (int64_t step : {int64_t{5}, INT64_MAX / 2, INT64_MAX}) {
    const Tensor x = Counting({5, 3}, DType::kF32);
    const Tensor y = RunOp(op::Slice{.axis = 0, .start = 1, .stop = 5, .step = step}, {x})[0];
    EXPECT_EQ(Doubles(y), (std::vector<double>{3, 4, 5}));
    EXPECT_EQ(RunOp(op::Slice{.axis = 0, .start = 2, .stop = 2, .step = step}, {x})[0].shape(), (Shape{0, 3}));
    const Tensor back = RunOp(op::Unslice{.axis = 0, .start = 1, .step = step, .size = 3}, {y})[0];
    EXPECT_EQ(Doubles(back), (std::vector<double>{0, 0, 0, 3, 4, 5, 0, 0, 0}));
  }
}

// No elements, but dimensions whose product is beyond 64 bits.
TEST(Movement, EmptyShapesOfAnySize) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_EQ(NumElements({kHuge, kHuge, 0}), 0);
  EXPECT_EQ(NumElements({0, kHuge, kHuge}), 0);
  EXPECT_EQ(NumElements({kHuge, kHuge}), INT64_MAX);
  for (const Shape& shape : {Shape{kHuge, kHuge, 0}, Shape{0, kHuge, kHuge}, Shape{kHuge, 0, kHuge}}) {
    const Tensor x = ValueOf(Tensor::Empty(Spec{shape}));
    const Tensor flags = ValueOf(Tensor::Empty(Spec{shape, DType::kU8}));
    const Tensor one = MakeTensor({1}, {});
    const Tensor no_index = MakeTensor({}, {0}, DType::kI64);
    Shape joined = shape;
    joined[0] *= 2;
    EXPECT_EQ(RunOp(op::Concat{0}, {x, x})[0].shape(), joined);
    EXPECT_EQ(RunOp(op::Permute{{2, 0, 1}}, {x})[0].shape(), (Shape{shape[2], shape[0], shape[1]}));
    EXPECT_EQ(RunOp(op::Reshape{{0}}, {x})[0].shape(), Shape{0});
    EXPECT_EQ(RunOp(op::BroadcastTo{shape}, {x})[0].shape(), shape);
    EXPECT_EQ(RunOp(op::Binary{BinaryFn::kAdd}, {x, one})[0].shape(), shape);
    EXPECT_EQ(RunOp(op::Where{}, {flags, x, one})[0].shape(), shape);
    EXPECT_EQ(RunOp(op::Unary{UnaryFn::kExp}, {x})[0].shape(), shape);
    EXPECT_EQ(RunOp(op::Cast{DType::kBf16}, {x})[0].shape(), shape);
    EXPECT_EQ(RunOp(op::Softmax{}, {x})[0].shape(), shape);
    EXPECT_EQ(RunOp(op::Fill{.shape = shape}, {})[0].shape(), shape);
    EXPECT_EQ(Doubles(RunOp(op::Reduce{ReduceFn::kSum, {0, 1, 2}}, {x})[0]), std::vector<double>{0});
    for (int64_t axis = 0; axis < 3; ++axis) {
      const size_t at = static_cast<size_t>(axis);
      const Tensor part = RunOp(op::Slice{axis, 0, std::min<int64_t>(shape[at], 2), 1}, {x})[0];
      EXPECT_EQ(part.num_elements(), 0);
      EXPECT_EQ(RunOp(op::Unslice{axis, 0, 1, shape[at]}, {part})[0].shape(), shape);
      if (shape[at] == 0 || axis != 2) continue;
      EXPECT_EQ(RunOp(op::ArgMax{axis}, {x})[0].num_elements(), 0);
      EXPECT_EQ(RunOp(op::Normalize{}, {x})[0].shape(), shape);
    }
    Shape rows = shape;
    rows[0] = 0;
    EXPECT_EQ(RunOp(op::GatherRows{}, {x, no_index})[0].shape(), rows);
    const Tensor values = ValueOf(Tensor::Empty(Spec{rows}));
    EXPECT_EQ(RunOp(op::ScatterAddRows{shape[0]}, {values, no_index})[0].shape(), shape);
  }
  EXPECT_EQ(RunOp(op::OneHot{INT64_MAX, DType::kU8}, {MakeTensor({}, {0}, DType::kI64)})[0].num_elements(), 0);
}

TEST(Movement, ConcatAlongEveryAxis) {
  for (DType dtype : kDTypes) {
    for (size_t axis = 0; axis < 3; ++axis) {
      std::vector<Tensor> parts;
      Shape whole = {3, 4, 5};
      whole[axis] = 0;
      for (int64_t size : {2, 0, 1, 5}) {
        Shape shape = {3, 4, 5};
        shape[axis] = size;
        whole[axis] += size;
        parts.push_back(Counting(shape, dtype));
      }
      const Tensor joined = RunOp(op::Concat{static_cast<int64_t>(axis)}, parts)[0];
      ASSERT_EQ(joined.shape(), whole);
      int64_t start = 0;
      for (const Tensor& part : parts) {
        const int64_t stop = start + part.shape()[axis];
        EXPECT_EQ(Doubles(RunOp(op::Slice{static_cast<int64_t>(axis), start, stop}, {joined})[0]), Doubles(part));
        start = stop;
      }
    }
  }
}

TEST(Movement, BitsDoNotDependOnThreads) {
  const Tensor x = Counting({700, 300}, DType::kF32);
  for (const Op& op : std::vector<Op>{op::Permute{{1, 0}}, op::Slice{1, 3, 290, 7}, op::Reshape{{210000}},
                                      op::BroadcastTo{{2, 700, 300}}, op::Unslice{1, 5, 2, 1000}}) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2, 3}) {
      const WithThreads scope(threads);
      results.push_back(ValueOf(RunOp(op, {x})[0].ToVector<float>()));
    }
    EXPECT_EQ(results[0], results[1]) << OpName(op);
    EXPECT_EQ(results[0], results[2]) << OpName(op);
  }
}

// Offsets beyond 2^31: the last elements of a tensor of 2^31 + 2^16 bytes are what they should be.
TEST(Movement, MoreThanTwoToThe31Elements) {
  const int64_t rows = (int64_t{1} << 15) + 1;
  const int64_t columns = int64_t{1} << 16;
  const Tensor column = RunOp(op::Cast{DType::kU8}, {RunOp(op::Iota{rows}, {})[0]})[0];  // modulo 256
  const Tensor huge = RunOp(op::BroadcastTo{{rows, columns}}, {ValueOf(column.Reshaped({rows, 1}))})[0];
  ASSERT_TRUE(huge.valid());
  const Tensor last = RunOp(op::Slice{0, rows - 2, rows}, {huge})[0];
  const Tensor corner = RunOp(op::Slice{1, columns - 2, columns}, {last})[0];
  EXPECT_EQ(Doubles(corner), (std::vector<double>{255, 255, 0, 0}));
  EXPECT_EQ(Doubles(RunOp(op::Slice{0, 257, rows, 32510}, {ValueOf(huge.Reshaped({rows, columns}))})[0]).back(), 255);
}

}  // namespace
}  // namespace gemmill
