#include "tests/client/count_allocations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace {
thread_local bool counting = false;
thread_local int allocations = 0;
}  // namespace

// Not inlined: the compiler would see malloc meet delete.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace engram::client {

CountAllocations::CountAllocations() {
  allocations = 0;
  counting = true;
}
CountAllocations::~CountAllocations() { counting = false; }
int CountAllocations::count() const { return allocations; }

namespace {

TEST(CountAllocationsTest, SeesAnAllocation) {
  const CountAllocations allocations_here;
  std::vector<int> numbers(100);
  EXPECT_EQ(allocations_here.count(), 1) << numbers[0];
}

}  // namespace
}  // namespace engram::client
