// The controller over gRPC, in this process and as the real program, which is killed at random
// moments.
#include <gmock/gmock.h>

#include "tests/placement/rpc/grpc_pool.h"
#include "tests/scrape.h"

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

using PoolOverGrpcTest = GrpcPoolTest;

// Follows the map until `done` holds for it.
bool Follow(PoolClient& client, const std::function<bool(const ShardMap&)>& done,
            int* deltas = nullptr) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = client.stub().WatchMap(&context, v1::WatchMapRequest());
  wire::MapDeltaAssembler assembler;
  std::shared_ptr<const ShardMap> map = ShardMap::Empty();
  v1::WatchMapResponse piece;
  while (!done(*map)) {
    if (!stream->Read(&piece)) return false;
    const auto whole = assembler.Add(piece);
    EXPECT_TRUE(whole.ok()) << whole.status();
    if (!whole.ok() || !*whole) continue;
    const auto next = map->Apply(assembler.Take());
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok()) return false;
    map = *next;
    if (deltas != nullptr) ++*deltas;
  }
  context.TryCancel();
  (void)stream->Finish();
  return true;
}

TEST_F(PoolOverGrpcTest, NodesJoinATableIsLoadedListedWatchedAndDeleted) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string endpoint = EndpointOf(**server);
  PoolClient client(endpoint);
  GrpcNode a("a", endpoint), b("b", endpoint);
  ASSERT_TRUE(PoolClient::Await([&] { return a.incarnation() != 0 && b.incarnation() != 0; }));
  EXPECT_NE(a.incarnation(), b.incarnation());
  const grpc::Status loaded = client.Load("1", "r1");
  ASSERT_TRUE(loaded.ok()) << loaded.error_message();
  int deltas = 0;
  EXPECT_TRUE(Follow(
      client,
      [](const ShardMap& map) {
        const MapTable* table = map.FindTable(TableName{"small", "1"});
        if (table == nullptr || table->state != TableState::kReady) return false;
        const auto replicas = map.Replicas({table->uid, ShardIndex(5)});
        return replicas.size() == 2 && replicas[0].state == ReplicaState::kServing;
      },
      &deltas));
  ASSERT_TRUE(client.AwaitReady("1"));
  EXPECT_EQ(client.Load("1", "r2").error_code(), grpc::StatusCode::ALREADY_EXISTS);

  grpc::ClientContext shards_context;
  v1::ListShardsRequest shards_request;
  shards_request.set_name("small");
  shards_request.set_version("1");
  const auto shards = client.stub().ListShards(&shards_context, shards_request);
  v1::ListShardsResponse piece;
  int count = 0;
  while (shards->Read(&piece)) count += piece.shards_size();
  EXPECT_TRUE(shards->Finish().ok());
  EXPECT_EQ(count, 6);

  grpc::ClientContext nodes_context;
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(client.stub().ListNodes(&nodes_context, {}, &nodes).ok());
  ASSERT_EQ(nodes.nodes_size(), 2);
  EXPECT_TRUE(nodes.nodes(0).alive());
  EXPECT_EQ(nodes.nodes(0).replicas_serving(), 6u);

  v1::DeleteTableResponse removed;
  ASSERT_TRUE(client.Delete("1", "d1", &removed).ok());
  EXPECT_EQ(removed.table().state(), v1::TABLE_STATE_DELETING);
  EXPECT_TRUE(PoolClient::Await([&] { return !client.Get("1"); }));
}

TEST_F(PoolOverGrpcTest, WatchFromTheNewestEpochWaitsForTheNextChange) {
  auto server = Start();
  ASSERT_TRUE(server.ok());
  const std::string endpoint = EndpointOf(**server);
  PoolClient client(endpoint);
  v1::WatchMapRequest request;
  request.set_from_epoch((*server)->loop().snapshot()->epoch.value());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = client.stub().WatchMap(&context, request);
  GrpcNode a("a", endpoint);
  v1::WatchMapResponse piece;
  ASSERT_TRUE(stream->Read(&piece));
  EXPECT_EQ(piece.from_epoch(), request.from_epoch());
  ASSERT_EQ(piece.nodes_size(), 1);
  EXPECT_EQ(piece.nodes(0).node(), "a");
}

