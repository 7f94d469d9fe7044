// How many threads an op may use.
#pragma once

#include "absl/status/status.h"

namespace gemmill {

// The least of this process's CPU affinity and its cgroup's cpu.max, at least 1.
int DefaultNumThreads();

// The current number; DefaultNumThreads() until set. Same number, same bits.
int NumThreads();

// 1 <= threads <= 1024, else InvalidArgument. Not to be called while ops run.
absl::Status SetNumThreads(int threads);

}  // namespace gemmill
