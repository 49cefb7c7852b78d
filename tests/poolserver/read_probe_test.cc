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

TEST(ReadProbe, TakesAsMuchMemoryAsCanBeMadeInTime) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  using std::chrono::milliseconds;
  EXPECT_EQ(AffordableProbe(2 * kMiB, milliseconds(1), 64 * kMiB), 64 * kMiB);
  EXPECT_EQ(AffordableProbe(2 * kMiB, milliseconds(40), 64 * kMiB), 20 * kMiB);
  EXPECT_EQ(AffordableProbe(2 * kMiB, std::chrono::seconds(2), 64 * kMiB), 2 * kMiB)
      << "emulated memory: what was made is all there will be";
  EXPECT_EQ(AffordableProbe(2 * kMiB, Duration(0), kMiB), 2 * kMiB);
}

}  // namespace
}  // namespace engram::poolserver
