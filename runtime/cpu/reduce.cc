// Sums, means, extremes and their places (reduce_pass.h has the walk).
#include <cmath>
#include <limits>
#include <utility>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/cpu/reduce_pass.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill::cpu {
namespace {

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
  // Each tensor is cut in pieces, whose sums are added in order: that of their place within their tensors, so that a
  // thread takes the same share of each, as the optimizer's update does.
  struct Piece {
    double (*sum)(const void* x, int64_t begin, int64_t end);
    size_t input;
    int64_t begin;
    int64_t end;
    double place;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < in.size(); ++i) {
    const auto sum = DispatchFloating(in[i].dtype, [](auto tag) {
      return +[](const void* x, int64_t begin, int64_t end) {
        return SumOfSquares(static_cast<const typename decltype(tag)::Type*>(x) + begin, end - begin);
      };
    });
    const int64_t count = in[i].num_elements();
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const double place = static_cast<double>(begin) / static_cast<double>(count);
      pieces.push_back({sum, i, begin, std::min(count, begin + kPiece), place});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.place < b.place; });
  const int64_t workspace_bytes = static_cast<int64_t>(pieces.size() * sizeof(double));
  return Kernel{[pieces = std::move(pieces)](const KernelArguments& args, Stream&) {
                  double* sums = static_cast<double*>(args.workspace);
                  const int64_t count = static_cast<int64_t>(pieces.size());
                  ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
                    for (int64_t p = begin; p < end; ++p) {
                      const Piece& piece = pieces[static_cast<size_t>(p)];
                      sums[p] = piece.sum(args.inputs[piece.input], piece.begin, piece.end);
                    }
                  });
                  double total = 0;
                  for (int64_t p = 0; p < count; ++p) total += sums[p];
                  args.out<float>(0)[0] = static_cast<float>(std::sqrt(total));
                  return absl::OkStatus();
                },
                workspace_bytes};
}

}  // namespace gemmill::cpu
