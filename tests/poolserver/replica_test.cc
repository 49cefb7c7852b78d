#include "poolserver/replica.h"

#include <gtest/gtest.h>

namespace engram::poolserver {
namespace {

constexpr SessionId kFirst{1};
constexpr SessionId kSecond{2};

ShardKey TheShard() { return {TableUid{{1}}, ShardIndex(3)}; }

Replica Serving() {
  Replica replica(TheShard(), Tier::kDram);
  replica.Loaded({11, 12});
  replica.Exposed({{0, 4096, 8192, 77}});
  return replica;
}

TEST(Replica, GrantsWhatTheFabricsExposed) {
  const Replica replica = Serving();
  EXPECT_EQ(replica.state(), ReplicaState::kServing);
  EXPECT_EQ(replica.MakeGrant(), (Grant{TheShard(), Tier::kDram, {{0, 4096, 8192, 77}}}));
  EXPECT_EQ(replica.Report().block_crcs, (std::vector<std::uint32_t>{11, 12}));
}

TEST(Replica, RetiresOnlyAfterEveryReaderAcked) {
  Replica replica = Serving();
  replica.AddReader(kFirst);
  replica.AddReader(kSecond);
  replica.Retire({});
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  EXPECT_FALSE(replica.MayHide());
  replica.RemoveReader(kSecond);
  EXPECT_FALSE(replica.MayHide());
  replica.RemoveReader(kFirst);
  EXPECT_TRUE(replica.MayHide());
}

TEST(Replica, CountsTheNodesOwnReaders) {
  Replica replica = Serving();
  EXPECT_TRUE(replica.StartOwnRead());
  replica.Retire({});
  EXPECT_FALSE(replica.MayHide());
  EXPECT_FALSE(replica.StartOwnRead());
  replica.FinishOwnRead();
  EXPECT_TRUE(replica.MayHide());
}

TEST(Replica, DeregistersBeforeItsMemoryIsFree) {
  Replica replica = Serving();
  replica.Retire({});
  EXPECT_EQ(replica.step(), Replica::Step::kWaiting);
  replica.Hide();
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  replica.Hidden();
  EXPECT_EQ(replica.step(), Replica::Step::kFreed);
  EXPECT_EQ(replica.state(), ReplicaState::kRetired);
}

TEST(Replica, ServesNobodyWhenRetiredWhileBeingExposed) {
  Replica replica(TheShard(), Tier::kDram);
  replica.Loaded({});
  replica.Retire({});
  EXPECT_EQ(replica.state(), ReplicaState::kLoading);
  replica.Exposed({});
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  EXPECT_TRUE(replica.MayHide());
}

TEST(Replica, ReportsWhyALoadFailed) {
  Replica replica(TheShard(), Tier::kDram);
  replica.Failed(absl::DataLossError("block 7"));
  EXPECT_EQ(replica.Report().state, ReplicaState::kRetired);
  EXPECT_EQ(replica.Report().error, absl::DataLossError("block 7"));
}

TEST(ReplicaDeathTest, NeverGoesBackwards) {
  Replica replica = Serving();
  EXPECT_DEATH(replica.Loaded({}), "invariant");
  replica.Retire({});
  EXPECT_DEATH(replica.Exposed({}), "invariant");
  EXPECT_DEATH(replica.AddReader(kFirst), "invariant");
  replica.Hide();
  EXPECT_DEATH(replica.Hide(), "invariant");
}

}  // namespace
}  // namespace engram::poolserver
