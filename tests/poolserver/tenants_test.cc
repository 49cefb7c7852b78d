// What policies of tenants do to sessions: who may read what, and whose sessions end.
#include <gtest/gtest.h>

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
    Feed(ReplicaExposed{Shard(0, number), {{0, 4096, 64, number}}});
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

TEST_F(NodeTenantsTest, AnOlderLeaderIsNotHeard) {
  Policies({{"team-a", 0, {}, {"bad"}}}, 5);
  EXPECT_TRUE(Policies({}, 4).empty());
  EXPECT_EQ(All<AdmitSession>(Open(1, Client("team-a", "bad"))).size(), 0u);
}

}  // namespace
}  // namespace engram::poolserver
