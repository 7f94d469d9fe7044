// Counts what this process takes from the heap, while it is asked to: malloc and its kin are replaced in the whole
// executable, libraries included, and what is taken inside a call of oneDNN (its threads' too) is told from the rest.
#pragma once

#include <cstdint>
#include <string>

namespace gemmill {

struct AllocationCounts {
  int64_t own = 0;
  int64_t libraries = 0;  // inside oneDNN's execute
};

// False in builds with sanitizers, which have a malloc of their own.
bool CanCountAllocations();

class CountAllocations {
 public:
  CountAllocations();
  ~CountAllocations();
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;
  // Since it was made.
  AllocationCounts counts() const;
};

// Where the first of our own allocations since the last CountAllocations came from, a line per frame.
std::string FirstOwnAllocation();

}  // namespace gemmill
