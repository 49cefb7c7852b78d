// Counts the allocations of this thread while one of these is alive. Thread-confined: call from the
// owner thread only.
#pragma once

namespace engram {

class CountAllocations {
 public:
  CountAllocations();
  ~CountAllocations();
  int count() const;
  // Allocated since then and not freed, the allocator's rounding included.
  long bytes() const;
};

}  // namespace engram
