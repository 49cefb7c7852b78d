// What policies of tenants do to sessions: who may read what, and whose sessions end.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/poolserver/small_node.h"

namespace engram::poolserver {
namespace {

using std::chrono::seconds;

class NodeTenantsTest : public testing::Test {
 protected:
  NodeTenantsTest() : random_(1), state_(SmallNode(), &random_) {
    Feed(ControllerConnected{});
    Feed(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), seconds(1'000'000), seconds(5)}});
    Serve(1, "team-a");
    Serve(2, "team-b");
  }
  std::vector<Action> Feed(Event event) { return state_.OnEvent(now_, std::move(event)); }
  void Serve(std::uint8_t number, const std::string& tenant) {
    TableRecord table = TableOf(number);
    table.tenant = tenant;
    Feed(ControllerSaid{Command{number, Incarnation(7), FencingToken(3),
                                LoadReplicas{table, {ShardIndex(0)}, Tier::kDram}}});
    Feed(ReplicaLoaded{Shard(0, number), {}});
    Feed(ReplicaExposed{{Shard(0, number), RegistrationId(1)}, {{0, 4096, 64, number}}});
  }
  std::vector<Action> Open(std::uint64_t stream, std::optional<Identity> proven) {
    OpenSession open;
    open.client = "replica";
    open.request_id = "request-" + std::to_string(stream);
    open.node = {"node-0"};
    open.incarnation = Incarnation(7);
    open.tables = {TableOf(1).uid, TableOf(2).uid};
    open.proven = std::move(proven);
    return Feed(ClientSaid{StreamId(stream), open});
  }
  std::vector<Action> Policies(std::vector<TenantPolicy> tenants, std::uint64_t token = 3) {
    return Feed(ControllerSaid{TenantPolicies{std::move(tenants), FencingToken(token)}});
  }
  // Tables whose shard 0 is granted, and withdrawn, by the actions.
  static std::vector<int> Granted(const std::vector<Action>& actions) {
    std::vector<int> out;
    for (const SendToClient& send : All<SendToClient>(actions)) {
      const auto* update = std::get_if<GrantUpdate>(&send.message);
      if (update == nullptr) continue;
      for (const Grant& grant : update->granted) out.push_back(grant.shard.table.bytes[0]);
      for (const Withdrawal& gone : update->withdrawn) out.push_back(-gone.shard.table.bytes[0]);
    }
    return out;
  }
  static Identity Client(const std::string& tenant, const std::string& name) {
    return {Role::kClient, tenant, name};
  }
  std::vector<Action> Renew(std::uint64_t stream, std::uint64_t revision) {
    return Feed(ClientSaid{StreamId(stream), RenewLease{revision, GrantRevision(revision)}});
  }

  SeededRandom random_;
  NodeState state_;
  Instant now_{seconds(100)};
};

TEST_F(NodeTenantsTest, AClientIsGrantedTheTablesOfItsTenantAlone) {
  EXPECT_EQ(Granted(Open(1, Client("team-a", "x"))), std::vector<int>{1});
  EXPECT_EQ(Granted(Open(2, Identity{Role::kNode, "", "node-1"})), (std::vector<int>{1, 2}));
  EXPECT_EQ(Granted(Open(3, std::nullopt)), (std::vector<int>{1, 2})) << "without certificates";
}

TEST_F(NodeTenantsTest, AGrantOfATableComesAndGoesWhileTheSessionIsOpen) {
  Open(1, Client("team-a", "x"));
  EXPECT_EQ(Granted(Policies({{"team-a", 0, {"t@2"}, {}}})), std::vector<int>{2});
  Renew(1, 2);
  EXPECT_EQ(Granted(Policies({})), std::vector<int>{-2});
  // Not granted anew before the client has let go of it.
  EXPECT_EQ(Granted(Policies({{"team-a", 0, {"t"}, {}}})), std::vector<int>{});
  EXPECT_EQ(Granted(Renew(1, 3)), std::vector<int>{2});
}

