// GatherRows, ScatterAddRows and OneHot. Indices are checked before anything is written.
#include <algorithm>
#include <cstring>

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
      return OutOfRange("index ", i, " is ", index[i], ", expected 0 <= index < ", rows);
    }
  }
  return absl::OkStatus();
}

// The product of the dimensions of `shape` from `first` on.
int64_t CountFrom(const Shape& shape, size_t first) {
  int64_t count = 1;
  for (size_t i = first; i < shape.size(); ++i) count *= shape[i];
  return count;
}

// Adds values [count, columns] into sum [rows, columns], which it zeroes first: every thread owns some of the columns
// and goes through all rows of values in order.
template <typename T, typename Sum, typename Index>
void AddRows(const T* values, const Index* index, int64_t count, int64_t columns, int64_t rows, Sum* sum) {
  const double cost = static_cast<double>((count + rows) * static_cast<int64_t>(sizeof(Sum))) / kBytesPerNanosecond;
  ParallelFor(columns, std::max<int64_t>(Grain(cost + 1), 16), [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) std::fill(sum + row * columns + begin, sum + row * columns + end, Sum{0});
    for (int64_t i = 0; i < count; ++i) {
      const T* value = values + i * columns;
      Sum* to = sum + static_cast<int64_t>(index[i]) * columns;
      for (int64_t j = begin; j < end; ++j) to[j] += Load(value[j]);
    }
  });
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::GatherRows&, Specs in, Specs) {
  const int64_t rows = in[0].shape[0];
  const int64_t row_bytes = CountFrom(in[0].shape, 1) * SizeOf(in[0].dtype);
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
  const int64_t columns = CountFrom(in[0].shape, static_cast<size_t>(op.index_rank));
  // bf16 rows are summed in f32, so that many additions to one row are not lost.
  const bool sum_apart = in[0].dtype == DType::kBf16;
  const int64_t workspace_bytes = sum_apart ? out[0].num_elements() * SizeOf(DType::kF32) : 0;
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return DispatchIndex(in[1].dtype, [&](auto index_tag) {
      using Index = typename decltype(index_tag)::Type;
      return Kernel{[=](const KernelArguments& arguments, Stream&) {
                      const Index* index = arguments.in<Index>(1);
                      GM_RETURN_IF_ERROR(CheckIndices(index, count, rows));
                      const T* values = arguments.in<T>(0);
                      if constexpr (std::is_same_v<T, bf16>) {
                        float* sum = static_cast<float*>(arguments.workspace);
                        AddRows(values, index, count, columns, rows, sum);
                        bf16* y = arguments.out<bf16>(0);
                        ParallelFor(rows * columns, Grain(0.5), [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) y[i] = Store<bf16>(sum[i]);
                        });
                      } else {
                        AddRows(values, index, count, columns, rows, arguments.out<T>(0));
                      }
                      return absl::OkStatus();
                    },
                    workspace_bytes};
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
        const double cost = static_cast<double>(classes * static_cast<int64_t>(sizeof(T))) / kBytesPerNanosecond + 1;
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