TEST_F(PoolOverGrpcTest, BadRequestsAreAnsweredNotCrashedOn) {
  auto server = Start();
  ASSERT_TRUE(server.ok());
  PoolClient client(EndpointOf(**server));
  EXPECT_EQ(client.Load("Not A Version", "r").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status no_nodes = client.Load("1", "r");
  EXPECT_EQ(no_nodes.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(no_nodes.error_message(), HasSubstr("none is alive"));
  grpc::ClientContext context;
  const auto node_stub = v1::NodeService::NewStub(wire::Connect(EndpointOf(**server)));
  const auto stream = node_stub->Join(&context);
  EXPECT_TRUE(stream->Write(v1::JoinRequest()));
  v1::JoinResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(PoolOverGrpcTest, ErrorsOfAStartNameWhatIsWrong) {
  auto first = Start();
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(std::string(Start().status().message()), HasSubstr("in use by another process"));
  const std::string taken = EndpointOf(**first);
  const auto port = Start({"--state-file=" + folder_ / "other.db", "--listen=" + taken});
  EXPECT_EQ(port.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(port.status().message()), HasSubstr(taken));
  const auto metrics =
      Start({"--state-file=" + folder_ / "third.db",
             "--metrics-listen=127.0.0.1:" + std::to_string((*first)->metrics_port())});
  EXPECT_THAT(std::string(metrics.status().message()), HasSubstr("--metrics-listen"));
  EXPECT_THAT(std::string(Start({"--listen=0.0.0.0:0"}).status().message()),
              HasSubstr("--insecure-listen"));
  EXPECT_THAT(std::string(Start({"--dead-after=1s"}).status().message()),
              HasSubstr("heartbeat_every"));
}

TEST_F(PoolOverGrpcTest, MetricsHaveTheirPromisedNames) {
  auto server = Start();
  ASSERT_TRUE(server.ok());
  const std::string text = Scrape((*server)->metrics_port());
  for (const char* name : {"engram_build_info{", "engram_map_epoch ", "engram_placement_leader 1",
                           "engram_moves_total{kind=\"load\",result=\"ok\"} 0",
                           "engram_move_bytes_total 0", "engram_shards_under_replicated 0",
                           "engram_plan_seconds_count", "# TYPE engram_table_state"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(PoolOverGrpcTest, StopsWithStreamsOpen) {
  auto server = Start();
  ASSERT_TRUE(server.ok());
  const std::string endpoint = EndpointOf(**server);
  GrpcNode a("a", endpoint);
  PoolClient client(endpoint);
  grpc::ClientContext context;
  const auto stream = client.stub().WatchMap(&context, v1::WatchMapRequest());
  ASSERT_TRUE(PoolClient::Await([&] { return a.incarnation() != 0; }));
  (*server)->Stop();
  v1::WatchMapResponse piece;
  while (stream->Read(&piece)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(PoolOverGrpcTest, DeleteIsAnsweredAlikeAfterTheControllerRestarted) {
  auto server = Start();
  ASSERT_TRUE(server.ok());
  v1::DeleteTableResponse first, second;
  {
    PoolClient client(EndpointOf(**server));
    GrpcNode a("a", EndpointOf(**server));
    ASSERT_TRUE(PoolClient::Await([&] { return a.incarnation() != 0; }));
    ASSERT_TRUE(client.Load("1", "r1", 1).ok());
    ASSERT_TRUE(client.AwaitReady("1"));
    ASSERT_TRUE(client.Delete("1", "d1", &first).ok());
    ASSERT_TRUE(PoolClient::Await([&] { return !client.Get("1"); }));
  }
  server->reset();
  server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  PoolClient client(EndpointOf(**server));
  ASSERT_TRUE(client.Delete("1", "d1", &second).ok());
  EXPECT_EQ(second.table().uid(), first.table().uid());
  EXPECT_EQ(client.Delete("1", "d2", &second).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Moved by the test while the loop's thread looks.
class HandClock final : public Clock {
 public:
  Instant Now() const override { return Instant(now_.load()); }
  void Advance(Duration by) { now_ = now_.load() + by; }

 private:
  std::atomic<Duration> now_{seconds(1'000)};
};

TEST(JoinTest, StreamThatNeverSaysHelloIsClosed) {
  HandClock clock;
  auto store = std::make_unique<MemoryStore>();
  auto random = std::make_unique<SeededRandom>(1);
  auto controller = Controller::Open(clock.Now(), ControllerOptions(), store.get(), random.get());
  ASSERT_TRUE(controller.ok());
  ControllerLoop loop(std::move(store), std::move(random), *std::move(controller), &clock);
  NodeService nodes(&loop);
  loop.Start({[](LinkId, const ControllerToNode&) {},
              [&](LinkId link, const absl::Status& why) { nodes.Close(link, why); }, [] {},
              [](const std::string&) {}, [](const absl::Status&) {}});
  const LinkId before = loop.NewLink();
  auto server = *wire::GrpcServer::Start({"127.0.0.1:0", false, false, {&nodes}});
  const auto stub =
      v1::NodeService::NewStub(wire::Connect("127.0.0.1:" + std::to_string(server->port())));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = stub->Join(&context);
  // The stream has begun once it took a number.
  ASSERT_TRUE(PoolClient::Await([&, last = before]() mutable {
    const LinkId next = loop.NewLink();
    const bool taken = next.value() > last.value() + 1;
    last = next;
    return taken;
  }));
  std::atomic<bool> ended{false};
  std::thread turner([&] {
    while (!ended) {
      clock.Advance(seconds(1));
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  v1::JoinResponse response;
  EXPECT_FALSE(stream->Read(&response));
  ended = true;
  turner.join();
  const grpc::Status why = stream->Finish();
  EXPECT_EQ(why.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(why.error_message(), HasSubstr("did not say hello within 10s"));
  loop.Stop();
  server->Stop();
}

// ---- the real program ----

TEST(PlacementProgramTest, SurvivesKillAtRandomPointsOfALoad) {
  Folder folder;
  SeededRandom random(20);
  auto process = StartController(folder, 0);
  const int port = process->AwaitPort();
  ASSERT_NE(port, 0);
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
  PoolClient client(endpoint);
  GrpcNode a("a", endpoint), b("b", endpoint);
  ASSERT_TRUE(PoolClient::Await([&] { return a.incarnation() != 0 && b.incarnation() != 0; }));
  const std::uint64_t incarnations[] = {a.incarnation(), b.incarnation()};
  std::map<std::string, std::string> digests;
  for (int round = 0; round < 6; ++round) {
    const std::string version = std::to_string(round);
    const grpc::Status loaded = client.Load(version, "r" + version);
    std::this_thread::sleep_for(milliseconds(random.Below(120)));
    const std::uint64_t joins[] = {a.joins(), b.joins()};
    process->Kill(SIGKILL);
    process = StartController(folder, port);
    ASSERT_EQ(process->AwaitPort(), port);
    ASSERT_TRUE(PoolClient::Await([&] {
      const grpc::Status again = client.Load(version, "r" + version);
      return again.ok();
    })) << loaded.error_message();
    ASSERT_TRUE(client.AwaitReady(version));
    digests[version] = client.Get(version)->table().content_digest();
    for (const auto& [earlier, digest] : digests) {
      const auto table = client.Get(earlier);
      ASSERT_TRUE(table);
      EXPECT_EQ(table->table().state(), v1::TABLE_STATE_READY);
      EXPECT_EQ(table->table().content_digest(), digest);
      EXPECT_EQ(table->shards_serving(), table->shards_total());
    }
    // A Ready table serves before its nodes are back; the next load is to meet them.
    ASSERT_TRUE(PoolClient::Await([&] { return a.joins() > joins[0] && b.joins() > joins[1]; }));
  }
  EXPECT_EQ(a.incarnation(), incarnations[0]);
  EXPECT_EQ(b.incarnation(), incarnations[1]);
  const int status = process->Kill(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace engram::placement
