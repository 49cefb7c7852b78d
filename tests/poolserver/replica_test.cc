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
  replica.Exposed(RegistrationId(1), {{0, 4096, 8192, 77}});
  return replica;
}

bool MayHide(Replica& replica) { return !replica.StartHiding().empty(); }

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
  EXPECT_FALSE(MayHide(replica));
  replica.RemoveReader(kSecond);
  EXPECT_FALSE(MayHide(replica));
  replica.RemoveReader(kFirst);
  EXPECT_TRUE(MayHide(replica));
}

TEST(Replica, CountsTheNodesOwnReaders) {
  Replica replica = Serving();
  EXPECT_TRUE(replica.StartOwnRead());
  replica.Retire({});
  EXPECT_FALSE(MayHide(replica));
  EXPECT_FALSE(replica.StartOwnRead());
  replica.FinishOwnRead(Tier::kDram);
  EXPECT_TRUE(MayHide(replica));
}

TEST(Replica, DeregistersBeforeItsMemoryIsFree) {
  Replica replica = Serving();
  replica.Retire({});
  EXPECT_EQ(replica.step(), Replica::Step::kWaiting);
  ASSERT_EQ(replica.StartHiding(), std::vector{RegistrationId(1)});
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  replica.Hidden(RegistrationId(1));
  EXPECT_EQ(replica.step(), Replica::Step::kFreed);
  EXPECT_EQ(replica.state(), ReplicaState::kRetired);
}

TEST(Replica, ServesNobodyWhenRetiredWhileBeingExposed) {
  Replica replica(TheShard(), Tier::kDram);
  replica.Loaded({});
  replica.Retire({});
  EXPECT_EQ(replica.state(), ReplicaState::kLoading);
  replica.Exposed(RegistrationId(1), {});
  EXPECT_EQ(replica.state(), ReplicaState::kDraining);
  EXPECT_TRUE(MayHide(replica));
}

TEST(Replica, ANewRegistrationServesWhileReadersLetGoOfTheOldOne) {
  Replica replica = Serving();
  replica.AddReader(kFirst);
  replica.AddReader(kSecond);
  const RegistrationId second = replica.StartRenewal(Tier::kDram);
  EXPECT_EQ(replica.current().id, RegistrationId(1)) << "until it is made";
  replica.Exposed(second, {{0, 4096, 8192, 78}});
  EXPECT_EQ(replica.state(), ReplicaState::kServing);
  EXPECT_EQ(replica.MakeGrant().paths[0].key, 78u);
  replica.AddReader(kFirst);
  replica.RemoveReader(kFirst, RegistrationId(1));
  EXPECT_FALSE(MayHide(replica)) << "the second session still reads under the first one";
  replica.RemoveReader(kSecond);
  EXPECT_EQ(replica.StartHiding(), std::vector{RegistrationId(1)});
  replica.Hidden(RegistrationId(1));
  EXPECT_EQ(replica.state(), ReplicaState::kServing);
  EXPECT_EQ(replica.registrations().size(), 1u);
  // What is left retires with the replica.
  replica.Retire({});
  EXPECT_FALSE(MayHide(replica));
  replica.RemoveReader(kFirst);
  EXPECT_EQ(replica.StartHiding(), std::vector{second});
  replica.Hidden(second);
  EXPECT_EQ(replica.step(), Replica::Step::kFreed);
}

TEST(Replica, AReplicaThatRetiresWhileItIsRegisteredAnewHidesBoth) {
  Replica replica = Serving();
  const RegistrationId second = replica.StartRenewal(Tier::kDram);
  replica.Retire({});
  EXPECT_EQ(replica.StartHiding(), std::vector{RegistrationId(1)});
  replica.Hidden(RegistrationId(1));
  EXPECT_EQ(replica.step(), Replica::Step::kWaiting) << "a fabric is about to register it";
  replica.Exposed(second, {});
  EXPECT_EQ(replica.StartHiding(), std::vector{second});
  replica.Hidden(second);
  EXPECT_EQ(replica.step(), Replica::Step::kFreed);
}

