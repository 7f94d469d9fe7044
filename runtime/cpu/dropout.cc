// Dropout, whose mask is a function of the position in the global batch. See philox.h for the counters.
#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/philox.h"

namespace gemmill::cpu {
namespace {

struct Mask {
  uint64_t seed;
  int64_t step;
  int64_t stream;
  uint32_t threshold;
};

template <typename T>
void DropRow(const T* x, int64_t columns, int64_t index, const Mask& mask, ComputeType<T> keep, T* y) {
  constexpr int64_t kBlocks = 64;
  uint32_t words[4 * kBlocks];
  for (int64_t first = 0; first < columns; first += 4 * kBlocks) {
    const int64_t n = std::min(4 * kBlocks, columns - first);
    GM_INDEPENDENT
    for (int64_t b = 0; b < (n + 3) / 4; ++b) {
      philox::GenerateDropout(mask.seed, index, first / 4 + b, mask.step, mask.stream, words + 4 * b);
    }
    GM_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) {
      const ComputeType<T> scaled = Load(x[first + j]) / keep;
      y[first + j] = Store<T>(words[j] >= mask.threshold ? scaled : 0);
    }
  }
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Dropout& op, Specs in, Specs) {
  const int64_t columns = in[0].shape.empty() ? 1 : in[0].shape.back();
  const int64_t rows = in[2].num_elements();
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{.run = [op, rows, columns](const KernelArguments& args, Stream&) {
      const int64_t* key = args.in<int64_t>(1);
      const int64_t* index = args.in<int64_t>(2);
      const Mask mask = {static_cast<uint64_t>(key[0]), key[1], op.stream,
                         static_cast<uint32_t>(philox::DropoutThreshold(op.rate))};
      const ComputeType<T> keep = ComputeType<T>(1) - static_cast<ComputeType<T>>(op.rate);
      ParallelFor(rows, Grain(5 + 0.5 * static_cast<double>(columns)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          DropRow(args.in<T>(0) + r * columns, columns, index[r], mask, keep, args.out<T>(0) + r * columns);
        }
      });
      return absl::OkStatus();
    }};
  });
}

}  // namespace gemmill::cpu
