// OneDnnGemm: a Gemm made ready as a oneDNN primitive. Making one takes oneDNN 0.15 to 6 ms, so they are kept by shape
// and shared. Include it only where GEMMILL_WITH_ONEDNN is defined.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmill/runtime/cpu/onednn.h"
#include "gemmill/runtime/cpu/plain_gemm.h"

namespace gemmill::cpu {

class OneDnnGemm {
 public:
  // The primitive for `gemm` at the current NumThreads(); null where oneDNN has none on this machine (f64; bf16 on
  // older instruction sets) or none that is right (OneDnnCanAddress). Any thread may call it.
  static absl::StatusOr<std::shared_ptr<OneDnnGemm>> Get(const Gemm& gemm);

  // As a piece of something larger: for one thread, and for `sum` with a C of f32, whatever the dtype, which the
  // product is added to.
  static absl::StatusOr<std::shared_ptr<OneDnnGemm>> GetPiece(const Gemm& gemm, bool sum);

  OneDnnGemm() = default;  // for Get alone

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Several threads may call it at once, each with a workspace of its own.
  absl::Status Run(const void* a, const void* b, void* c, void* workspace);

 private:
  struct Arguments {
    dnnl::memory a;
    dnnl::memory b;
    dnnl::memory c;
    dnnl::memory workspace;
  };

  struct Key {
    Gemm gemm;
    int threads = 1;
    bool sum = false;
    auto operator<=>(const Key&) const = default;
  };
  static absl::StatusOr<std::shared_ptr<OneDnnGemm>> Get(const Key& key);
  // Throws dnnl::error.
  static std::shared_ptr<OneDnnGemm> Create(const Key& key);
  Arguments NewArguments() const;

  Gemm gemm_;
  int threads_ = 1;
  dnnl::matmul primitive_;
  dnnl::memory::desc a_, b_, c_, workspace_;
  int64_t workspace_bytes_ = 0;

  // Making four memory objects costs a microsecond, more than a small GEMM: one set is kept, for whoever comes first.
  std::mutex mutex_;
  Arguments kept_;
};

}  // namespace gemmill::cpu
