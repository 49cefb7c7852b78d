// How a new epoch reaches those who watch the map: by being sent, not by anybody's asking or by a
// period of the controller's. Its clock stands still here, so that nothing periodic ever happens.
#include <gmock/gmock.h>

#include "placement/rpc/pool_service.h"
#include "proto/grpc_server.h"
#include "tests/placement/rpc/grpc_pool.h"

namespace engram::placement {
namespace {

class MapPushTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = std::make_unique<MemoryStore>();
    auto random = std::make_unique<SeededRandom>(1);
    auto controller = Controller::Open(clock_.Now(), {}, store.get(), random.get());
    ASSERT_TRUE(controller.ok()) << controller.status();
    loop_ = std::make_unique<ControllerLoop>(std::move(store), std::move(random),
                                             *std::move(controller), &clock_);
    pool_ = std::make_unique<PoolService>(loop_.get(), &heat_, &open_, PoolService::Options());
    ControllerLoop::Outlets outlets;
    outlets.send = [](LinkId, ControllerToNode) {};
    outlets.close = [](LinkId, const absl::Status&) {};
    outlets.map_changed = [this] { pool_->MapChanged(); };
    outlets.say = [](const std::string&) {};
    outlets.deposed = [](const absl::Status&) {};
    loop_->Start(std::move(outlets));
    wire::ServerOptions options;
    options.services = {pool_.get()};
    auto server = wire::GrpcServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    pool_->CloseAll();
    loop_->Stop();
    server_->Stop();
  }
  // One epoch more.
  void Join(const std::string& name) {
    loop_->Post(NodeSaid{loop_->NewLink(), FakeNode(name).hello});
  }

  FakeClock clock_;
  HeatBoard heat_{std::chrono::minutes(1)};
  OpenTables open_{std::chrono::minutes(1)};
  std::unique_ptr<ControllerLoop> loop_;
  std::unique_ptr<PoolService> pool_;
  std::unique_ptr<wire::GrpcServer> server_;
};

TEST_F(MapPushTest, EveryEpochIsSentToEveryWatcherThoughNobodyAsksAgainAndNoTimePasses) {
  constexpr int kEpochs = 50, kWatchers = 3;
  struct Watcher {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchMapResponse>> stream;
    std::uint64_t epoch = 0;
  };
  PoolClient client("127.0.0.1:" + std::to_string(server_->port()));
  std::vector<Watcher> watchers(kWatchers);
  for (Watcher& watcher : watchers) {
    watcher.epoch = loop_->snapshot()->epoch.value();
    v1::WatchMapRequest request;
    request.set_from_epoch(watcher.epoch);
    watcher.context.set_deadline(std::chrono::system_clock::now() + kPatience);
    watcher.stream = client.stub().WatchMap(&watcher.context, request);
  }
  for (int i = 0; i < kEpochs; ++i) {
    const std::string name = "node-" + std::to_string(i);
    Join(name);
    for (Watcher& watcher : watchers) {
      v1::WatchMapResponse delta;
      ASSERT_TRUE(watcher.stream->Read(&delta)) << name;
      EXPECT_EQ(delta.from_epoch(), watcher.epoch);
      EXPECT_TRUE(delta.last());
      ASSERT_EQ(delta.nodes_size(), 1);
      EXPECT_EQ(delta.nodes(0).node(), name);
      watcher.epoch = delta.to_epoch();
    }
  }
  for (Watcher& watcher : watchers) {
    watcher.context.TryCancel();
    (void)watcher.stream->Finish();
  }
}

}  // namespace
}  // namespace engram::placement