TEST(Replica, OwnReadersKeepTheMemoryNotTheKeys) {
  Replica replica = Serving();
  ASSERT_TRUE(replica.StartOwnRead());
  replica.Exposed(replica.StartRenewal(Tier::kDram), {});
  EXPECT_EQ(replica.StartHiding(), std::vector{RegistrationId(1)}) << "the memory stays";
  replica.Exposed(replica.StartRenewal(Tier::kCxl), {});
  EXPECT_FALSE(MayHide(replica)) << "the last registration of the memory that is being read";
  ASSERT_TRUE(replica.StartOwnRead()) << "of the memory that it is in now";
  replica.FinishOwnRead(Tier::kDram);
  EXPECT_EQ(replica.StartHiding(), std::vector{RegistrationId(2)});
}

TEST(Replica, MovesToAnotherTierWhileItIsRead) {
  Replica replica = Serving();
  replica.AddReader(kFirst);
  ASSERT_TRUE(replica.MayCopyTo(Tier::kNvme));
  replica.StartCopy(Tier::kNvme);
  EXPECT_FALSE(replica.MayCopyTo(Tier::kCxl)) << "one at a time";
  EXPECT_EQ(replica.tier(), Tier::kDram);
  replica.CopyEnded();
  const RegistrationId second = replica.StartRenewal(Tier::kNvme);
  replica.Exposed(second, {{3, 0, 8192, 78}});
  EXPECT_EQ(replica.tier(), Tier::kNvme);
  EXPECT_FALSE(replica.moving_to());
  EXPECT_EQ(replica.MakeGrant(), (Grant{TheShard(), Tier::kNvme, {{3, 0, 8192, 78}}}));
  EXPECT_FALSE(MayHide(replica)) << "a session reads the memory that it was in";
  EXPECT_FALSE(replica.MayCopyTo(Tier::kDram)) << "it still lies there";
  replica.RemoveReader(kFirst, RegistrationId(1));
  EXPECT_EQ(replica.StartHiding(), std::vector{RegistrationId(1)});
  EXPECT_EQ(replica.Hidden(RegistrationId(1)), Tier::kDram);
  EXPECT_EQ(replica.state(), ReplicaState::kServing);
  EXPECT_TRUE(replica.MayCopyTo(Tier::kDram));
}

TEST(Replica, ACopyUnderWayKeepsTheMemoryThatItReads) {
  Replica replica = Serving();
  replica.StartCopy(Tier::kCxl);
  replica.Retire({});
  EXPECT_FALSE(MayHide(replica));
  replica.CopyEnded();
  replica.MoveFailed();
  EXPECT_TRUE(MayHide(replica));
  EXPECT_EQ(replica.Hidden(RegistrationId(1)), Tier::kDram);
  EXPECT_EQ(replica.step(), Replica::Step::kFreed);
}

TEST(Replica, MemoryIsFreeWithItsLastRegistration) {
  Replica replica = Serving();
  replica.AddReader(kFirst);
  replica.Exposed(replica.StartRenewal(Tier::kDram), {});
  replica.RemoveReader(kFirst);
  ASSERT_EQ(replica.StartHiding(), std::vector{RegistrationId(1)});
  EXPECT_EQ(replica.Hidden(RegistrationId(1)), std::nullopt);
  EXPECT_EQ(replica.RenewalFailed(replica.StartRenewal(Tier::kDram)), std::nullopt);
  EXPECT_EQ(replica.RenewalFailed(replica.StartRenewal(Tier::kCxl)), Tier::kCxl);
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
  EXPECT_DEATH(replica.Exposed(RegistrationId(1), {}), "invariant");
  EXPECT_DEATH(replica.Hidden(RegistrationId(1)), "invariant");
  EXPECT_DEATH(replica.AddReader(kFirst), "invariant");
  ASSERT_TRUE(MayHide(replica));
  EXPECT_FALSE(MayHide(replica));
  EXPECT_DEATH(replica.Exposed(RegistrationId(1), {}), "invariant");
  EXPECT_DEATH(replica.StartRenewal(Tier::kDram), "invariant");
}

}  // namespace
}  // namespace engram::poolserver