TEST_F(NodeTenantsTest, ARevokedClientLosesItsSessionAndTheMemoryWaitsForItsLease) {
  Open(1, Client("team-a", "bad"));
  Open(2, Client("team-a", "good"));
  const auto actions = Policies({{"team-a", 0, {}, {"bad"}}});
  EXPECT_EQ(All<DismissSession>(actions).size(), 1u);
  ASSERT_EQ(All<CloseStream>(actions).size(), 1u);
  EXPECT_EQ(All<CloseStream>(actions)[0].stream, StreamId(1));
  EXPECT_EQ(state_.open_sessions(), 1u);
  EXPECT_EQ(state_.sessions(), 2u) << "its lease goes on: it may have mapped the memory";
  EXPECT_TRUE(Granted(Renew(2, 1)).empty()) << "the other one goes on";
  // The shard is retired: nothing is hidden before the revoked client's lease has run out.
  Feed(ControllerSaid{Command{9, Incarnation(7), FencingToken(3),
                              RetireReplicas{TableOf(1).uid, {ShardIndex(0)}, {}}}});
  EXPECT_TRUE(All<HideReplica>(Renew(2, 2)).empty());
  now_ += kDefaultLease + LeaseMargin(kDefaultLease) + std::chrono::milliseconds(1);
  EXPECT_EQ(All<HideReplica>(Feed(Timer{})).size(), 1u);
}

TEST_F(NodeTenantsTest, ARevokedClientDoesNotComeBack) {
  Policies({{"team-a", 0, {}, {"bad"}}});
  const auto refused = Open(1, Client("team-a", "bad"));
  EXPECT_EQ(All<AdmitSession>(refused).size(), 0u);
  EXPECT_EQ(All<CloseStream>(refused).size(), 1u);
  EXPECT_EQ(All<AdmitSession>(Open(2, Client("team-b", "bad"))).size(), 1u) << "another tenant's";
  Policies({});
  EXPECT_EQ(All<AdmitSession>(Open(3, Client("team-a", "bad"))).size(), 1u) << "restored";
}

TEST_F(NodeTenantsTest, ASessionOfARestoredClientThatNeverHeardOfItIsAdmittedAgain) {
  const auto opened = Open(1, Client("team-a", "slept"));
  Policies({{"team-a", 0, {}, {"slept"}}});
  Policies({});
  const auto again = Open(1, Client("team-a", "slept"));
  ASSERT_EQ(All<AdmitSession>(again).size(), 1u);
  EXPECT_EQ(All<AdmitSession>(again)[0].token, All<AdmitSession>(opened)[0].token);
  EXPECT_EQ(Granted(again), std::vector<int>{1});
}

// A replica of a fabric whose keys are bearer tokens.
class NewKeysTest : public NodeTenantsTest {
 protected:
  NewKeysTest() {
    TableRecord table = TableOf(3);
    table.tenant = "team-a";
    Feed(ControllerSaid{Command{30, Incarnation(7), FencingToken(3),
                                LoadReplicas{table, {ShardIndex(0)}, Tier::kDram}}});
    const auto exposed = All<ExposeReplica>(Feed(ReplicaLoaded{Shard(0, 3), {}}));
    EXPECT_EQ(exposed.at(0).tenant, "team-a");
    Expose(1);
  }
  static RegistrationKey Key(std::uint32_t registration) {
    return {Shard(0, 3), RegistrationId(registration)};
  }
  std::vector<Action> Expose(std::uint32_t registration) {
    return Feed(ReplicaExposed{Key(registration),
                               {{5, 4096, 64, 100 + registration}},
                               true,
                               {{5, {FabricKind::kOfi, "tcp!0a", true, false, 0}}}});
  }
  std::vector<Action> OpenThird(std::uint64_t stream, const std::string& name,
                                const std::string& tenant = "team-a") {
    OpenSession open;
    open.client = name;
    open.request_id = "third-" + std::to_string(stream);
    open.node = {"node-0"};
    open.incarnation = Incarnation(7);
    open.tables = {TableOf(3).uid};
    open.proven = Client(tenant, name);
    return Feed(ClientSaid{StreamId(stream), open});
  }
  // The update that a stream is sent by these actions.
  static GrantUpdate UpdateOf(const std::vector<Action>& actions, std::uint64_t stream) {
    for (const SendToClient& send : All<SendToClient>(actions)) {
      const auto* update = std::get_if<GrantUpdate>(&send.message);
      if (update != nullptr && send.stream == StreamId(stream)) return *update;
    }
    return {};
  }
  std::vector<Action> Revoke(std::vector<std::string> clients) {
    return Policies({{"team-a", 0, {}, std::move(clients)}});
  }
  static std::vector<RegistrationKey> Hidden(const std::vector<Action>& actions) {
    std::vector<RegistrationKey> out;
    for (const HideReplica& hide : All<HideReplica>(actions)) out.push_back(hide.registration);
    return out;
  }
};

