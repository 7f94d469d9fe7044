#include "gemmill/runtime/cpu/grouped_pieces.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/plain_gemm.h"
#include "gemmill/runtime/cpu/thin_gemm.h"
#include "gemmill/runtime/status.h"

#ifdef GEMMILL_WITH_ONEDNN
#include "gemmill/runtime/cpu/onednn.h"
#include "gemmill/runtime/cpu/onednn_gemm.h"
#endif

namespace gemmill::cpu {
#ifdef GEMMILL_WITH_ONEDNN
namespace {

// A piece of y is this many rows of an expert, of w this many rows of the matrix.
constexpr int64_t kRows = 256;
constexpr int64_t kOutputs = 256;
// Multiply-adds below which a further thread costs more than it saves.
constexpr double kMultiplyAddsPerThread = 1 << 19;
// Gradients that together are larger go around the caches.
constexpr int64_t kCachedBytes = 16 << 20;

int64_t PiecesOf(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }
int64_t Aligned(int64_t bytes) { return PiecesOf(bytes, 64) * 64; }

// What a piece is computed from: its expert's part of the arguments.
struct Piece {
  const char* first;   // x, or y where w is the result: the expert's first row
  const char* second;  // w, or x
  char* out;
  int64_t rows;   // of the expert
  int64_t begin;  // of the piece, among the rows of y or of w
  int64_t count;
};

// f32: whatever a library or the loops of thin_gemm.h make of so many rows.
class F32Pieces {
 public:
  explicit F32Pieces(const GroupedGemm& gemm) : gemm_(gemm) {}

  int64_t workspace_bytes() const {
    return gemm_.wgrad || !gemm_.trans_b ? 0 : ThinWorkspaceFloats(gemm_.k) * SizeOf(DType::kF32);
  }

  absl::Status Run(const Piece& piece, void* workspace) const {
    const int64_t n = gemm_.n;
    const int64_t k = gemm_.k;
    const float* first = reinterpret_cast<const float*>(piece.first);
    const float* second = reinterpret_cast<const float*>(piece.second);
    float* out = reinterpret_cast<float*>(piece.out);
    if (gemm_.wgrad) {
      first += piece.begin;
      out += piece.begin * k;
      if (IsThin(piece.rows)) {
        const bool past_caches = gemm_.experts * n * k * SizeOf(DType::kF32) > kCachedBytes;
        ThinOuter(piece.rows, piece.count, k, first, n, second, out, past_caches);
        return absl::OkStatus();
      }
      return Checked(dnnl_sgemm('T', 'N', piece.count, k, piece.rows, 1, first, n, second, k, 0, out, k), piece);
    }
    first += piece.begin * k;
    out += piece.begin * n;
    if (gemm_.trans_b && IsThin(piece.count)) {
      ThinTransposed(piece.count, n, k, first, second, out, static_cast<float*>(workspace));
    } else if (!gemm_.trans_b && IsThinUntransposed(piece.count)) {
      ThinUntransposed(piece.count, n, k, first, second, out);
    } else {
      return Checked(dnnl_sgemm('N', gemm_.trans_b ? 'T' : 'N', piece.count, n, k, 1, first, k, second,
                                gemm_.trans_b ? k : n, 0, out, n),
                     piece);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Checked(dnnl_status_t status, const Piece& piece) const {
    if (status == dnnl_success) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("oneDNN failed at ", piece.count, " rows of a grouped matrix product with ",
                                            gemm_.n, " and ", gemm_.k, " columns: ", "status ",
                                            static_cast<int>(status)));
  }

  GroupedGemm gemm_;
};

// bf16: primitives for a few numbers of rows. Others are filled up with zeros, in the workspace.
class Bf16Pieces {
 public:
  // Empty where oneDNN has none.
  static absl::StatusOr<std::optional<Bf16Pieces>> Create(const GroupedGemm& gemm) {
    Bf16Pieces pieces(gemm);
    for (size_t i = 0; i < kBuckets.size(); ++i) {
      const Gemm of_rows =
          gemm.wgrad ? Gemm{.dtype = DType::kBf16,
                            .m = std::min(kOutputs, gemm.n),
                            .n = gemm.k,
                            .k = kBuckets[i],
                            .trans_a = true}
                     : Gemm{.dtype = DType::kBf16, .m = kBuckets[i], .n = gemm.n, .k = gemm.k, .trans_b = gemm.trans_b};
      GM_ASSIGN_OR_RETURN(pieces.primitives_[i], OneDnnGemm::GetPiece(of_rows, gemm.wgrad));
      if (pieces.primitives_[i] == nullptr) return std::nullopt;
      pieces.scratch_bytes_ = std::max(pieces.scratch_bytes_, Aligned(pieces.primitives_[i]->workspace_bytes()));
    }
    return pieces;
  }

