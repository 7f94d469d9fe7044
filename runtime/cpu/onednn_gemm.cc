#ifdef GEMMILL_WITH_ONEDNN

#include "gemmill/runtime/cpu/onednn_gemm.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "gemmill/runtime/status.h"
#include "gemmill/runtime/threads.h"

namespace gemmill::cpu {
namespace {

// Multiply-adds below which a further thread costs more than it saves.
constexpr double kMultiplyAddsPerThread = 1 << 19;

// Primitives kept. One that is dropped lives on in the kernels that hold it, and oneDNN's own cache makes it again in
// microseconds.
constexpr size_t kMostKept = 1024;

int ThreadsFor(const Gemm& gemm) {
  const double multiply_adds = static_cast<double>(gemm.batch) * static_cast<double>(gemm.m) *
                               static_cast<double>(gemm.n) * static_cast<double>(gemm.k);
  return static_cast<int>(std::clamp(multiply_adds / kMultiplyAddsPerThread, 1.0, static_cast<double>(NumThreads())));
}

// A batch of row-major (rows, columns) matrices, or, if `transposed`, of what lies in memory as (columns, rows).
dnnl::memory::desc Matrices(const Gemm& gemm, DType dtype, bool batched, int64_t rows, int64_t columns,
                            bool transposed) {
  const dnnl::memory::dim row_stride = transposed ? 1 : columns;
  const dnnl::memory::dim column_stride = transposed ? rows : 1;
  const auto type = dtype == DType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  if (gemm.batch == 1) {
    return {dnnl::memory::dims{rows, columns}, type, dnnl::memory::dims{row_stride, column_stride}};
  }
  return {dnnl::memory::dims{batched ? gemm.batch : 1, rows, columns}, type,
          dnnl::memory::dims{rows * columns, row_stride, column_stride}};
}

absl::Status Failed(const Gemm& gemm, const char* what) {
  return absl::InternalError(absl::StrCat("oneDNN failed at a ", DTypeName(gemm.dtype), " matrix product of ",
                                          gemm.batch, " x (", gemm.m, ", ", gemm.k, ") (", gemm.k, ", ", gemm.n,
                                          "): ", what));
}

}  // namespace

std::shared_ptr<OneDnnGemm> OneDnnGemm::Create(const Key& key) {
  const Gemm& gemm = key.gemm;
  const onednn::ScopedThreads scoped(key.threads);
  auto created = std::make_shared<OneDnnGemm>();
  created->gemm_ = gemm;
  created->threads_ = key.threads;
  created->a_ = Matrices(gemm, gemm.dtype, gemm.batched_a, gemm.m, gemm.k, gemm.trans_a);
  created->b_ = Matrices(gemm, gemm.dtype, gemm.batched_b, gemm.k, gemm.n, gemm.trans_b);
  created->c_ = Matrices(gemm, key.sum ? DType::kF32 : gemm.dtype, true, gemm.m, gemm.n, false);
  dnnl::primitive_attr attributes = onednn::UserScratchpad();
  if (key.sum) {
    dnnl::post_ops add;
    add.append_sum();
    attributes.set_post_ops(add);
  }
  const auto descriptor = onednn::MatMulDescriptor(created->a_, created->b_, created->c_, attributes);
  if (!descriptor) return nullptr;
  created->primitive_ = dnnl::matmul(descriptor);
  created->workspace_ = descriptor.scratchpad_desc();
  created->workspace_bytes_ = static_cast<int64_t>(created->workspace_.get_size());
  created->kept_ = created->NewArguments();
  return created;
}

absl::StatusOr<std::shared_ptr<OneDnnGemm>> OneDnnGemm::Get(const Gemm& gemm) {
  return Get(Key{.gemm = gemm, .threads = ThreadsFor(gemm)});
}

absl::StatusOr<std::shared_ptr<OneDnnGemm>> OneDnnGemm::GetPiece(const Gemm& gemm, bool sum) {
  return Get(Key{.gemm = gemm, .sum = sum});
}

absl::StatusOr<std::shared_ptr<OneDnnGemm>> OneDnnGemm::Get(const Key& key) {
  if (key.gemm.dtype != DType::kF32 && key.gemm.dtype != DType::kBf16) return nullptr;
  if (!OneDnnCanAddress(key.gemm)) return nullptr;
  static std::mutex& mutex = *new std::mutex;
  static auto& kept = *new std::map<Key, std::shared_ptr<OneDnnGemm>>;
  const std::lock_guard lock(mutex);
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  try {
    if (kept.size() >= kMostKept) kept.clear();
    return kept.emplace(key, Create(key)).first->second;
  } catch (const dnnl::error& error) {
    return Failed(key.gemm, error.what());
  }
}

absl::Status OneDnnGemm::Run(const void* a, const void* b, void* c, void* workspace) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  try {
    Arguments own;
    if (!lock.owns_lock()) own = NewArguments();
    Arguments& arguments = lock.owns_lock() ? kept_ : own;
    arguments.a.set_data_handle(const_cast<void*>(a));
    arguments.b.set_data_handle(const_cast<void*>(b));
    arguments.c.set_data_handle(c);
    arguments.workspace.set_data_handle(workspace);
    // What dnnl::primitive::execute does, without its map on the heap.
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_SRC, arguments.a.get()},
                                    {DNNL_ARG_WEIGHTS, arguments.b.get()},
                                    {DNNL_ARG_DST, arguments.c.get()},
                                    {DNNL_ARG_SCRATCHPAD, arguments.workspace.get()}};
    const onednn::ScopedThreads scoped(threads_);
    thread_local dnnl::stream stream(onednn::CpuEngine());
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(), std::size(list), list),
                            "could not execute");
    stream.wait();
  } catch (const dnnl::error& error) {
    return Failed(gemm_, error.what());
  }
  return absl::OkStatus();
}

OneDnnGemm::Arguments OneDnnGemm::NewArguments() const {
  const dnnl::engine& engine = onednn::CpuEngine();
  return {dnnl::memory(a_, engine, nullptr), dnnl::memory(b_, engine, nullptr), dnnl::memory(c_, engine, nullptr),
          dnnl::memory(workspace_, engine, nullptr)};
}

}  // namespace gemmill::cpu

#endif  // GEMMILL_WITH_ONEDNN
