// GatherRows, ScatterAddRows and OneHot. Indices are checked before anything is written.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

constexpr double kBytesPerNanosecond = 4;

// OutOfRange for the first index outside [0, rows).
template <typename Index>
absl::Status CheckIndices(const Index* index, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= rows) {
      return OutOfRange("entry ", i, " of the indices is ", index[i], ", expected 0 to ", rows - 1);
    }
  }
  return absl::OkStatus();
}

// The elements of a row: the dimensions of `shape` from `first` on.
int64_t RowElements(const Shape& shape, size_t first) {
  return NumElements(Shape(shape.begin() + static_cast<int64_t>(first), shape.end()));
}

// Additions to one row beyond which it is summed in f64, where an f32 would lose them.
constexpr int64_t kFewAdditions = 256;

// Gives each row that gets more than kFewAdditions a number, from 0 on, and -1 to the others.
template <typename Index>
void NumberLongSums(const Index* index, int64_t count, int64_t rows, int64_t* numbers) {
  std::fill(numbers, numbers + rows, 0);
  for (int64_t i = 0; i < count; ++i) ++numbers[index[i]];
  int64_t next = 0;
  for (int64_t row = 0; row < rows; ++row) numbers[row] = numbers[row] > kFewAdditions ? next++ : -1;
}

// Adds values [count, columns] into sum [rows, columns], which it zeroes first, through `long_sums` where a row has a
// number: every thread owns some of the columns and goes through all rows of values in order.
template <typename T, typename Sum, typename Index>
void AddRows(const T* values, const Index* index, int64_t count, int64_t columns, int64_t rows, const int64_t* numbers,
             double* long_sums, Sum* sum) {
  const auto add = [](const T* value, int64_t n, auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    for (int64_t j = 0; j < n; ++j) to[j] += static_cast<To>(Load(value[j]));
  };
  const double cost = static_cast<double>((count + rows) * static_cast<int64_t>(sizeof(Sum))) / kBytesPerNanosecond;
  ParallelFor(columns, std::max<int64_t>(Grain(cost + 1), 16), [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) {
      std::fill(sum + row * columns + begin, sum + row * columns + end, Sum{0});
      if (numbers[row] < 0) continue;
      std::fill(long_sums + numbers[row] * columns + begin, long_sums + numbers[row] * columns + end, 0.0);
    }
    for (int64_t i = 0; i < count; ++i) {
      const T* value = values + i * columns + begin;
      const int64_t row = static_cast<int64_t>(index[i]);
      if (numbers[row] < 0) {
        add(value, end - begin, sum + row * columns + begin);
      } else {
        add(value, end - begin, long_sums + numbers[row] * columns + begin);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      if (numbers[row] < 0) continue;
      const double* from = long_sums + numbers[row] * columns;
      for (int64_t j = begin; j < end; ++j) sum[row * columns + j] = static_cast<Sum>(from[j]);
    }
  });
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::GatherRows&, Specs in, Specs out) {
  const int64_t rows = in[0].shape[0];
  const int64_t row_bytes = out[0].num_elements() == 0 ? 0 : RowElements(in[0].shape, 1) * SizeOf(in[0].dtype);
  return DispatchIndex(in[1].dtype, [&](auto tag) {
    using Index = typename decltype(tag)::Type;
    return Kernel{[rows, row_bytes, count = in[1].num_elements()](const KernelArguments& arguments, Stream&) {
      const Index* index = arguments.in<Index>(1);
      GM_RETURN_IF_ERROR(CheckIndices(index, count, rows));
      if (row_bytes == 0) return absl::OkStatus();
      const double cost = static_cast<double>(row_bytes) / kBytesPerNanosecond + 1;
      ParallelFor(count, Grain(cost), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          std::memcpy(arguments.out<char>(0) + i * row_bytes,
                      arguments.in<char>(0) + static_cast<int64_t>(index[i]) * row_bytes,
                      static_cast<size_t>(row_bytes));
        }
      });
      return absl::OkStatus();
    }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::ScatterAddRows& op, Specs in, Specs out) {
  const int64_t rows = op.rows;
  const int64_t count = in[1].num_elements();
  const int64_t columns = RowElements(in[0].shape, static_cast<size_t>(op.index_rank));
  const int64_t elements = out[0].num_elements();
  // The workspace: a number for each row, the long sums, and the sums of bf16, which are f32.
  const int64_t wide = elements == 0 ? 0 : rows + count / (kFewAdditions + 1) * columns;
  GM_ASSIGN_OR_RETURN(const int64_t wides, CheckedNumElements({wide}, SizeOf(DType::kF64)));
  const int64_t narrow_bytes = in[0].dtype == DType::kBf16 ? elements * SizeOf(DType::kF32) : 0;
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return DispatchIndex(in[1].dtype, [&](auto index_tag) {
      using Index = typename decltype(index_tag)::Type;
      return Kernel{[=](const KernelArguments& arguments, Stream&) {
                      const Index* index = arguments.in<Index>(1);
                      GM_RETURN_IF_ERROR(CheckIndices(index, count, rows));
                      if (elements == 0) return absl::OkStatus();
                      const T* values = arguments.in<T>(0);
                      int64_t* numbers = static_cast<int64_t*>(arguments.workspace);
                      double* long_sums = reinterpret_cast<double*>(numbers + rows);
                      NumberLongSums(index, count, rows, numbers);
                      if constexpr (std::is_same_v<T, bf16>) {
                        float* sum = reinterpret_cast<float*>(numbers + wides);
                        AddRows(values, index, count, columns, rows, numbers, long_sums, sum);
                        bf16* y = arguments.out<bf16>(0);
                        ParallelFor(elements, Grain(0.5), [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) y[i] = Store<bf16>(sum[i]);
                        });
                      } else {
                        AddRows(values, index, count, columns, rows, numbers, long_sums, arguments.out<T>(0));
                      }
                      return absl::OkStatus();
                    },
                    wides * SizeOf(DType::kF64) + narrow_bytes};
    });
  });
}

absl::StatusOr<Kernel> Prepare(const op::OneHot& op, Specs in, Specs) {
  return DispatchAny(op.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return DispatchIndex(in[0].dtype, [&](auto index_tag) {
      using Index = typename decltype(index_tag)::Type;
      return Kernel{[count = in[0].num_elements(), classes = op.classes](const KernelArguments& arguments, Stream&) {
        const Index* index = arguments.in<Index>(0);
        GM_RETURN_IF_ERROR(CheckIndices(index, count, classes));
        const double cost = static_cast<double>(classes) * sizeof(T) / kBytesPerNanosecond + 1;
        ParallelFor(count, Grain(cost), [&](int64_t begin, int64_t end) {
          T* y = arguments.out<T>(0);
          std::fill(y + begin * classes, y + end * classes, T{});
          for (int64_t i = begin; i < end; ++i) y[i * classes + static_cast<int64_t>(index[i])] = static_cast<T>(1);
        });
        return absl::OkStatus();
      }};
    });
  });
}

}  // namespace gemmill::cpu
