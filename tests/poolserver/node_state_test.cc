#include "poolserver/node_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/poolserver/small_node.h"

namespace engram::poolserver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Node messages of one kind sent to `stream`.
template <class T>
std::vector<T> Said(const std::vector<Action>& actions, StreamId stream) {
  std::vector<T> out;
  for (const SendToClient& send : All<SendToClient>(actions)) {
    const T* found = std::get_if<T>(&send.message);
    if (found != nullptr && send.stream == stream) out.push_back(*found);
  }
  return out;
}

template <class T>
std::ptrdiff_t IndexOf(const std::vector<Action>& actions) {
  const auto it = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
    return std::holds_alternative<T>(action);
  });
  return it - actions.begin();
}

class NodeStateTest : public testing::Test {
 protected:
  NodeStateTest() : random_(1), state_(SmallNode(), &random_) {}

  std::vector<Action> Feed(Event event) { return state_.OnEvent(now_, std::move(event)); }

  std::vector<Action> Order(std::variant<LoadReplicas, RetireReplicas, InspectSource> body,
                            std::uint64_t token = 3, std::uint64_t incarnation = 7) {
    return Feed(ControllerSaid{
        Command{++commands_, Incarnation(incarnation), FencingToken(token), std::move(body)}});
  }
  static absl::Status Done(const std::vector<Action>& actions) {
    for (const SendToController& send : All<SendToController>(actions)) {
      if (const auto* done = std::get_if<CommandDone>(&send.message)) return done->status;
    }
    return absl::NotFoundError("no CommandDone");
  }

  void Join() {
    Feed(ControllerConnected{});
    Feed(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), seconds(1'000'000), seconds(5)}});
  }
  void Serve(std::uint32_t shard, std::uint8_t table = 1) {
    Order(LoadReplicas{TableOf(table), {ShardIndex(shard)}, Tier::kDram});
    Feed(ReplicaLoaded{Shard(shard, table), {}});
    Feed(ReplicaExposed{{Shard(shard, table), RegistrationId(1)}, {{0, 4096, 64, shard}}});
  }
  std::vector<Action> Retire(std::uint32_t shard) {
    return Order(RetireReplicas{TableOf(1).uid, {ShardIndex(shard)}, {{{"node-1"}, {}, "x"}}});
  }
  std::vector<Action> Open(std::uint64_t stream, std::string request = "") {
    OpenSession open;
    open.client = "replica-0";
    open.request_id = request.empty() ? "request-" + std::to_string(stream) : request;
    open.node = {"node-0"};
    open.incarnation = Incarnation(7);
    open.tables = {TableOf(1).uid};
    return Feed(ClientSaid{StreamId(stream), open});
  }
  std::vector<Action> Renew(std::uint64_t stream, std::uint64_t applied) {
    return Feed(ClientSaid{StreamId(stream), RenewLease{++renewals_, GrantRevision(applied)}});
  }

  Instant now_{seconds(100)};
  SeededRandom random_;
  NodeState state_;
  std::uint64_t commands_ = 0;
  std::uint64_t renewals_ = 0;
};

TEST_F(NodeStateTest, RefusesSessionsBeforeItIsRegistered) {
  const auto refused = Said<SessionRefused>(Open(1), StreamId(1));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(NodeStateTest, RefusesASessionMeantForAnotherNodeOrIncarnation) {
  Join();
  OpenSession open;
  open.node = {"node-0"};
  open.incarnation = Incarnation(6);
  auto actions = Feed(ClientSaid{StreamId(1), open});
  ASSERT_EQ(Said<SessionRefused>(actions, StreamId(1)).size(), 1u);
  EXPECT_EQ(All<CloseStream>(actions).size(), 1u);
  open.node = {"node-1"};
  open.incarnation = Incarnation(7);
  actions = Feed(ClientSaid{StreamId(2), open});
  EXPECT_EQ(Said<SessionRefused>(actions, StreamId(2)).size(), 1u);
  EXPECT_EQ(state_.sessions(), 0u);
}

TEST_F(NodeStateTest, GrantsServingReplicasOfTheTablesASessionAskedFor) {
  Join();
  Serve(0);
  Serve(0, 2);
  const auto actions = Open(1);
  ASSERT_EQ(Said<SessionOpened>(actions, StreamId(1)).size(), 1u);
  const auto updates = Said<GrantUpdate>(actions, StreamId(1));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].revision, GrantRevision(1));
  ASSERT_EQ(updates[0].granted.size(), 1u);
  EXPECT_EQ(updates[0].granted[0].shard, Shard(0));
  // The fabrics learn of the session before the client can try to read.
  EXPECT_LT(IndexOf<AdmitSession>(actions), IndexOf<SendToClient>(actions));
  const auto more = Feed(ClientSaid{StreamId(1), AddTable{TableOf(2).uid}});
  ASSERT_EQ(Said<GrantUpdate>(more, StreamId(1)).size(), 1u);
  EXPECT_LT(IndexOf<AllowReplicas>(more), IndexOf<SendToClient>(more));
}