TEST_F(NewKeysTest, ASessionIsToldThePathOfADomainWithItsFirstGrantThere) {
  const GrantUpdate update = UpdateOf(OpenThird(1, "good"), 1);
  ASSERT_EQ(update.paths.size(), 1u);
  EXPECT_EQ(update.paths[0].path, 5u);
  EXPECT_EQ(update.paths[0].address.address, "tcp!0a");
  EXPECT_TRUE(UpdateOf(Open(2, Client("team-b", "x")), 2).paths.empty());
}

TEST_F(NewKeysTest, WhatARevokedClientKnewIsRegisteredAnewAndTheOldKeyGoesWithItsLease) {
  OpenThird(1, "bad");
  OpenThird(2, "good");
  Renew(2, 1);
  auto actions = Revoke({"bad"});
  ASSERT_EQ(All<ExposeReplica>(actions).size(), 1u) << "not the tables whose keys are no tokens";
  EXPECT_EQ(All<ExposeReplica>(actions)[0].registration, Key(2));
  EXPECT_TRUE(UpdateOf(actions, 2).granted.empty()) << "it reads on meanwhile";
  actions = Expose(2);
  const GrantUpdate update = UpdateOf(actions, 2);
  ASSERT_EQ(update.granted.size(), 1u);
  EXPECT_EQ(update.granted[0].paths[0].key, 102u);
  ASSERT_EQ(update.withdrawn.size(), 1u);
  ASSERT_EQ(All<AllowReplicas>(actions).size(), 1u);
  EXPECT_EQ(All<AllowReplicas>(actions)[0].registrations, std::vector{Key(2)});
  EXPECT_TRUE(Hidden(actions).empty());
  // The honest one is done; the lease of the other one is not over.
  actions = Renew(2, 2);
  ASSERT_EQ(All<DisallowReplicas>(actions).size(), 1u);
  EXPECT_EQ(All<DisallowReplicas>(actions)[0].ended.at(0).registration, Key(1));
  EXPECT_EQ(All<DisallowReplicas>(actions)[0].ended.at(0).kept, RegistrationId(2));
  EXPECT_TRUE(Hidden(actions).empty());
  now_ += seconds(5);
  Renew(2, 2);
  now_ += kDefaultLease + LeaseMargin(kDefaultLease) - seconds(5);
  EXPECT_EQ(Hidden(Feed(Timer{})), std::vector{Key(1)});
  EXPECT_TRUE(All<ReleaseMemory>(Feed(ReplicaHidden{Key(1)})).empty());
  EXPECT_EQ(state_.FindReplica(Shard(0, 3))->state(), ReplicaState::kServing);
  EXPECT_EQ(state_.counters().registrations_renewed, 1u);
}

TEST_F(NewKeysTest, TheLeaseOfOneWhoKeepsTheOldKeyIsNotExtended) {
  OpenThird(1, "bad");
  OpenThird(2, "slow");
  Revoke({"bad"});
  Expose(2);
  for (const SendToClient& send : All<SendToClient>(Renew(2, 1))) {
    if (const auto* renewed = std::get_if<LeaseRenewed>(&send.message)) {
      EXPECT_EQ(renewed->lease, Duration(0));
    }
  }
}

