// Sums, means, extremes and their places. A reduction is a list of passes [outer, rows, columns] -> [outer, splits,
// columns] over contiguous arrays; a long reduction into few results is split, so that threads have something to share,
// and a further pass joins the splits. How it is split depends on the shape alone: the number of threads does not
// change bits.
#include <cmath>
#include <limits>
#include <utility>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {
namespace {

// What results are kept in between passes, and what blocks are joined in.
template <typename T>
using TotalType = std::conditional_t<std::is_integral_v<T>, T, double>;

constexpr int64_t kTileColumns = 512;  // of a matrix that is summed down its columns
constexpr int64_t kLanes = 64;         // running results of a narrower one
constexpr int64_t kBlock = 64;         // elements that a lane takes before it is added to its total

template <BinaryFn kFn, typename T>
constexpr T Identity() {
  if constexpr (kFn == BinaryFn::kAdd) return T(0);
  using Limits = std::numeric_limits<T>;
  if constexpr (kFn == BinaryFn::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

// Sums by pairs, which rounds less; extremes one by one, which is what GCC vectorises.
template <BinaryFn kFn, typename T>
T Join(T lane, T a, T b, T c, T d) {
  if constexpr (kFn == BinaryFn::kAdd) {
    return scalar::Apply<kFn>(lane, scalar::Apply<kFn>(scalar::Apply<kFn>(a, b), scalar::Apply<kFn>(c, d)));
  } else {
    return scalar::Apply<kFn>(scalar::Apply<kFn>(scalar::Apply<kFn>(scalar::Apply<kFn>(lane, a), b), c), d);
  }
}

// Reduces the rows of a matrix [rows, columns], of which a row begins every `stride` elements, to one row of totals;
// columns <= kTileColumns. Of a narrow contiguous matrix several rows are taken as one, as wide as kLanes allows.
template <BinaryFn kFn, typename T>
void ReduceTile(const T* x, int64_t rows, int64_t columns, int64_t stride, TotalType<T>* totals) {
  using Compute = ComputeType<T>;
  int64_t together = 1;
  if (stride == columns) {
    while (2 * together <= rows && 2 * together * columns <= kLanes) together *= 2;
  }
  const int64_t width = together * columns;
  const int64_t step = together * stride;
  Compute lanes[kTileColumns];
  std::fill(totals, totals + columns, Identity<kFn, TotalType<T>>());
  for (int64_t row = 0; row < rows;) {
    const int64_t stop = std::min(rows, row + kBlock * together);
    std::fill(lanes, lanes + width, Identity<kFn, Compute>());
    for (; row + 4 * together <= stop; row += 4 * together) {
      const T* x0 = x + row * stride;
      GM_INDEPENDENT
      for (int64_t j = 0; j < width; ++j) {
        lanes[j] = Join<kFn>(lanes[j], Load(x0[j]), Load(x0[j + step]), Load(x0[j + 2 * step]), Load(x0[j + 3 * step]));
      }
    }
    while (row < stop) {
      const int64_t left = std::min(together, stop - row);
      const T* x0 = x + row * stride;
      GM_INDEPENDENT
      for (int64_t j = 0; j < left * columns; ++j) lanes[j] = scalar::Apply<kFn>(lanes[j], Load(x0[j]));
      row += left;
    }
    for (int64_t half = width / 2; half >= columns; half /= 2) {
      GM_INDEPENDENT
      for (int64_t j = 0; j < half; ++j) lanes[j] = scalar::Apply<kFn>(lanes[j], lanes[j + half]);
    }
    for (int64_t j = 0; j < columns; ++j) {
      totals[j] = scalar::Apply<kFn>(totals[j], static_cast<TotalType<T>>(lanes[j]));
    }
  }
}

// A result as it is stored: a mean divides by `count`, the others by 1.
template <typename T>
T Finish(TotalType<T> total, double count) {
  if constexpr (std::is_integral_v<T>) {
    return total;
  } else {
    return Store<T>(static_cast<ComputeType<T>>(total / count));
  }
}

struct Pass {
  int64_t outer = 1;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t splits = 1;

  int64_t tiles() const { return (columns + kTileColumns - 1) / kTileColumns; }
};

// Calls store(index, totals, count) for each piece of the pass's result [outer, splits, columns].
template <BinaryFn kFn, typename T, typename StoreFn>
void RunPass(const Pass& pass, const T* x, const StoreFn& store) {
  const int64_t tiles = pass.tiles();
  const int64_t split_rows = (pass.rows + pass.splits - 1) / pass.splits;
  const double item_elements =
      static_cast<double>(split_rows) * static_cast<double>(std::min(pass.columns, kTileColumns));
  ParallelFor(pass.outer * pass.splits * tiles, Grain(5 + 0.1 * item_elements), [&](int64_t begin, int64_t end) {
    TotalType<T> totals[kTileColumns];
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item / tiles;  // of [outer, splits]
      const int64_t column = item % tiles * kTileColumns;
      const int64_t columns = std::min(kTileColumns, pass.columns - column);
      const int64_t first = std::min(pass.rows, part % pass.splits * split_rows);
      const int64_t rows = std::min(split_rows, pass.rows - first);
      const T* tile = x + (part / pass.splits * pass.rows + first) * pass.columns + column;
      ReduceTile<kFn>(tile, rows, columns, pass.columns, totals);
      store(part * pass.columns + column, totals, columns);
    }
  });
}

// The passes that reduce `axes` of `shape`, none of whose dimensions is 0.
std::vector<Pass> MakePasses(const Shape& shape, const Axes& axes) {
  // Neighbouring dimensions with the same fate are one.
  struct Group {
    int64_t size;
    bool reduced;
  };
  std::vector<Group> groups;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (groups.empty() || groups.back().reduced != reduced) groups.push_back({1, reduced});
    groups.back().size *= shape[d];
  }
  std::vector<Pass> passes;
  int64_t columns = 1;
  while (!groups.empty()) {
    const Group group = groups.back();
    groups.pop_back();
    if (!group.reduced) {
      columns *= group.size;
      continue;
    }
    Pass pass = {.rows = group.size, .columns = columns};
    for (const Group& outer : groups) pass.outer *= outer.size;
    constexpr int64_t kItems = 64;
    constexpr int64_t kItemElements = 1 << 15;
    const int64_t tile_elements = pass.rows * std::min(columns, kTileColumns);
    pass.splits = std::max<int64_t>(1, std::min(kItems / (pass.outer * pass.tiles()), tile_elements / kItemElements));
    passes.push_back(pass);
    if (pass.splits > 1) passes.push_back({.outer = pass.outer, .rows = pass.splits, .columns = columns});
  }
  // Nothing to reduce: a pass over a single row.
  if (passes.empty()) passes.push_back({.columns = columns});
  return passes;
}

template <BinaryFn kFn, typename T>
Kernel ReduceKernel(std::vector<Pass> passes, double count) {
  // Results between passes, one after the other.
  int64_t between = 0;
  for (size_t p = 0; p + 1 < passes.size(); ++p) between += passes[p].outer * passes[p].splits * passes[p].columns;
  return {.run =
              [passes = std::move(passes), count](const KernelArguments& args, Stream&) {
                using Total = TotalType<T>;
                Total* results = static_cast<Total*>(args.workspace);
                const auto keep = [&](int64_t index, const Total* totals, int64_t n) {
                  std::copy(totals, totals + n, results + index);
                };
                const auto finish = [&, out = args.out<T>(0)](int64_t index, const Total* totals, int64_t n) {
                  for (int64_t j = 0; j < n; ++j) out[index + j] = Finish<T>(totals[j], count);
                };
                const Total* previous = nullptr;
                for (size_t p = 0; p < passes.size(); ++p) {
                  const bool last = p + 1 == passes.size();
                  if (p == 0) {
                    last ? RunPass<kFn>(passes[p], args.in<T>(0), finish)
                         : RunPass<kFn>(passes[p], args.in<T>(0), keep);
                  } else {
                    last ? RunPass<kFn>(passes[p], previous, finish) : RunPass<kFn>(passes[p], previous, keep);
                  }
                  previous = results;
                  results += passes[p].outer * passes[p].splits * passes[p].columns;
                }
                return absl::OkStatus();
              },
          .workspace_bytes = between * static_cast<int64_t>(sizeof(TotalType<T>))};
}

template <typename T>
Kernel ChooseReduce(ReduceFn fn, std::vector<Pass> passes, double count) {
  switch (fn) {
    case ReduceFn::kSum:
      return ReduceKernel<BinaryFn::kAdd, T>(std::move(passes), 1);
    case ReduceFn::kMean:
      return ReduceKernel<BinaryFn::kAdd, T>(std::move(passes), count);
    case ReduceFn::kMax:
      return ReduceKernel<BinaryFn::kMax, T>(std::move(passes), 1);
    case ReduceFn::kMin:
      return ReduceKernel<BinaryFn::kMin, T>(std::move(passes), 1);
  }
  __builtin_unreachable();
}

template <typename T>
bool IsLarger(T a, T than) {
  return a > than || (a != a && than == than);
}

// Results [begin, end) along the middle of [outer, size, inner]; neighbours are searched together, so that memory is
// read in order.
template <typename T>
void ArgMaxRange(const T* x, int64_t size, int64_t inner, int64_t begin, int64_t end, int64_t* out) {
  constexpr int64_t kTogether = 64;
  while (begin < end) {
    const int64_t n = std::min({end - begin, kTogether, inner - begin % inner});
    const T* lines = x + begin / inner * size * inner + begin % inner;
    int64_t* best = out + begin;
    std::fill(best, best + n, 0);
    for (int64_t k = 1; k < size; ++k) {
      for (int64_t j = 0; j < n; ++j) {
        if (IsLarger(Load(lines[k * inner + j]), Load(lines[best[j] * inner + j]))) best[j] = k;
      }
    }
    begin += n;
  }
}

template <typename T>
double SumOfSquares(const T* x, int64_t n) {
  double lanes[32] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    GM_INDEPENDENT
    for (int64_t j = 0; j < 32; ++j) {
      const double value = static_cast<double>(Load(x[i + j]));
      lanes[j] += value * value;
    }
  }
  for (int64_t j = 0; i < n; ++i, ++j) lanes[j] += static_cast<double>(Load(x[i])) * static_cast<double>(Load(x[i]));
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Reduce& op, Specs in, Specs out) {
  const int64_t results = out[0].num_elements();
  if (in[0].num_elements() == 0) {
    // No results, or sums and means of nothing; 0 is the same bytes in every dtype that Fill makes here.
    const double nothing = op.fn == ReduceFn::kMean ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    return Prepare(op::Fill{.shape = out[0].shape, .dtype = out[0].dtype, .value = nothing}, {}, out);
  }
  std::vector<Pass> passes = MakePasses(in[0].shape, op.axes);
  const int64_t reduced = in[0].num_elements() / results;
  const double count = static_cast<double>(reduced);
  switch (in[0].dtype) {
    case DType::kI32:
      return ChooseReduce<int32_t>(op.fn, std::move(passes), count);
    case DType::kI64:
      return ChooseReduce<int64_t>(op.fn, std::move(passes), count);
    default:
      return DispatchFloating(in[0].dtype, [&](auto tag) {
        return ChooseReduce<typename decltype(tag)::Type>(op.fn, std::move(passes), count);
      });
  }
}

