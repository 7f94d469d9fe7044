// DispatchRows, CombineRows and DotRows: between tokens and the rows of their choices. Every result is one thread's,
// and its terms are added in the order of a token's choices.
#include <algorithm>
#include <cstring>
#include <utility>

#include "gemmill/runtime/cpu/lanes.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

constexpr double kBytesPerNanosecond = 4;

struct Sizes {
  int64_t tokens;
  int64_t choices;  // of a token
  int64_t rows;
  int64_t columns;
  int64_t grain;  // tokens
  bool weighted = false;
};

Sizes SizesOf(const Spec& row, const Spec& values, int64_t rows, bool weighted) {
  const int64_t columns = values.shape[1];
  const double bytes = static_cast<double>(row.shape[1] * columns * SizeOf(values.dtype) * 2);
  return {row.shape[0], row.shape[1], rows, columns, Grain(bytes / kBytesPerNanosecond + 10), weighted};
}

// Each of `row` is -1 or a row of its own; those that are used are marked.
absl::Status MarkRows(const Sizes& sizes, const int64_t* row, uint8_t* used) {
  std::fill_n(used, sizes.rows, uint8_t{0});
  for (int64_t i = 0; i < sizes.tokens * sizes.choices; ++i) {
    if (row[i] == -1) continue;
    if (row[i] < -1 || row[i] >= sizes.rows) {
      return OutOfRange("choice ", i, " has row ", row[i], ", expected -1 to ", sizes.rows - 1);
    }
    if (used[row[i]] != 0) return InvalidArgument("row ", row[i], " belongs to two choices, the second is ", i);
    used[row[i]] = 1;
  }
  return absl::OkStatus();
}

template <typename T, typename C = ComputeType<T>>
void Scale(const T* x, C weight, int64_t n, T* y) {
  GM_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) y[j] = Store<T>(weight * Load(x[j]));
}

// y = the sum over a token's choices of weight * row; without weights they are 1.
template <typename T, typename C = ComputeType<T>>
void Combine(const Sizes& sizes, const T* rows, const int64_t* row, const C* weights, T* y) {
  ForEachLanes<C>(sizes.columns, [&](int64_t j, auto count) {
    Lanes<C> sum = {};
    for (int64_t choice = 0; choice < sizes.choices; ++choice) {
      if (row[choice] < 0) continue;
      Lanes<C> lanes;
      LoadLanes<C>(rows + row[choice] * sizes.columns + j, count, C{0}, lanes);
      sum += weights == nullptr ? lanes : weights[choice] * lanes;
    }
    StoreLanes<C>(sum, y + j, count);
  });
}

template <typename T, typename C = ComputeType<T>>
C Dot(const T* a, const T* b, int64_t n) {
  RowSum<C> sum;
  ForEachLanes<C>(n, [&](int64_t j, auto count) {
    Lanes<C> left, right;
    LoadLanes<C>(a + j, count, C{0}, left);
    LoadLanes<C>(b + j, count, C{0}, right);
    sum.Add(left * right);
  });
  return static_cast<C>(sum.Total());
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::DispatchRows&, Specs in, Specs out) {
  const Sizes sizes = SizesOf(in[1], in[0], out[0].shape[0], in.size() > 2);
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeType<T>;
    return Kernel{[sizes](const KernelArguments& arguments, Stream&) {
                    const int64_t* row = arguments.in<int64_t>(1);
                    const C* weights = sizes.weighted ? arguments.in<C>(2) : nullptr;
                    uint8_t* used = static_cast<uint8_t*>(arguments.workspace);
                    T* y = arguments.out<T>(0);
                    GM_RETURN_IF_ERROR(MarkRows(sizes, row, used));
                    const size_t row_bytes = static_cast<size_t>(sizes.columns) * sizeof(T);
                    ParallelFor(sizes.tokens, sizes.grain, [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin * sizes.choices; i < end * sizes.choices; ++i) {
                        if (row[i] < 0) continue;
                        const T* from = arguments.in<T>(0) + i / sizes.choices * sizes.columns;
                        T* const to = y + row[i] * sizes.columns;
                        if (weights == nullptr) {
                          std::memcpy(to, from, row_bytes);
                        } else {
                          Scale(from, weights[i], sizes.columns, to);
                        }
                      }
                    });
                    for (int64_t r = 0; r < sizes.rows; ++r) {
                      if (used[r] == 0) std::fill_n(y + r * sizes.columns, sizes.columns, Store<T>(C{0}));
                    }
                    return absl::OkStatus();
                  },
                  sizes.rows};
  });
}

absl::StatusOr<Kernel> Prepare(const op::CombineRows&, Specs in, Specs) {
  const Sizes sizes = SizesOf(in[1], in[0], in[0].shape[0], in.size() > 2);
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeType<T>;
    return Kernel{[sizes](const KernelArguments& arguments, Stream&) {
                    const int64_t* row = arguments.in<int64_t>(1);
                    const C* weights = sizes.weighted ? arguments.in<C>(2) : nullptr;
                    GM_RETURN_IF_ERROR(MarkRows(sizes, row, static_cast<uint8_t*>(arguments.workspace)));
                    ParallelFor(sizes.tokens, sizes.grain, [&](int64_t begin, int64_t end) {
                      for (int64_t token = begin; token < end; ++token) {
                        const int64_t first = token * sizes.choices;
                        Combine(sizes, arguments.in<T>(0), row + first, weights == nullptr ? nullptr : weights + first,
                                arguments.out<T>(0) + token * sizes.columns);
                      }
                    });
                    return absl::OkStatus();
                  },
                  sizes.rows};
  });
}

absl::StatusOr<Kernel> Prepare(const op::DotRows&, Specs in, Specs) {
  const Sizes sizes = SizesOf(in[1], in[0], in[0].shape[0], false);
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeType<T>;
    return Kernel{[sizes](const KernelArguments& arguments, Stream&) {
                    const int64_t* row = arguments.in<int64_t>(1);
                    GM_RETURN_IF_ERROR(MarkRows(sizes, row, static_cast<uint8_t*>(arguments.workspace)));
                    ParallelFor(sizes.tokens, sizes.grain, [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin * sizes.choices; i < end * sizes.choices; ++i) {
                        const T* x = arguments.in<T>(2) + i / sizes.choices * sizes.columns;
                        arguments.out<C>(0)[i] =
                            row[i] < 0 ? C{0} : Dot(arguments.in<T>(0) + row[i] * sizes.columns, x, sizes.columns);
                      }
                    });
                    return absl::OkStatus();
                  },
                  sizes.rows};
  });
}

}  // namespace gemmill::cpu
