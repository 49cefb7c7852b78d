// Three controllers on one real etcd: who leads, what the others say, and what becomes of the
// state.
#include <gmock/gmock.h>

#include "engram/not_leader.h"
#include "tests/placement/rpc/etcd_process.h"
#include "tests/placement/rpc/grpc_pool.h"

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

class SeveralControllersTest : public ::testing::Test {
 protected:
  // With a lease that outlasts what a slow machine does meanwhile, unless the test is about its
  // end.
  void StartAll(const std::string& lease = "20s", std::vector<std::string> more = {}) {
    flags_ = std::move(more);
    flags_.push_back("--leader-lease=" + lease);
    for (std::size_t i = 0; i < 3; ++i) {
      ports_[i] = FreePort();
      Start(i);
    }
  }
  void Start(std::size_t i) {
    std::vector<std::string> flags = {absl::StrCat("--listen=127.0.0.1:", ports_[i]),
                                      "--metrics-listen=127.0.0.1:0", "--store=etcd",
                                      "--etcd-endpoints=" + etcd_.Url()};
    flags.insert(flags.end(), flags_.begin(), flags_.end());
    auto settings =
        LoadSettings(PlacementProgram(), flags, [](const std::string&) { return std::nullopt; });
    ASSERT_TRUE(settings.ok()) << settings.status();
    auto server = PlacementServer::Start(
        *settings, [](const std::string&) {},
        [](const absl::Status&) { ADD_FAILURE() << "one of several ends its process"; });
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[i] = *std::move(server);
  }
  // The one that leads; none: nobody does.
  std::optional<std::size_t> Leader() const {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < 3; ++i) {
      if (servers_[i] == nullptr || !servers_[i]->loop().Refusal().ok()) continue;
      // It may have changed hands between two looks.
      EXPECT_FALSE(found && servers_[*found]->loop().Refusal().ok()) << *found << " and " << i;
      found = i;
    }
    return found;
  }
  std::size_t AwaitLeader() {
    EXPECT_TRUE(PoolClient::Await([this] { return Leader().has_value(); }));
    return Leader().value_or(0);
  }
  std::string EndpointOf(std::size_t i) const { return absl::StrCat("127.0.0.1:", ports_[i]); }
  absl::Status Info(std::size_t i, v1::GetPoolInfoResponse* info) const {
    grpc::ClientContext call;
    return wire::FromGrpc(
        v1::PoolService::NewStub(wire::Connect(EndpointOf(i)))->GetPoolInfo(&call, {}, info));
  }

  EtcdProcess etcd_;
  std::vector<std::string> flags_;
  int ports_[3] = {};
  std::unique_ptr<PlacementServer> servers_[3];
};

TEST_F(SeveralControllersTest, OneLeadsAndTheOthersNameItAndTheStateOutlivesIt) {
  StartAll();
  const std::size_t first = AwaitLeader();
  v1::GetPoolInfoResponse before;
  ASSERT_TRUE(Info(first, &before).ok());
  EXPECT_THAT(before.state_store(), HasSubstr("etcd:"));
  for (std::size_t i = 0; i < 3; ++i) {
    if (i == first) continue;
    absl::Status refused;
    EXPECT_TRUE(PoolClient::Await([&] {
      v1::GetPoolInfoResponse none;
      refused = Info(i, &none);
      return LeaderNamedBy(refused) == EndpointOf(first);
    })) << refused;
    // Commands and joins are refused as well.
    EXPECT_TRUE(IsNotLeader(wire::FromGrpc(PoolClient(EndpointOf(i)).Load("1", "r1"))));
  }
  {
    GrpcNode n1("n1", EndpointOf(first)), n2("n2", EndpointOf(first));
    PoolClient client(EndpointOf(first));
    ASSERT_TRUE(PoolClient::Await([&] { return n1.joins() > 0 && n2.joins() > 0; }));
    ASSERT_TRUE(client.Load("1", "r1").ok());
    ASSERT_TRUE(client.AwaitReady("1"));
  }
  servers_[first].reset();
  const std::size_t second = AwaitLeader();
  EXPECT_NE(second, first);
  v1::GetPoolInfoResponse after;
  ASSERT_TRUE(Info(second, &after).ok());
  EXPECT_GT(after.fencing_token(), before.fencing_token());
  EXPECT_GT(after.epoch(), before.epoch());
  const auto table = PoolClient(EndpointOf(second)).Get("1");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->table().state(), v1::TABLE_STATE_READY);
}