absl::StatusOr<Kernel> Prepare(const op::ArgMax& op, Specs in, Specs out) {
  const Shape& shape = in[0].shape;
  const int64_t inner = NumElements(Shape(shape.begin() + op.axis + 1, shape.end()));
  const int64_t size = shape[static_cast<size_t>(op.axis)];
  const int64_t count = out[0].num_elements();
  return DispatchAny(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{.run = [size, inner, count](const KernelArguments& args, Stream&) {
      ParallelFor(count, Grain(static_cast<double>(size)), [&](int64_t begin, int64_t end) {
        ArgMaxRange(args.in<T>(0), size, inner, begin, end, args.out<int64_t>(0));
      });
      return absl::OkStatus();
    }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::GlobalNorm&, Specs in, Specs) {
  constexpr int64_t kPiece = 1 << 15;
  // Each tensor is cut in pieces, whose sums are added in order.
  struct Piece {
    size_t input;
    int64_t begin;
    int64_t end;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t count = in[i].num_elements();
    for (int64_t begin = 0; begin < count; begin += kPiece)
      pieces.push_back({i, begin, std::min(count, begin + kPiece)});
  }
  const int64_t workspace_bytes = static_cast<int64_t>(pieces.size() * sizeof(double));
  const DType dtype = in.empty() ? DType::kF32 : in[0].dtype;
  return DispatchFloating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{.run =
                      [pieces = std::move(pieces)](const KernelArguments& args, Stream&) {
                        double* sums = static_cast<double*>(args.workspace);
                        const int64_t count = static_cast<int64_t>(pieces.size());
                        ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
                          for (int64_t p = begin; p < end; ++p) {
                            const Piece& piece = pieces[static_cast<size_t>(p)];
                            sums[p] = SumOfSquares(args.in<T>(piece.input) + piece.begin, piece.end - piece.begin);
                          }
                        });
                        double total = 0;
                        for (int64_t p = 0; p < count; ++p) total += sums[p];
                        args.out<float>(0)[0] = static_cast<float>(std::sqrt(total));
                        return absl::OkStatus();
                      },
                  .workspace_bytes = workspace_bytes};
  });
}

}  // namespace gemmill::cpu