TEST_F(NewKeysTest, KeysStayWhereNobodyWasRevokedThatKnewThem) {
  OpenThird(1, "good");
  EXPECT_TRUE(All<ExposeReplica>(Policies({{"team-b", 0, {}, {"bad"}}})).empty());
  ASSERT_EQ(All<ExposeReplica>(Revoke({"bad"})).size(), 1u) << "another client may have known them";
  Expose(2);
  EXPECT_TRUE(All<ExposeReplica>(Revoke({"bad"})).empty()) << "told again";
  EXPECT_TRUE(All<ExposeReplica>(Revoke({})).empty()) << "restored";
  EXPECT_EQ(All<ExposeReplica>(Revoke({"good"})).size(), 1u);
}

TEST_F(NewKeysTest, KeysThatNobodyWasToldStay) {
  EXPECT_TRUE(All<ExposeReplica>(Revoke({"bad"})).empty());
}

TEST_F(NewKeysTest, ATenantThatLosesATableKnowsNoKeyOfItAfterwards) {
  Policies({{"team-b", 0, {"t@3"}, {}}});
  ASSERT_EQ(UpdateOf(OpenThird(1, "guest", "team-b"), 1).granted.size(), 1u);
  EXPECT_EQ(All<ExposeReplica>(Policies({})).size(), 1u);
  Expose(2);
  EXPECT_EQ(Hidden(Renew(1, 2)), std::vector{Key(1)});
}

TEST_F(NewKeysTest, AClientRevokedWhileKeysAreBeingChangedNeverSeesTheNewOnes) {
  OpenThird(1, "bad");
  OpenThird(2, "worse");
  Revoke({"bad"});
  EXPECT_TRUE(All<ExposeReplica>(Revoke({"bad", "worse"})).empty()) << "on its way already";
  EXPECT_TRUE(All<AllowReplicas>(Expose(2)).empty());
  now_ += kDefaultLease + LeaseMargin(kDefaultLease);
  EXPECT_EQ(Hidden(Feed(Timer{})), std::vector{Key(1)});
}

TEST_F(NewKeysTest, AReplicaWhoseKeysCannotBeChangedRetires) {
  OpenThird(1, "bad");
  OpenThird(2, "good");
  Revoke({"bad"});
  const auto actions = Feed(ExposeFailed{Key(2), absl::ResourceExhaustedError("memlock")});
  EXPECT_EQ(UpdateOf(actions, 2).withdrawn.size(), 1u);
  EXPECT_EQ(state_.FindReplica(Shard(0, 3))->Report().error.code(),
            absl::StatusCode::kResourceExhausted);
  Renew(2, 2);
  now_ += kDefaultLease + LeaseMargin(kDefaultLease);
  EXPECT_EQ(Hidden(Feed(Timer{})), std::vector{Key(1)});
  EXPECT_EQ(All<ReleaseMemory>(Feed(ReplicaHidden{Key(1)})).size(), 1u);
}

TEST_F(NewKeysTest, AReplicaThatRetiresMeanwhileIsFreedWhenBothRegistrationsAreGone) {
  OpenThird(1, "bad");
  Revoke({"bad"});
  Feed(ControllerSaid{Command{31, Incarnation(7), FencingToken(3),
                              RetireReplicas{TableOf(3).uid, {ShardIndex(0)}, {}}}});
  EXPECT_EQ(Hidden(Expose(2)), std::vector{Key(2)});
  EXPECT_TRUE(All<ReleaseMemory>(Feed(ReplicaHidden{Key(2)})).empty());
  now_ += kDefaultLease + LeaseMargin(kDefaultLease);
  EXPECT_EQ(Hidden(Feed(Timer{})), std::vector{Key(1)});
  EXPECT_EQ(All<ReleaseMemory>(Feed(ReplicaHidden{Key(1)})).size(), 1u);
}

TEST_F(NodeTenantsTest, AnOlderLeaderIsNotHeard) {
  Policies({{"team-a", 0, {}, {"bad"}}}, 5);
  EXPECT_TRUE(Policies({}, 4).empty());
  EXPECT_EQ(All<AdmitSession>(Open(1, Client("team-a", "bad"))).size(), 0u);
}

}  // namespace
}  // namespace engram::poolserver
