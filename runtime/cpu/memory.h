// The host's memory, as the device "cpu" has it.
#pragma once

#include <cstdint>

namespace gemmill::cpu {

// 64-byte aligned, uninitialised; null when there is none. Large blocks that are freed are kept for the next allocation
// of the same size, up to a bound: mapping fresh pages costs more than most ops.
void* Allocate(int64_t bytes);
void Free(void* data, int64_t bytes);
// Addresses for `bytes` zeros, which take memory page by page when they are first written; null where the system has no
// more addresses.
void* Reserve(int64_t bytes);
void Unreserve(void* data, int64_t bytes);
void Copy(const void* source, void* destination, int64_t bytes);

// What the process can have at most: the machine's memory and swap, or less where a cgroup says so.
int64_t TotalBytes();

// What the process could still take: the system's available memory and the kept blocks, or less where its cgroups leave
// less.
int64_t AvailableBytes();
int64_t ResidentBytes();

// Gives the kept blocks back to the system.
void ReleaseKept();

}  // namespace gemmill::cpu
