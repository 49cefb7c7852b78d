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

TEST(CountAllocationsTest, CountsTheBytesThatAreHeld) {
  const CountAllocations allocations_here;
  const std::vector<char> kept(1'000);
  { const std::vector<char> gone(100'000); }
  EXPECT_GE(allocations_here.bytes(), 1'000) << kept[0];
  EXPECT_LT(allocations_here.bytes(), 1'100);
}

}  // namespace
}  // namespace engram
