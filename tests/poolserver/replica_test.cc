#include "poolserver/replica.h"

#include <gtest/gtest.h>

namespace engram::poolserver {
namespace {

constexpr SessionId kOne{1};
constexpr SessionId kTwo{2};

ShardKey Shard() { return {TableUid{{1}}, ShardIndex(3)}; }

Replica Serving() {
  Replica replica(Shard(), Tier::kDram);
  replica.Loaded({11, 12});
  replica.Exposed({{0, 4096, 8192, 77}});
  return replica;
}

TEST(Replica, GrantsWhatTheFabricsExposed) {
  const Replica replica = Serving();
  EXPECT_EQ(replica.state(), ReplicaState::kServing);
  EXPECT_EQ(replica.MakeGrant(), (Grant{Shard(), Tier::kDram, {{0, 4096, 8192, 77}}}));
  EXPECT_EQ(replica.Report().block_crcs, (std::vector<std::uint32_t>{11, 12}));
}

TEST(Replica, RetiresOnlyAfterEveryReaderAcked) {
  Replica replica = Serving();
  replica.AddReader(kOne);
  replica.AddReader(kTwo);
  replica.Retire({});
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  EXPECT_FALSE(replica.MayHide());
  replica.RemoveReader(kTwo);
  EXPECT_FALSE(replica.MayHide());
  replica.RemoveReader(kOne);
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
  Replica replica(Shard(), Tier::kDram);
  replica.Loaded({});
  replica.Retire({});
  EXPECT_EQ(replica.state(), ReplicaState::kLoading);
  replica.Exposed({});
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  EXPECT_TRUE(replica.MayHide());
}

TEST(Replica, ReportsWhyALoadFailed) {
  Replica replica(Shard(), Tier::kDram);
  replica.Failed(absl::DataLossError("block 7"));
  EXPECT_EQ(replica.Report().state, ReplicaState::kRetired);
  EXPECT_EQ(replica.Report().error, absl::DataLossError("block 7"));
}

TEST(ReplicaDeathTest, NeverGoesBackwards) {
  Replica replica = Serving();
  EXPECT_DEATH(replica.Loaded({}), "invariant");
  replica.Retire({});
  EXPECT_DEATH(replica.Exposed({}), "invariant");
  EXPECT_DEATH(replica.AddReader(kOne), "invariant");
  replica.Hide();
  EXPECT_DEATH(replica.Hide(), "invariant");
}

}  // namespace
}  // namespace engram::poolserver
