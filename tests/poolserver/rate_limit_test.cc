#include "poolserver/rate_limit.h"

#include <gtest/gtest.h>

namespace engram::poolserver {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kRate = 1'000'000;  // a byte a microsecond

// Whoever asks late, but not by more than its memory, gets the bytes of the rate all the same.
TEST(RateLimitTest, AShortPauseCostsNothingAndALongOneMakesNoBurst) {
  RateLimit limit(kRate);
  const Instant start{std::chrono::hours(1)};
  ASSERT_TRUE(limit.Take(start, 20'000));
  std::uint64_t moved = 0;
  Instant now = start;
  for (int turn = 0; turn < 100; ++turn, now += milliseconds(7)) {
    while (limit.Take(now, 1000)) moved += 1000;
  }
  EXPECT_NEAR(static_cast<double>(moved), 99 * 7000.0, 2000);
  now += std::chrono::seconds(10);
  moved = 0;
  while (limit.Take(now, 1000)) moved += 1000;
  EXPECT_LE(moved, 22'000u);
}

TEST(RateLimitTest, ZeroIsNoLimit) {
  RateLimit limit(0);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(limit.Take(Instant(), std::uint64_t{1} << 40));
}

}  // namespace
}  // namespace engram::poolserver
