#include "poolserver/lease_table.h"

#include <gtest/gtest.h>

#include "engram/session.h"

namespace engram::poolserver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SessionId kOne{1};
constexpr SessionId kTwo{2};

class LeaseTableTest : public testing::Test {
 protected:
  const Instant start_{seconds(100)};
  LeaseTable leases_{seconds(10), LeaseMargin(seconds(10))};
};

TEST_F(LeaseTableTest, RunsOutOnlyAfterLeaseAndMargin) {
  leases_.Grant(kOne, start_);
  EXPECT_FALSE(leases_.HasRunOut(kOne, start_ + seconds(10)));
  EXPECT_FALSE(leases_.HasRunOut(kOne, start_ + milliseconds(11'099)));
  EXPECT_TRUE(leases_.HasRunOut(kOne, start_ + milliseconds(11'100)));
}

TEST_F(LeaseTableTest, KeepsTheLatestLeaseEverGranted) {
  leases_.Grant(kOne, start_ + seconds(5));
  leases_.Grant(kOne, start_);
  EXPECT_FALSE(leases_.HasRunOut(kOne, start_ + seconds(16)));
  EXPECT_TRUE(leases_.HasRunOut(kOne, start_ + milliseconds(16'100)));
}

TEST_F(LeaseTableTest, GoodbyeEndsTheLeaseEarly) {
  leases_.Grant(kOne, start_);
  leases_.Grant(kTwo, start_);
  leases_.End(kOne);
  EXPECT_TRUE(leases_.HasRunOut(kOne, start_));
  EXPECT_FALSE(leases_.HasRunOut(kTwo, start_));
}

TEST_F(LeaseTableTest, ForgetsOnlyWhatHasRunOut) {
  leases_.Grant(kOne, start_);
  leases_.Grant(kTwo, start_ + seconds(1));
  EXPECT_EQ(leases_.NextRunOut(), start_ + milliseconds(11'100));
  leases_.Forget(start_ + milliseconds(11'100));
  EXPECT_EQ(leases_.size(), 1u);
  EXPECT_FALSE(leases_.HasRunOut(kTwo, start_ + milliseconds(11'100)));
  leases_.Forget(start_ + milliseconds(12'100));
  EXPECT_EQ(leases_.NextRunOut(), std::nullopt);
}

}  // namespace
}  // namespace engram::poolserver