  int64_t workspace_bytes() const { return scratch_bytes_ + first_bytes() + second_bytes() + sum_bytes(); }

  absl::Status Run(const Piece& piece, void* workspace) const {
    char* const scratch = static_cast<char*>(workspace);
    char* const first = scratch + scratch_bytes_;
    char* const second = first + first_bytes();
    if (gemm_.wgrad) return RunWgrad(piece, scratch, first, second, reinterpret_cast<float*>(second + second_bytes()));
    const size_t bucket = BucketOf(piece.count);
    const char* x = piece.first + piece.begin * gemm_.k * kSize;
    char* const y = piece.out + piece.begin * gemm_.n * kSize;
    if (kBuckets[bucket] == piece.count) return primitives_[bucket]->Run(x, piece.second, y, scratch);
    FillUp(x, gemm_.k, gemm_.k, piece.count, kBuckets[bucket], first);
    GM_RETURN_IF_ERROR(primitives_[bucket]->Run(first, piece.second, second, scratch));
    std::memcpy(y, second, static_cast<size_t>(piece.count * gemm_.n * kSize));
    return absl::OkStatus();
  }

 private:
  static constexpr std::array<int64_t, 5> kBuckets{16, 32, 64, 128, kRows};
  static constexpr int64_t kSize = 2;

  explicit Bf16Pieces(const GroupedGemm& gemm) : gemm_(gemm) {}

  static size_t BucketOf(int64_t rows) {
    return static_cast<size_t>(std::lower_bound(kBuckets.begin(), kBuckets.end(), rows) - kBuckets.begin());
  }

  int64_t outputs() const { return std::min(kOutputs, gemm_.n); }
  int64_t first_bytes() const { return Aligned(kRows * (gemm_.wgrad ? outputs() : gemm_.k) * kSize); }
  int64_t second_bytes() const { return Aligned(kRows * (gemm_.wgrad ? gemm_.k : gemm_.n) * kSize); }
  int64_t sum_bytes() const { return gemm_.wgrad ? Aligned(outputs() * gemm_.k * SizeOf(DType::kF32)) : 0; }

  // `count` rows of `columns`, which begin `stride` apart, one after another, and zeros up to `rows`.
  static void FillUp(const char* from, int64_t columns, int64_t stride, int64_t count, int64_t rows, char* to) {
    const auto row_bytes = static_cast<size_t>(columns * kSize);
    for (int64_t r = 0; r < count; ++r) std::memcpy(to + r * columns * kSize, from + r * stride * kSize, row_bytes);
    std::memset(to + count * columns * kSize, 0, static_cast<size_t>((rows - count) * columns * kSize));
  }

  // Sums run in f32, over all of the expert's rows, kRows at a time. The last piece has fewer outputs than its
  // primitive, which are followed by zeros.
  absl::Status RunWgrad(const Piece& piece, char* scratch, char* first, char* second, float* sum) const {
    std::memset(sum, 0, static_cast<size_t>(sum_bytes()));
    for (int64_t from = 0; from < piece.rows; from += kRows) {
      const int64_t count = std::min(kRows, piece.rows - from);
      const size_t bucket = BucketOf(count);
      const char* y = piece.first + (from * gemm_.n + piece.begin) * kSize;
      const char* x = piece.second + from * gemm_.k * kSize;
      if (piece.count < outputs()) std::memset(first, 0, static_cast<size_t>(first_bytes()));
      const auto row_bytes = static_cast<size_t>(piece.count * kSize);
      for (int64_t r = 0; r < count; ++r) {
        std::memcpy(first + r * outputs() * kSize, y + r * gemm_.n * kSize, row_bytes);
      }
      const int64_t missing = kBuckets[bucket] - count;
      std::memset(first + count * outputs() * kSize, 0, static_cast<size_t>(missing * outputs() * kSize));
      if (missing > 0) {
        FillUp(x, gemm_.k, gemm_.k, count, kBuckets[bucket], second);
        x = second;
      }
      GM_RETURN_IF_ERROR(primitives_[bucket]->Run(first, x, sum, scratch));
    }
    bf16* const out = reinterpret_cast<bf16*>(piece.out) + piece.begin * gemm_.k;
    for (int64_t i = 0; i < piece.count * gemm_.k; ++i) out[i] = Store<bf16>(sum[i]);
    return absl::OkStatus();
  }