TEST_F(NodeStateTest, TellsOpenSessionsOfANewReplica) {
  Join();
  Open(1);
  Order(LoadReplicas{TableOf(1), {ShardIndex(2)}, Tier::kDram});
  EXPECT_TRUE(Said<GrantUpdate>(Feed(ReplicaLoaded{Shard(2), {}}), StreamId(1)).empty());
  const auto actions = Feed(ReplicaExposed{{Shard(2), RegistrationId(1)}, {}});
  EXPECT_EQ(Said<GrantUpdate>(actions, StreamId(1)).size(), 1u);
}

TEST_F(NodeStateTest, RetiresOnlyAfterEveryReaderAcked) {
  Join();
  Serve(0);
  Open(1);
  Open(2);
  auto actions = Retire(0);
  EXPECT_TRUE(All<HideReplica>(actions).empty());
  for (std::uint64_t stream : {1, 2}) {
    const auto updates = Said<GrantUpdate>(actions, StreamId(stream));
    ASSERT_EQ(updates.size(), 1u);
    ASSERT_EQ(updates[0].withdrawn.size(), 1u);
    EXPECT_EQ(updates[0].withdrawn[0].successors.size(), 1u);
  }
  EXPECT_TRUE(All<HideReplica>(Renew(1, 2)).empty());
  EXPECT_TRUE(All<HideReplica>(Renew(2, 1)).empty());
  EXPECT_EQ(All<HideReplica>(Renew(2, 2)).size(), 1u);
  EXPECT_EQ(state_.retirements_pending(), 1u);
  EXPECT_EQ(All<ReleaseMemory>(Feed(ReplicaHidden{{Shard(0), RegistrationId(1)}})).size(), 1u);
  EXPECT_EQ(state_.FindReplica(Shard(0)), nullptr);
}

TEST_F(NodeStateTest, LeaseIsNotExtendedWhileARetirementIsUnapplied) {
  Join();
  Serve(0);
  Open(1);
  Retire(0);
  now_ += seconds(3);
  auto renewed = Said<LeaseRenewed>(Renew(1, 1), StreamId(1));
  ASSERT_EQ(renewed.size(), 1u);
  EXPECT_EQ(renewed[0].lease, Duration(0));
  renewed = Said<LeaseRenewed>(Renew(1, 2), StreamId(1));
  EXPECT_EQ(renewed[0].lease, kDefaultLease);
}

TEST_F(NodeStateTest, RetirementEndsWithinLeaseAndMarginWhateverAClientDoes) {
  Join();
  Serve(0);
  Open(1);
  Retire(0);
  for (int i = 0; i < 11; ++i) {
    now_ += seconds(1);
    EXPECT_TRUE(All<HideReplica>(Renew(1, 1)).empty());
    EXPECT_TRUE(All<HideReplica>(Feed(Timer{})).empty());
  }
  now_ += milliseconds(100);
  EXPECT_EQ(state_.NextTimer(), now_);
  const auto actions = Feed(Timer{});
  EXPECT_EQ(All<HideReplica>(actions).size(), 1u);
  EXPECT_EQ(All<DismissSession>(actions).size(), 1u);
  EXPECT_EQ(All<CloseStream>(actions).size(), 1u);
}

TEST_F(NodeStateTest, ALateRenewalCannotReviveASessionThatRanOut) {
  Join();
  Serve(0);
  Open(1);
  now_ += seconds(12);
  const auto actions = Renew(1, 1);
  EXPECT_TRUE(Said<LeaseRenewed>(actions, StreamId(1)).empty());
  EXPECT_EQ(All<CloseStream>(actions).size(), 1u);
  EXPECT_EQ(state_.sessions(), 0u);
}

