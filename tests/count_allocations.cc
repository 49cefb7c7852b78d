#include "tests/count_allocations.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {
thread_local bool counting = false;
thread_local int allocations = 0;
thread_local long bytes_held = 0;

// What stands before each block for the allocator itself.
constexpr long kHeaderBytes = 8;

void* Counted(void* memory) {
  if (!counting || memory == nullptr) return memory;
  ++allocations;
  bytes_held += static_cast<long>(malloc_usable_size(memory)) + kHeaderBytes;
  return memory;
}

void Uncounted(void* memory) {
  if (!counting || memory == nullptr) return;
  bytes_held -= static_cast<long>(malloc_usable_size(memory)) + kHeaderBytes;
}
}  // namespace

// Not inlined: the compiler would see malloc meet delete.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (void* memory = Counted(std::malloc(bytes))) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Counted(std::malloc(bytes));
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  Uncounted(memory);
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  Uncounted(memory);
  std::free(memory);
}

namespace engram {

CountAllocations::CountAllocations() {
  allocations = 0;
  bytes_held = 0;
  counting = true;
}
CountAllocations::~CountAllocations() { counting = false; }
int CountAllocations::count() const { return allocations; }
long CountAllocations::bytes() const { return bytes_held; }

}  // namespace engram