  GroupedGemm gemm_;
  std::array<std::shared_ptr<OneDnnGemm>, kBuckets.size()> primitives_;
  int64_t scratch_bytes_ = 0;
};

// Calls run(piece, slot) for pieces [0, count) on up to `threads` threads, each of which has a slot of its own and
// takes the next piece when it is done. The first error that was met, after which no piece is begun.
template <typename Run>
absl::Status ShareOut(int64_t count, int64_t threads, const Run& run) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  absl::Status status;
  ParallelFor(std::min(threads, count), 1, [&](int64_t slot, int64_t) {
    const onednn::ScopedThreads alone(1);
    for (int64_t piece = next++; piece < count; piece = next++) {
      absl::Status done = run(piece, slot);
      if (done.ok()) continue;
      next = count;
      const std::lock_guard lock(mutex);
      status.Update(std::move(done));
    }
  });
  return status;
}

template <typename Pieces>
Kernel KernelOf(const GroupedGemm& gemm, Pieces pieces) {
  const double multiply_adds =
      static_cast<double>(gemm.rows) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k);
  const auto threads =
      static_cast<int64_t>(std::clamp(multiply_adds / kMultiplyAddsPerThread, 1.0, static_cast<double>(NumThreads())));
  const int64_t slot_bytes = Aligned(pieces.workspace_bytes());
  const int64_t first_bytes = Aligned((gemm.experts + 1) * SizeOf(DType::kI64));
  const int64_t size = SizeOf(gemm.dtype);
  auto run = [=, pieces = std::move(pieces)](const KernelArguments& arguments, Stream&) -> absl::Status {
    const int64_t* offsets = arguments.in<int64_t>(2);
    // Where each expert's pieces begin.
    int64_t* first = static_cast<int64_t*>(arguments.workspace);
    char* const slots = static_cast<char*>(arguments.workspace) + first_bytes;
    const int64_t most = gemm.wgrad ? kOutputs : kRows;
    first[0] = 0;
    for (int64_t e = 0; e < gemm.experts; ++e) {
      first[e + 1] = first[e] + PiecesOf(gemm.wgrad ? gemm.n : offsets[e + 1] - offsets[e], most);
    }
    return ShareOut(first[gemm.experts], threads, [&](int64_t number, int64_t slot) {
      const int64_t e = std::upper_bound(first, first + gemm.experts + 1, number) - first - 1;
      const int64_t rows = offsets[e + 1] - offsets[e];
      const int64_t weights = e * gemm.n * gemm.k;
      const int64_t begin = (number - first[e]) * most;
      Piece piece{.rows = rows, .begin = begin, .count = std::min(most, (gemm.wgrad ? gemm.n : rows) - begin)};
      piece.first = arguments.in<char>(0) + offsets[e] * (gemm.wgrad ? gemm.n : gemm.k) * size;
      piece.second = arguments.in<char>(1) + (gemm.wgrad ? offsets[e] * gemm.k : weights) * size;
      piece.out = arguments.out<char>(0) + (gemm.wgrad ? weights : offsets[e] * gemm.n) * size;
      if (gemm.wgrad && rows == 0) {
        std::memset(piece.out + begin * gemm.k * size, 0, static_cast<size_t>(piece.count * gemm.k * size));
        return absl::OkStatus();
      }
      return pieces.Run(piece, slots + slot * slot_bytes);
    });
  };
  return Kernel{std::move(run), first_bytes + threads * slot_bytes};
}

}  // namespace

absl::StatusOr<std::optional<Kernel>> PreparePieces(const GroupedGemm& gemm) {
  const Gemm whole{.dtype = gemm.dtype, .m = gemm.rows, .n = gemm.n, .k = gemm.k};
  if (!OneDnnCanAddress(whole)) return std::nullopt;
  if (gemm.dtype == DType::kF32) return KernelOf(gemm, F32Pieces(gemm));
  if (gemm.dtype != DType::kBf16) return std::nullopt;
  GM_ASSIGN_OR_RETURN(std::optional<Bf16Pieces> pieces, Bf16Pieces::Create(gemm));
  if (!pieces.has_value()) return std::nullopt;
  return KernelOf(gemm, *std::move(pieces));
}
#else
absl::StatusOr<std::optional<Kernel>> PreparePieces(const GroupedGemm&) { return std::nullopt; }
#endif

}  // namespace gemmill::cpu
