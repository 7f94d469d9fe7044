#include "tests/memory/count_allocations.h"

#include <execinfo.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#ifdef GEMMILL_WITH_ONEDNN
#include "oneapi/dnnl/dnnl.h"
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define GEMMILL_COUNTS 0
#else
#define GEMMILL_COUNTS 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<int> inside_library{0};  // of the whole process: the library's threads take memory too
std::atomic<int64_t> own{0};
std::atomic<int64_t> libraries{0};
constexpr int kMostFrames = 24;
void* frames[kMostFrames];
int frame_count = 0;
thread_local bool busy = false;  // walking the stack may take memory itself

[[maybe_unused]] void Count() {
  if (!counting.load(std::memory_order_relaxed) || busy) return;
  if (inside_library.load(std::memory_order_relaxed) > 0) {
    ++libraries;
    return;
  }
  if (own++ > 0) return;
  busy = true;
  frame_count = backtrace(static_cast<void**>(frames), kMostFrames);
  busy = false;
}

}  // namespace

#if GEMMILL_COUNTS
extern "C" {

void* __libc_malloc(size_t bytes);                  // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(size_t count, size_t bytes);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* data, size_t bytes);     // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(size_t align, size_t bytes);  // NOLINT(bugprone-reserved-identifier)

// operator new, aligned or not, comes down to these.
void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, size_t bytes) {
  Count();
  return __libc_realloc(data, bytes);
}
void* aligned_alloc(size_t align, size_t bytes) {
  Count();
  return __libc_memalign(align, bytes);
}
void* memalign(size_t align, size_t bytes) {
  Count();
  return __libc_memalign(align, bytes);
}
int posix_memalign(void** data, size_t align, size_t bytes) {
  Count();
  *data = __libc_memalign(align, bytes);
  return *data == nullptr ? ENOMEM : 0;
}

}  // extern "C"
#endif

#ifdef GEMMILL_WITH_ONEDNN
// The linker sends the calls of Gemmill here (--wrap).
extern "C" dnnl_status_t __real_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                                       int count, const dnnl_exec_arg_t* arguments);
extern "C" dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                                       int count, const dnnl_exec_arg_t* arguments) {
  ++inside_library;
  const dnnl_status_t status = __real_dnnl_primitive_execute(primitive, stream, count, arguments);
  --inside_library;
  return status;
}
#endif

namespace gemmill {

bool CanCountAllocations() { return GEMMILL_COUNTS != 0; }

CountAllocations::CountAllocations() {
  void* warm[1];
  backtrace(static_cast<void**>(warm), 1);  // loads what it needs
  own = 0;
  libraries = 0;
  frame_count = 0;
  counting = true;
}
CountAllocations::~CountAllocations() { counting = false; }
AllocationCounts CountAllocations::counts() const { return {own, libraries}; }

std::string FirstOwnAllocation() {
  std::string text;
  char** const names = backtrace_symbols(static_cast<void**>(frames), frame_count);
  for (int i = 0; i < frame_count && names != nullptr; ++i) text.append(names[i]).append("\n");
  std::free(static_cast<void*>(names));
  return text;
}

}  // namespace gemmill
