#include "gemmill/runtime/cpu/memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace gemmill::cpu {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kSmallest = 64 << 10;  // below this the C library keeps blocks by itself
constexpr int64_t kMostKept = int64_t{1} << 30;

struct Kept {
  std::mutex mutex;
  std::map<int64_t, std::vector<void*>> by_size;
  int64_t bytes = 0;
};

Kept& kept() {
  static Kept* const instance = new Kept;  // never destroyed: tensors may outlive static objects
  return *instance;
}

// The number in a file of cgroup's; where there is none (no such file, or "max"), the largest.
int64_t CgroupLimit(const char* path) {
  int64_t limit = 0;
  return std::ifstream(path) >> limit ? limit : std::numeric_limits<int64_t>::max();
}

// Of this process's cgroups of memory, from its own to the root: the least that a limit leaves. What the kernel can
// take back from files that were read (inactive_file) is not in use.
int64_t CgroupAvailable() {
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto look = [&](const std::string& folder, const char* limit, const char* usage, const char* inactive) {
    const int64_t most = CgroupLimit((folder + limit).c_str());
    if (most >= TotalBytes()) return;
    const int64_t used = CgroupLimit((folder + usage).c_str());
    int64_t reclaimable = 0;
    std::ifstream stat(folder + "/memory.stat");
    std::string key;
    for (int64_t value = 0; stat >> key >> value;) {
      if (key == inactive) reclaimable = value;
    }
    least = std::min(least, std::max<int64_t>(0, most - std::min(used, most) + std::min(reclaimable, used)));
  };
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t path_at = line.find(':', line.find(':') + 1) + 1;
    std::string path = line.substr(path_at);
    const std::string controllers = line.substr(0, path_at);
    const bool v2 = line.rfind("0::", 0) == 0;
    if (!v2 && controllers.find(":memory:") == std::string::npos) continue;
    while (true) {
      if (path == "/") path.clear();
      if (v2) look("/sys/fs/cgroup" + path, "/memory.max", "/memory.current", "inactive_file");
      if (!v2) {
        look("/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
      }
      if (path.empty()) break;
      const size_t parent = path.rfind('/');
      path.resize(parent == std::string::npos ? 0 : parent);
    }
  }
  return least;
}

int64_t ReadTotalBytes() {
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) return std::numeric_limits<int64_t>::max();
  const int64_t unit = machine.mem_unit;
  const int64_t memory =
      std::min({static_cast<int64_t>(machine.totalram) * unit, CgroupLimit("/sys/fs/cgroup/memory.max"),
                CgroupLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  const int64_t swap =
      std::min(static_cast<int64_t>(machine.totalswap) * unit, CgroupLimit("/sys/fs/cgroup/memory.swap.max"));
  return memory + swap;
}

int64_t Rounded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

void* Allocate(int64_t bytes) {
  if (bytes < 0 || bytes > std::numeric_limits<int64_t>::max() - kAlign) return nullptr;
  const int64_t size = Rounded(bytes == 0 ? 1 : bytes);
  if (size >= kSmallest) {
    std::lock_guard<std::mutex> lock(kept().mutex);
    const auto found = kept().by_size.find(size);
    if (found != kept().by_size.end() && !found->second.empty()) {
      void* data = found->second.back();
      found->second.pop_back();
      kept().bytes -= size;
      return data;
    }
  }
  void* data = std::aligned_alloc(kAlign, static_cast<size_t>(size));
  if (data == nullptr) {
    ReleaseKept();
    data = std::aligned_alloc(kAlign, static_cast<size_t>(size));
  }
  return data;
}

void Free(void* data, int64_t bytes) {
  const int64_t size = Rounded(bytes == 0 ? 1 : bytes);
  if (size >= kSmallest) {
    std::lock_guard<std::mutex> lock(kept().mutex);
    if (kept().bytes + size <= kMostKept) {
      kept().by_size[size].push_back(data);
      kept().bytes += size;
      return;
    }
  }
  std::free(data);
}

void* Reserve(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(std::max<int64_t>(bytes, 1)), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void Unreserve(void* data, int64_t bytes) { munmap(data, static_cast<size_t>(std::max<int64_t>(bytes, 1))); }

void Copy(const void* source, void* destination, int64_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, static_cast<size_t>(bytes));
}

int64_t TotalBytes() {
  static const int64_t total = ReadTotalBytes();
  return total;
}

int64_t AvailableBytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t value = 0; file >> key >> value;) {
    std::getline(file, unit);
    if (key == "MemAvailable:") {
      available = value * 1024;
      break;
    }
  }
  const std::lock_guard<std::mutex> lock(kept().mutex);
  return std::min(available, CgroupAvailable()) + kept().bytes;
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  return file >> size >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

void ReleaseKept() {
  std::lock_guard<std::mutex> lock(kept().mutex);
  for (auto& [size, blocks] : kept().by_size) {
    for (void* block : blocks) std::free(block);
  }
  kept().by_size.clear();
  kept().bytes = 0;
}

}  // namespace gemmill::cpu
