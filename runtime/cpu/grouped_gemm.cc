// GroupedMatMul and GroupedMatMulWgrad: a GEMM for each expert, of as many rows as it happens to have. Experts are cut
// into pieces, by their rows alone, that threads take one after another: a piece's bits do not depend on who computes
// it, and an expert with most of the rows does not keep one thread busy while others wait.
#include <algorithm>
#include <utility>

#include "gemmill/runtime/cpu/grouped_pieces.h"
#include "gemmill/runtime/cpu/plain_gemm.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

absl::Status CheckOffsets(const int64_t* offsets, int64_t experts, int64_t rows) {
  for (int64_t e = 0; e <= experts; ++e) {
    const int64_t least = e == 0 ? 0 : offsets[e - 1];
    if (offsets[e] >= least && offsets[e] <= rows && (e > 0 || offsets[e] == 0)) continue;
    return OutOfRange("offset ", e, " is ", offsets[e], ", expected ",
                      e == 0 ? "0" : absl::StrCat(least, " to ", rows));
  }
  return absl::OkStatus();
}

void Zero(void* data, int64_t first_byte, int64_t bytes) {
  std::fill_n(static_cast<char*>(data) + first_byte, bytes, char{0});
}

Kernel Nothing(int64_t bytes) {
  return Kernel{[bytes](const KernelArguments& arguments, Stream&) {
    Zero(arguments.outputs[0], 0, bytes);
    return absl::OkStatus();
  }};
}

// One expert after another, each on all threads.
absl::Status RunPlain(const GroupedGemm& gemm, const KernelArguments& arguments) {
  const int64_t* offsets = arguments.in<int64_t>(2);
  const int64_t size = SizeOf(gemm.dtype);
  for (int64_t e = 0; e < gemm.experts; ++e) {
    const int64_t first = offsets[e];
    const int64_t rows = offsets[e + 1] - first;
    const auto at = [&](size_t i, int64_t element) { return arguments.in<char>(i) + element * size; };
    char* const c = arguments.out<char>(0);
    if (gemm.wgrad) {
      const int64_t out = e * gemm.n * gemm.k;
      if (rows == 0) {
        Zero(c, out * size, gemm.n * gemm.k * size);
      } else {
        PlainGemm({.dtype = gemm.dtype, .m = gemm.n, .n = gemm.k, .k = rows, .trans_a = true}, at(0, first * gemm.n),
                  at(1, first * gemm.k), c + out * size);
      }
    } else if (rows > 0) {
      PlainGemm({.dtype = gemm.dtype, .m = rows, .n = gemm.n, .k = gemm.k, .trans_b = gemm.trans_b},
                at(0, first * gemm.k), at(1, e * gemm.n * gemm.k), c + first * gemm.n * size);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Kernel> PrepareGrouped(const GroupedGemm& gemm) {
  const auto run = [gemm](const KernelArguments& arguments, const auto& multiply) {
    const int64_t* offsets = arguments.in<int64_t>(2);
    GM_RETURN_IF_ERROR(CheckOffsets(offsets, gemm.experts, gemm.rows));
    if (!gemm.wgrad) {
      const int64_t end = offsets[gemm.experts];
      const int64_t row_bytes = gemm.n * SizeOf(gemm.dtype);
      Zero(arguments.outputs[0], end * row_bytes, (gemm.rows - end) * row_bytes);
    }
    return multiply();
  };
  GM_ASSIGN_OR_RETURN(std::optional<Kernel> pieces, PreparePieces(gemm));
  if (pieces.has_value()) {
    const int64_t workspace_bytes = pieces->workspace_bytes;
    return Kernel{[run, pieces = *std::move(pieces)](const KernelArguments& arguments, Stream& stream) {
                    return run(arguments, [&] { return pieces.run(arguments, stream); });
                  },
                  workspace_bytes};
  }
  return Kernel{[run, gemm](const KernelArguments& arguments, Stream&) {
    return run(arguments, [&] { return RunPlain(gemm, arguments); });
  }};
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::GroupedMatMul& op, Specs in, Specs out) {
  if (out[0].num_elements() == 0 || in[0].num_elements() == 0) return Nothing(out[0].bytes());
  return PrepareGrouped({.dtype = out[0].dtype,
                         .experts = in[1].shape[0],
                         .rows = in[0].shape[0],
                         .n = out[0].shape[1],
                         .k = in[0].shape[1],
                         .trans_b = op.trans_b});
}

absl::StatusOr<Kernel> Prepare(const op::GroupedMatMulWgrad&, Specs in, Specs out) {
  if (out[0].num_elements() == 0 || in[0].num_elements() == 0) return Nothing(out[0].bytes());
  return PrepareGrouped({.dtype = out[0].dtype,
                         .experts = out[0].shape[0],
                         .rows = in[0].shape[0],
                         .n = in[0].shape[1],
                         .k = in[1].shape[1],
                         .wgrad = true});
}

}  // namespace gemmill::cpu
