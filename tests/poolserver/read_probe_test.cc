#include "poolserver/read_probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace engram::poolserver {
namespace {

TEST(ReadProbe, MeasuresWhereSlabsWillLie) {
  Arena::Options tier;
  tier.capacity_bytes = std::uint64_t{8} << 20;
  EXPECT_GT(MeasureReads(tier), 0u);
  tier.numa_node = 1'000;
  EXPECT_EQ(MeasureReads(tier), 0u) << "there is no such memory";
}

TEST(ReadProbe, TooLittleMemoryTellsNothing) {
  const std::vector<std::byte> memory(1'000);
  EXPECT_EQ(MeasureReads(std::span<const std::byte>(memory)), 0u);
}

}  // namespace
}  // namespace engram::poolserver
