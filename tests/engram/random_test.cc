#include "engram/random.h"

#include <gtest/gtest.h>

namespace engram {
namespace {

TEST(SeededRandomTest, IsSplitMix64) {
  SeededRandom random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(RandomTest, BelowStaysBelowAndReachesEveryValue) {
  SeededRandom random(1);
  bool seen[7] = {};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = random.Below(7);
    ASSERT_LT(value, 7u);
    seen[value] = true;
  }
  for (bool value : seen) EXPECT_TRUE(value);
  EXPECT_EQ(random.Below(1), 0u);
  EXPECT_LT(random.Below(~0ull), ~0ull);
}

TEST(SystemRandomTest, TwoTokensDiffer) {
  SystemRandom random;
  EXPECT_NE(random.Bits<SessionTokenTag>(), random.Bits<SessionTokenTag>());
}

}  // namespace
}  // namespace engram