// It hangs on a leader that was stopped, as far as the next one knows.
TEST_F(SeveralControllersTest, ANodeThatHasNotComeOverYetIsNotDead) {
  StartAll("20s", {"--dead-after=1s", "--heartbeat-every=100ms"});
  const std::size_t first = AwaitLeader();
  GrpcNode node("n1", EndpointOf(first));
  ASSERT_TRUE(PoolClient::Await([&] { return node.joins() > 0; }));
  servers_[first].reset();
  const std::size_t second = AwaitLeader();
  const auto alive = [&] {
    const auto state = servers_[second]->loop().snapshot();
    const NodeRecord* record = state->FindNode({"n1"});
    return record != nullptr && record->alive;
  };
  ASSERT_TRUE(PoolClient::Await(alive));
  std::this_thread::sleep_for(seconds(4));  // longer than three times dead_after
  EXPECT_TRUE(alive());
}

TEST(RejoinGraceTest, LastsUntilAStoppedLeaderWasGivenUpAndTheNextFoundHoweverSoonNodesAreDead) {
  for (const Duration dead_after : {Duration(milliseconds(200)), Duration(seconds(5))}) {
    ControllerOptions options;
    options.dead_after = dead_after;
    options.rejoin_grace = RejoinGrace();
    SmallPool pool(1, options);
    FakeNode comes("comes"), gone("gone");
    pool.Join(comes);
    pool.Join(gone);
    pool.Restart();
    pool.clock().Advance(wire::kGivenUpAfter + 2 * wire::kAskEachController);
    pool.Feed(Tick{});
    EXPECT_TRUE(pool.state().FindNode({"comes"})->alive);
    pool.Join(comes);
    pool.clock().Advance(dead_after / 2);
    pool.Beat(comes);
    pool.clock().Advance(dead_after / 2);
    pool.Feed(Tick{});
    EXPECT_TRUE(pool.state().FindNode({"comes"})->alive);
    EXPECT_FALSE(pool.state().FindNode({"gone"})->alive);
  }
}

TEST_F(SeveralControllersTest, WithoutEtcdNobodyLeadsAndWithItSomebodyDoesAgain) {
  StartAll("2s");
  AwaitLeader();
  etcd_.Kill();
  EXPECT_TRUE(PoolClient::Await([this] { return !Leader().has_value(); }));
  etcd_.Start();
  AwaitLeader();
}

TEST_F(SeveralControllersTest, ADeposedLeaderCannotWrite) {
  // Both believe that they lead: nothing but the token tells them apart.
  auto client = EtcdClient::Open(etcd_.Options());
  ASSERT_TRUE(client.ok());
  EtcdStore one(*client, "/fenced/", "one"), two(*client, "/fenced/", "two");
  SeededRandom random(1);
  const Instant now = SystemClock::Get().Now();
  auto old_leader = Controller::Open(now, {}, &one, &random);
  ASSERT_TRUE(old_leader.ok()) << old_leader.status();
  auto new_leader = Controller::Open(now, {}, &two, &random);
  ASSERT_TRUE(new_leader.ok()) << new_leader.status();
  FakeNode node("n1");
  bool deposed = false;
  for (const Action& action : (*old_leader)->OnEvent(now, NodeSaid{LinkId(1), node.hello})) {
    deposed |= std::holds_alternative<Deposed>(action);
    EXPECT_FALSE(std::holds_alternative<MapChanged>(action));
  }
  EXPECT_TRUE(deposed);
  EXPECT_EQ((*old_leader)->state().FindNode({"n1"}), nullptr);
  EXPECT_GT((*new_leader)->state().token, (*old_leader)->state().token);
}

TEST_F(SeveralControllersTest, ItSaysWhatIsWrongWithItsSettings) {
  const auto start = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--store=etcd", "--metrics-listen="});
    auto settings =
        LoadSettings(PlacementProgram(), more, [](const std::string&) { return std::nullopt; });
    if (!settings.ok()) return settings.status();
    return PlacementServer::Start(
               *settings, [](const std::string&) {}, [](const absl::Status&) {})
        .status();
  };
  EXPECT_THAT(std::string(start({"--listen=127.0.0.1:0"}).message()), HasSubstr("--advertise"));
  EXPECT_THAT(std::string(start({"--etcd-endpoints=nowhere"}).message()), HasSubstr("HOST:PORT"));
  EXPECT_THAT(std::string(start({"--etcd-cert=/none.pem"}).message()), HasSubstr("--etcd-key"));
  EXPECT_THAT(std::string(start({"--etcd-password-file=/none"}).message()), HasSubstr("/none"));
  EXPECT_EQ(etcd_.Ctl({"put", "/engram/format", "7"}), 0);
  EXPECT_THAT(std::string(start({"--etcd-endpoints=" + etcd_.Url()}).message()),
              HasSubstr("format 7; this program knows up to 1"));
}

}  // namespace
}  // namespace engram::placement
