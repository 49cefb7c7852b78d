#include "tests/count_allocations.h"

#include <gtest/gtest.h>

#include <vector>

namespace engram {
namespace {

TEST(CountAllocationsTest, SeesAnAllocation) {
  const CountAllocations allocations_here;
  std::vector<int> numbers(100);
  EXPECT_EQ(allocations_here.count(), 1) << numbers[0];
}

}  // namespace
}  // namespace engram
