#include "client/lease.h"

#include <gtest/gtest.h>

namespace engram::client {
namespace {

using std::chrono::seconds;

TEST(ReadLease, IsValidUntilItsEndAndNotAtIt) {
  const ReadLease lease(Instant(seconds(10)));
  EXPECT_TRUE(lease.ValidAt(Instant(seconds(10)) - Duration(1)));
  EXPECT_FALSE(lease.ValidAt(Instant(seconds(10))));
}

TEST(ReadLease, IsNeverShortened) {
  ReadLease lease(Instant(seconds(10)));
  lease.Extend(Instant(seconds(9)));
  EXPECT_EQ(lease.until(), Instant(seconds(10)));
  lease.Extend(Instant(seconds(11)));
  EXPECT_EQ(lease.until(), Instant(seconds(11)));
}

}  // namespace
}  // namespace engram::client
