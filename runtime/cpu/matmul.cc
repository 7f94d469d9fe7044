// MatMul: any two shapes of batches become one Gemm, or a loop over equal ones; oneDNN computes them where it can.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gemmill/runtime/cpu/plain_gemm.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/cpu/small_gemm.h"
#include "gemmill/runtime/status.h"

#ifdef GEMMILL_WITH_ONEDNN
#include "gemmill/runtime/cpu/onednn_gemm.h"
#endif

namespace gemmill::cpu {
namespace {

// A batch dimension of the product, and which inputs step through it (the other has 1 there, which is broadcast).
struct BatchDimension {
  int64_t size;
  bool in_a;
  bool in_b;
};

// Outermost first, without those of size 1, neighbours merged where both inputs step through them alike.
std::vector<BatchDimension> BatchDimensions(const Shape& a, const Shape& b, const Shape& c) {
  std::vector<BatchDimension> dimensions;
  for (size_t i = 0; i + 2 < c.size(); ++i) {
    const auto steps = [&](const Shape& x) { return i + x.size() >= c.size() && x[i + x.size() - c.size()] != 1; };
    if (c[i] == 1) continue;
    const BatchDimension next{c[i], steps(a), steps(b)};
    if (!dimensions.empty() && dimensions.back().in_a == next.in_a && dimensions.back().in_b == next.in_b) {
      dimensions.back().size *= next.size;
    } else {
      dimensions.push_back(next);
    }
  }
  return dimensions;
}

// Where one Gemm's matrices start, in elements.
struct Offsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

struct GemmLoop {
  Gemm gemm;
  std::vector<Offsets> offsets;
};

GemmLoop PlanGemms(const op::MatMul& op, const Spec& a, const Spec& b, const Spec& c) {
  std::vector<BatchDimension> dimensions = BatchDimensions(a.shape, b.shape, c.shape);
  Gemm gemm{.dtype = c.dtype,
            .m = c.shape[c.shape.size() - 2],
            .n = c.shape.back(),
            .trans_a = op.trans_a,
            .trans_b = op.trans_b};
  gemm.k = a.shape[a.shape.size() - (op.trans_a ? 2 : 1)];
  const int64_t size_a = gemm.m * gemm.k;
  const int64_t size_b = gemm.k * gemm.n;
  const int64_t size_c = gemm.m * gemm.n;
  // Of a vector both layouts are the same bytes; one way to say it keeps odd strides from oneDNN, and makes fewer
  // shapes.
  gemm.trans_a = gemm.trans_a && gemm.m > 1 && gemm.k > 1;
  gemm.trans_b = gemm.trans_b && gemm.n > 1 && gemm.k > 1;

  Offsets step{size_a, size_b, size_c};
  if (!dimensions.empty()) {
    const BatchDimension inner = dimensions.back();
    dimensions.pop_back();
    if (inner.in_a && !inner.in_b && !gemm.trans_a) {
      gemm.m *= inner.size;  // (inner, M, K) times one (K, N): the rows lie one after the other
    } else {
      gemm.batch = inner.size;
      gemm.batched_a = inner.in_a;
      gemm.batched_b = inner.in_b;
    }
    if (inner.in_a) step.a *= inner.size;
    if (inner.in_b) step.b *= inner.size;
    step.c *= inner.size;
  }

  GemmLoop loop{gemm, {Offsets{}}};
  for (size_t d = dimensions.size(); d-- > 0;) {
    const BatchDimension& outer = dimensions[d];
    const std::vector<Offsets> inside = loop.offsets;
    for (int64_t i = 1; i < outer.size; ++i) {
      for (const Offsets& at : inside) {
        loop.offsets.push_back(
            {at.a + (outer.in_a ? i * step.a : 0), at.b + (outer.in_b ? i * step.b : 0), at.c + i * step.c});
      }
    }
    if (outer.in_a) step.a *= outer.size;
    if (outer.in_b) step.b *= outer.size;
    step.c *= outer.size;
  }
  return loop;
}

// Calls gemm(a, b, c) for each of the loop's products.
template <typename F>
absl::Status ForEach(const GemmLoop& loop, const KernelArguments& arguments, const F& gemm) {
  const int64_t element = SizeOf(loop.gemm.dtype);
  for (const Offsets& at : loop.offsets) {
    GM_RETURN_IF_ERROR(gemm(arguments.in<char>(0) + at.a * element, arguments.in<char>(1) + at.b * element,
                            arguments.out<char>(0) + at.c * element));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::MatMul& op, Specs in, Specs out) {
  const Spec& c = out[0];
  if (c.num_elements() == 0) return Kernel{[](const KernelArguments&, Stream&) { return absl::OkStatus(); }};
  if (in[0].num_elements() == 0) {  // K is 0: sums of nothing
    return Kernel{[bytes = c.bytes()](const KernelArguments& arguments, Stream&) {
      std::memset(arguments.outputs[0], 0, static_cast<size_t>(bytes));
      return absl::OkStatus();
    }};
  }
  GemmLoop loop = PlanGemms(op, in[0], in[1], c);
  if (IsSmall(loop.gemm)) {
    return Kernel{[loop = std::move(loop)](const KernelArguments& arguments, Stream&) {
      return ForEach(loop, arguments, [&](const void* x, const void* y, void* z) {
        SmallGemm(loop.gemm, static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(z));
        return absl::OkStatus();
      });
    }};
  }
#ifdef GEMMILL_WITH_ONEDNN
  GM_ASSIGN_OR_RETURN(const std::shared_ptr<OneDnnGemm> fast, OneDnnGemm::Get(loop.gemm));
  if (fast != nullptr) {
    const auto run = [fast, loop = std::move(loop)](const KernelArguments& arguments, Stream&) {
      return ForEach(loop, arguments,
                     [&](const void* x, const void* y, void* z) { return fast->Run(x, y, z, arguments.workspace); });
    };
    return Kernel{run, fast->workspace_bytes()};
  }
#endif
  return Kernel{[loop = std::move(loop)](const KernelArguments& arguments, Stream&) {
    return ForEach(loop, arguments, [&](const void* x, const void* y, void* z) {
      PlainGemm(loop.gemm, x, y, z);
      return absl::OkStatus();
    });
  }};
}

}  // namespace gemmill::cpu
