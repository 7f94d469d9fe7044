#include "gemmill/runtime/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <string>

#include "gemmill/runtime/status.h"

#ifdef GEMMILL_WITH_OPENMP
#include <omp.h>
#endif

namespace gemmill {
namespace {

std::atomic<int> current{0};

// CPUs that cgroup v2 or v1 lets this process use, rounded up; a large number where there is no limit.
int CgroupCpus() {
  constexpr int kUnlimited = 1 << 20;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(std::atof(quota.c_str()) / period)));
  }
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double v1 = 0;
  if (v1_quota >> v1 && v1_period >> period && v1 > 0 && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(v1 / period)));
  }
  return kUnlimited;
}

}  // namespace

int DefaultNumThreads() {
#ifdef GEMMILL_WITH_OPENMP
  // What the process began with: with OMP_PROC_BIND this thread is bound to one processor already.
  const int affinity = omp_get_num_procs();
#else
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affinity = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
#endif
  return std::max(1, std::min(affinity, CgroupCpus()));
}

int NumThreads() {
#ifndef GEMMILL_WITH_OPENMP
  return 1;
#else
  if (current.load(std::memory_order_relaxed) == 0) {
    const absl::Status ignored = SetNumThreads(DefaultNumThreads());
    static_cast<void>(ignored);
  }
  return current.load(std::memory_order_relaxed);
#endif
}

absl::Status SetNumThreads(int threads) {
  if (threads < 1 || threads > 1024) return InvalidArgument("threads is ", threads, ", expected 1 to 1024");
  current = threads;
#ifdef GEMMILL_WITH_OPENMP
  omp_set_num_threads(threads);  // what oneDNN goes by
#endif
  return absl::OkStatus();
}

}  // namespace gemmill
