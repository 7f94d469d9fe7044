#include "gemmill/runtime/cpu/grouped_pieces.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/plain_gemm.h"
#include "gemmill/runtime/status.h"

#ifdef GEMMILL_WITH_ONEDNN
#include "gemmill/runtime/cpu/onednn.h"
#endif

namespace gemmill::cpu {
#ifdef GEMMILL_WITH_ONEDNN
namespace {

// A piece of y is this many rows of an expert, of w this many rows of the matrix.
constexpr int64_t kRows = 256;
constexpr int64_t kOutputs = 256;
// Multiply-adds below which a further thread costs more than it saves.
constexpr double kMultiplyAddsPerThread = 1 << 19;

int64_t PiecesOf(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// Calls run(piece) for pieces [0, count), on up to `threads` threads, each of which takes the next when it is done.
template <typename Run>
void ShareOut(int64_t count, int threads, const Run& run) {
  std::atomic<int64_t> next = 0;
  ParallelFor(std::min<int64_t>(threads, count), 1, [&](int64_t, int64_t) {
    for (int64_t piece = next++; piece < count; piece = next++) run(piece);
  });
}

void RunPiece(const GroupedGemm& gemm, const KernelArguments& arguments, const int64_t* offsets, int64_t expert,
              int64_t part) {
  const float* first = arguments.in<float>(0);
  const float* second = arguments.in<float>(1);
  float* out = arguments.out<float>(0);
  const int64_t begin = offsets[expert];
  const int64_t rows = offsets[expert + 1] - begin;
  const int64_t n = gemm.n;
  const int64_t k = gemm.k;
  if (gemm.wgrad) {
    const int64_t from = part * kOutputs;
    const int64_t outputs = std::min(kOutputs, n - from);
    float* const w = out + (expert * n + from) * k;
    if (rows == 0) {
      std::memset(w, 0, static_cast<size_t>(outputs * k) * sizeof(float));
      return;
    }
    dnnl_sgemm('T', 'N', outputs, k, rows, 1, first + begin * n + from, n, second + begin * k, k, 0, w, k);
    return;
  }
  const int64_t from = begin + part * kRows;
  const int64_t count = std::min(kRows, begin + rows - from);
  dnnl_sgemm('N', gemm.trans_b ? 'T' : 'N', count, n, k, 1, first + from * k, k, second + expert * n * k,
             gemm.trans_b ? k : n, 0, out + from * n, n);
}

}  // namespace

absl::StatusOr<std::optional<Kernel>> PreparePieces(const GroupedGemm& gemm) {
  const Gemm whole{.dtype = gemm.dtype, .m = gemm.rows, .n = gemm.n, .k = gemm.k};
  if (gemm.dtype != DType::kF32 || !OneDnnCanAddress(whole)) return std::nullopt;
  const double multiply_adds =
      static_cast<double>(gemm.rows) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k);
  const double most = multiply_adds / kMultiplyAddsPerThread;
  const auto run = [gemm, most](const KernelArguments& arguments, Stream&) {
    const int threads = static_cast<int>(std::clamp(most, 1.0, static_cast<double>(NumThreads())));
    const int64_t* offsets = arguments.in<int64_t>(2);
    // Where each expert's pieces begin.
    int64_t* first = static_cast<int64_t*>(arguments.workspace);
    first[0] = 0;
    for (int64_t e = 0; e < gemm.experts; ++e) {
      first[e + 1] =
          first[e] + (gemm.wgrad ? PiecesOf(gemm.n, kOutputs) : PiecesOf(offsets[e + 1] - offsets[e], kRows));
    }
    ShareOut(first[gemm.experts], threads, [&](int64_t piece) {
      const int64_t expert = std::upper_bound(first, first + gemm.experts + 1, piece) - first - 1;
      RunPiece(gemm, arguments, offsets, expert, piece - first[expert]);
    });
    return absl::OkStatus();
  };
  return Kernel{run, (gemm.experts + 1) * SizeOf(DType::kI64)};
}
#else
absl::StatusOr<std::optional<Kernel>> PreparePieces(const GroupedGemm&) { return std::nullopt; }
#endif

}  // namespace gemmill::cpu