TEST_F(NodeStateTest, BrokenSessionKeepsItsLease) {
  Join();
  Serve(0);
  Open(1);
  now_ += seconds(5);
  Renew(1, 1);
  Feed(StreamBroken{StreamId(1)});
  Retire(0);
  now_ += seconds(11);
  EXPECT_TRUE(All<HideReplica>(Feed(Timer{})).empty());
  now_ += milliseconds(100);
  EXPECT_EQ(All<HideReplica>(Feed(Timer{})).size(), 1u);
}

TEST_F(NodeStateTest, GoodbyeEndsTheLeaseEarly) {
  Join();
  Serve(0);
  Open(1);
  Retire(0);
  const auto actions = Feed(ClientSaid{StreamId(1), Goodbye{}});
  EXPECT_EQ(All<HideReplica>(actions).size(), 1u);
  EXPECT_EQ(All<DismissSession>(actions).size(), 1u);
}

TEST_F(NodeStateTest, TheNodesOwnReadersDelayDeregistration) {
  Join();
  Serve(0);
  ASSERT_TRUE(state_.StartOwnRead(Shard(0)));
  EXPECT_TRUE(All<HideReplica>(Retire(0)).empty());
  EXPECT_FALSE(state_.StartOwnRead(Shard(0)));
  EXPECT_EQ(All<HideReplica>(Feed(OwnReadFinished{Shard(0), Tier::kDram})).size(), 1u);
}

TEST_F(NodeStateTest, ASessionOpenedAfterTheRetirementDoesNotDelayIt) {
  Join();
  Serve(0);
  Open(1);
  Retire(0);
  EXPECT_TRUE(Said<GrantUpdate>(Open(2), StreamId(2)).empty());
  EXPECT_EQ(All<HideReplica>(Renew(1, 2)).size(), 1u);
}

TEST_F(NodeStateTest, ASessionThatAcksWhatWasNeverSentIsTreatedAsBroken) {
  Join();
  Serve(0);
  Open(1);
  Retire(0);
  const auto actions = Renew(1, 99);
  EXPECT_EQ(Said<SessionRefused>(actions, StreamId(1)).size(), 1u);
  EXPECT_TRUE(All<HideReplica>(actions).empty());
  EXPECT_EQ(state_.sessions(), 1u);
}

