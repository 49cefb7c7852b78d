#include "engram/synthetic.h"

#include <gtest/gtest.h>

#include <vector>

#include "engram/random.h"

namespace engram {
namespace {

// The formula of the header, one byte at a time.
std::uint64_t Mix(std::uint64_t z) {
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9u;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
std::byte ByteOf(std::uint64_t seed, std::uint64_t row, std::uint64_t b) {
  const std::uint64_t state = Mix(Mix(seed) + row);
  return static_cast<std::byte>(Mix(state + (b / 8 + 1) * 0x9e3779b97f4a7c15u) >> (8 * (b % 8)));
}

TEST(SyntheticTest, EveryPartOfARowFollowsTheFormula) {
  SeededRandom random(1);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t seed = random.Next();
    const std::uint64_t row = random.Next() >> random.Below(60);
    const std::uint64_t first = random.Below(300);
    std::vector<std::byte> part(random.Below(40));
    FillSyntheticBytes(seed, RowId(row), first, part);
    for (std::size_t i = 0; i < part.size(); ++i) {
      ASSERT_EQ(part[i], ByteOf(seed, row, first + i)) << first << "+" << i;
    }
  }
}

TEST(SyntheticTest, SeedZeroRowZeroIsFixedForEver) {
  std::vector<std::byte> row(10);
  FillSyntheticRow(0, RowId(0), row);
  // mix(0) = 0, so this is SplitMix64 seeded with 0: 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4.
  const std::vector<std::byte> expected = {
      std::byte{0xaf}, std::byte{0xcd}, std::byte{0x1d}, std::byte{0x7b}, std::byte{0x39},
      std::byte{0xa8}, std::byte{0x20}, std::byte{0xe2}, std::byte{0xf4}, std::byte{0x65}};
  EXPECT_EQ(row, expected);
}

TEST(SyntheticTest, RowsAndSeedsDiffer) {
  std::vector<std::byte> a(264), b(264);
  FillSyntheticRow(7, RowId(1), a);
  FillSyntheticRow(7, RowId(2), b);
  EXPECT_NE(a, b);
  FillSyntheticRow(8, RowId(1), b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace engram