TEST_F(NodeStateTest, TheSameRequestOpensTheSameSession) {
  Join();
  Serve(0);
  const auto first = Said<SessionOpened>(Open(1, "r"), StreamId(1));
  Feed(StreamBroken{StreamId(1)});
  const auto again = Said<SessionOpened>(Open(2, "r"), StreamId(2));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(first[0].token, again[0].token);
  EXPECT_EQ(state_.sessions(), 1u);
  Renew(2, 2);
  const auto refused = Said<SessionRefused>(Open(3, "r"), StreamId(3));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(NodeStateTest, TheSameRequestDoesNotExtendALeaseThatARetirementWaitsFor) {
  Join();
  Serve(0);
  Open(1, "r");
  Retire(0);
  now_ += seconds(9);
  Open(2, "r");
  EXPECT_EQ(state_.sessions(), 2u);
  now_ += milliseconds(2'100);
  EXPECT_EQ(All<HideReplica>(Feed(Timer{})).size(), 1u);
}

TEST_F(NodeStateTest, AReplicaRetiredWhileLoadingIsNeverExposed) {
  Join();
  Order(LoadReplicas{TableOf(1), {ShardIndex(0)}, Tier::kDram});
  EXPECT_EQ(All<StopLoad>(Retire(0)).size(), 1u);
  const auto actions = Feed(ReplicaLoaded{Shard(0), {}});
  EXPECT_TRUE(All<ExposeReplica>(actions).empty());
  EXPECT_EQ(All<ReleaseMemory>(actions).size(), 1u);
}

TEST_F(NodeStateTest, AFailedLoadGivesItsMemoryBackAndIsReported) {
  Join();
  Order(LoadReplicas{TableOf(1), {ShardIndex(0)}, Tier::kDram});
  const auto actions = Feed(LoadEnded{Shard(0), absl::DataLossError("bad")});
  EXPECT_EQ(All<ReleaseMemory>(actions).size(), 1u);
  EXPECT_EQ(state_.replicas().size(), 0u);
}

TEST_F(NodeStateTest, LoadingIsIdempotentAndRefusesAShardThatIsStillDraining) {
  Join();
  Serve(0);
  Open(1);
  auto actions = Order(LoadReplicas{TableOf(1), {ShardIndex(0), ShardIndex(1)}, Tier::kDram});
  ASSERT_EQ(All<StartLoad>(actions).size(), 1u);
  EXPECT_EQ(All<StartLoad>(actions)[0].shards, std::vector<ShardIndex>{ShardIndex(1)});
  Retire(0);
  actions = Order(LoadReplicas{TableOf(1), {ShardIndex(0)}, Tier::kDram});
  EXPECT_EQ(Done(actions).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(All<StartLoad>(actions).empty());
}

TEST_F(NodeStateTest, RefusesAShardThatTheTableDoesNotHave) {
  Join();
  const auto actions = Order(LoadReplicas{TableOf(1), {ShardIndex(9'999)}, Tier::kDram});
  EXPECT_EQ(Done(actions).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(state_.replicas().size(), 0u);
}

TEST_F(NodeStateTest, RefusesAnOlderFencingToken) {
  Join();
  Serve(0);
  Order(InspectSource{}, 5);
  const auto actions = Order(RetireReplicas{TableOf(1).uid, {ShardIndex(0)}, {}}, 4);
  EXPECT_EQ(Done(actions).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(state_.FindReplica(Shard(0))->state(), ReplicaState::kServing);
}

TEST_F(NodeStateTest, RefusesACommandForAnotherIncarnation) {
  Join();
  Serve(0);
  const auto actions = Order(RetireReplicas{TableOf(1).uid, {ShardIndex(0)}, {}}, 3, 6);
  EXPECT_EQ(Done(actions).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(state_.FindReplica(Shard(0))->state(), ReplicaState::kServing);
}

TEST_F(NodeStateTest, ExitsWhenAnotherProcessTookOver) {
  Join();
  auto actions = Feed(ControllerSaid{NodeRefused{absl::AbortedError("replaced")}});
  EXPECT_EQ(All<Exit>(actions).size(), 1u);
  EXPECT_TRUE(Open(1).empty());
}

TEST_F(NodeStateTest, SessionsAndLeasesGoOnWithoutTheController) {
  Join();
  Serve(0);
  Open(1);
  Feed(ControllerLost{});
  for (int i = 0; i < 20; ++i) {
    now_ += seconds(3);
    const auto renewed = Said<LeaseRenewed>(Renew(1, 1), StreamId(1));
    ASSERT_EQ(renewed.size(), 1u);
    EXPECT_EQ(renewed[0].lease, kDefaultLease);
  }
  EXPECT_EQ(Said<SessionOpened>(Open(2), StreamId(2)).size(), 1u);
}

TEST_F(NodeStateTest, TellsTheControllerWhatItHoldsWhenItJoinsAgain) {
  Join();
  Serve(0);
  Feed(ControllerLost{});
  const auto sent = All<SendToController>(Feed(ControllerConnected{}));
  ASSERT_EQ(sent.size(), 1u);
  const auto& hello = std::get<NodeHello>(sent[0].message);
  EXPECT_EQ(hello.incarnation, Incarnation(7));
  ASSERT_EQ(hello.replicas.size(), 1u);
  EXPECT_EQ(hello.replicas[0].state, ReplicaState::kServing);
}

TEST_F(NodeStateTest, ReportsAnUnknownReplicaAsRetired) {
  Join();
  // Nothing was held: the answer to the first heartbeat lets the report out.
  Feed(ControllerSaid{HeartbeatSeen{1}});
  const auto actions = Retire(5);
  EXPECT_TRUE(Done(actions).ok());
  bool reported = false;
  for (const SendToController& send : All<SendToController>(actions)) {
    const auto* beat = std::get_if<NodeHeartbeat>(&send.message);
    reported |= beat != nullptr && beat->changed.size() == 1 &&
                beat->changed[0].state == ReplicaState::kRetired;
  }
  EXPECT_TRUE(reported);
}

TEST_F(NodeStateTest, LimitsTheNumberOfSessions) {
  NodeOptions options = SmallNode();
  options.max_sessions = 1;
  NodeState small(options, &random_);
  small.OnEvent(now_, ControllerConnected{});
  small.OnEvent(now_, ControllerSaid{NodeWelcome{Incarnation(7), FencingToken(3), seconds(1), {}}});
  OpenSession open;
  open.node = {"node-0"};
  open.incarnation = Incarnation(7);
  open.request_id = "a";
  small.OnEvent(now_, ClientSaid{StreamId(1), open});
  open.request_id = "b";
  const auto refused =
      Said<SessionRefused>(small.OnEvent(now_, ClientSaid{StreamId(2), open}), StreamId(2));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace engram::poolserver
