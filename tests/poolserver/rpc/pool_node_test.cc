// A whole pool node in this process: a controller's stream over real gRPC, a session over real
// gRPC, rows over the real fabrics.
#include "poolserver/rpc/pool_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "engram/addressing.h"
#include "engram/sealed_row.h"
#include "engram/shard_layout.h"
#include "engram/synthetic.h"
#include "engram/v1/placement.grpc.pb.h"
#include "fabric/mapped/mapped_fabric.h"
#include "fabric/ofi/ofi_fabric.h"
#include "fabric/stream/stream_fabric.h"
#include "proto/convert.h"
#include "tests/poolserver/nvme/shard_on_disk.h"
#include "tests/scrape.h"

namespace engram::poolserver {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kPatience = 60s;

// One scripted controller: welcomes, acknowledges heartbeats, sends what the test says.
class Controller final : public v1::NodeService::Service {
 public:
  grpc::Status Join(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::JoinResponse, v1::JoinRequest>* stream) override {
    {
      std::lock_guard lock(mutex_);
      stream_ = stream;
      ++joins_;
    }
    v1::JoinRequest request;
    while (stream->Read(&request)) Hear(*wire::FromWire(request));
    std::lock_guard lock(mutex_);
    stream_ = nullptr;
    changed_.notify_all();
    return grpc::Status::OK;
  }

  void Say(const ControllerToNode& message) {
    std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Write(wire::ToWire(message));
  }
  void Order(std::variant<LoadReplicas, RetireReplicas, InspectSource> body) {
    Say(Command{++commands_, kIncarnation, FencingToken(1), std::move(body)});
  }
  // Refuses instead of welcoming from now on.
  void Refuse(absl::Status why) {
    std::lock_guard lock(mutex_);
    refusal_ = why;
  }
  template <class Predicate>
  bool WaitUntil(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return predicate(*this); });
  }

  static constexpr Incarnation kIncarnation{7};
  static constexpr Epoch kEpoch{12};
  std::map<ShardKey, ReplicaReport> replicas;  // the latest report of each
  std::vector<TierCapacity> tiers;
  std::vector<CommandDone> done;
  NodeHello hello;
  int joins() const { return joins_; }

 private:
  void Hear(const NodeToController& message) {
    std::unique_lock lock(mutex_);
    if (const auto* said = std::get_if<NodeHello>(&message)) {
      hello = *said;
      for (const ReplicaReport& report : said->replicas) replicas[report.shard] = report;
      if (refusal_.ok()) {
        stream_->Write(
            wire::ToWire(ControllerToNode(NodeWelcome{kIncarnation, FencingToken(1), 50ms, 10s})));
      } else {
        stream_->Write(wire::ToWire(ControllerToNode(NodeRefused{refusal_})));
      }
    } else if (const auto* beat = std::get_if<NodeHeartbeat>(&message)) {
      for (const ReplicaReport& report : beat->changed) replicas[report.shard] = report;
      tiers = beat->tiers;
      stream_->Write(wire::ToWire(ControllerToNode(HeartbeatSeen{beat->sequence, kEpoch})));
    } else {
      done.push_back(std::get<CommandDone>(message));
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ServerReaderWriter<v1::JoinResponse, v1::JoinRequest>* stream_ = nullptr;
  int joins_ = 0;
  std::uint64_t commands_ = 0;
  absl::Status refusal_;
};

TableRecord SyntheticTable() {
  EngramGeometry geometry;
  geometry.layers = {1};
  geometry.base_rows = 2000;
  geometry.raw_vocab = geometry.compressed_vocab = 1000;
  TableRecord table;
  table.uid.bytes.fill(0x42);
  table.name = {"small", "1"};
  table.spec = *MakeEngramSpec(geometry);
  table.options.shard_bytes = kMinShardBytes;
  table.source.seed = 99;
  table.spec_digest = table.spec.Digest();
  return table;
}

// A read session over gRPC.
class Session {
 public:
  Session(const std::string& endpoint, const NodeId& node, const TableUid& table)
      : stub_(v1::ReadSessionService::NewStub(wire::Connect(endpoint))),
        stream_(stub_->ReadSession(&context_)) {
    OpenSession open;
    open.client = "test";
    open.request_id = "r1";
    open.node = node;
    open.incarnation = Controller::kIncarnation;
    open.tables = {table};
    Say(open);
  }
  ~Session() {
    context_.TryCancel();
    stream_->Finish();
  }
  void Say(const ClientMessage& message) { stream_->Write(wire::ToWire(message)); }
  NodeMessage Hear() {
    v1::ReadSessionResponse response;
    if (!stream_->Read(&response)) return SessionRefused{absl::UnavailableError("stream ended")};
    return *wire::FromWire(response);
  }
  template <class T>
  T HearA() {
    while (true) {
      NodeMessage message = Hear();
      if (auto* wanted = std::get_if<T>(&message)) return *wanted;
      if (auto* refused = std::get_if<SessionRefused>(&message)) {
        ADD_FAILURE() << refused->status;
        return {};
      }
    }
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::ReadSessionService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ReadSessionRequest, v1::ReadSessionResponse>>
      stream_;
};

class PoolNodeTest : public testing::Test {
 protected:
  void SetUp() override {
    wire::ServerOptions server;
    server.services = {&controller_};
    server_ = *wire::GrpcServer::Start(server);
    options_.node = NodeId{"n1"};
    options_.controller = "127.0.0.1:" + std::to_string(server_->port());
    options_.failure_domain = "rack1";
    options_.memory[0].capacity_bytes = std::uint64_t{64} << 20;
    options_.memory[0].slab_bytes = std::uint64_t{8} << 20;
    options_.lease = 120s;  // longer than any wait here: a session here renews only what it says
    options_.targets.node = options_.node;
  }
  void StartNode() {
    auto node = PoolNode::Start(options_, [this](const absl::Status& why) {
      std::lock_guard lock(exit_mutex_);
      exit_ = why;
      exited_.notify_all();
    });
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
    ASSERT_TRUE(controller_.WaitUntil([](Controller& c) { return c.hello.node.name == "n1"; }));
  }
  // A cxl tier beside dram, in the memory of a NUMA node that every machine has.
  void AddCxl() {
    Arena::Options cxl = options_.memory[0];
    cxl.tier = Tier::kCxl;
    cxl.numa_node = 0;
    cxl.capacity_bytes = std::uint64_t{32} << 20;
    cxl.capacity_setting = "--cxl-memory";
    cxl.read_bytes_per_second = 5'000;
    options_.memory.push_back(cxl);
  }
  void Load(const TableRecord& table, Tier tier = Tier::kDram) {
    std::vector<ShardIndex> shards;
    const std::uint32_t count = ShardLayout(table.spec, table.options).shards();
    for (std::uint32_t i = 0; i < count; ++i) shards.push_back(ShardIndex(i));
    controller_.Order(LoadReplicas{table, shards, tier});
  }
  bool AllReplicasAre(ReplicaState state, std::size_t count) {
    return controller_.WaitUntil([&](Controller& c) {
      std::size_t in_state = 0;
      for (const auto& [shard, report] : c.replicas) in_state += report.state == state ? 1 : 0;
      return in_state == count;
    });
  }

  Controller controller_;
  std::unique_ptr<wire::GrpcServer> server_;
  PoolNodeOptions options_;
  std::unique_ptr<PoolNode> node_;
  std::mutex exit_mutex_;
  std::condition_variable exited_;
  absl::Status exit_;
};

// Reads every row of a grant by one path and compares it with the synthetic function and its seal.
void ReadAndCheck(fabric::Fabric& fabric, const SessionOpened& opened, const Grant& grant,
                  const TableRecord& table) {
  const ShardLayout layout(table.spec, table.options);
  const ShardRange range = layout.Range(grant.shard.shard);
  for (const GrantPath& path : grant.paths) {
    const PathAddress& address = opened.paths.at(path.path);
    if (address.fabric != fabric.info().kind) continue;
    auto peer = fabric.AddPeer({address, opened.token, opened.node, opened.incarnation},
                               SystemClock::Get().Now() + kPatience);
    ASSERT_TRUE(peer.ok()) << peer.status();
    auto region = fabric.Import({*peer, path.address, path.length, path.key});
    ASSERT_TRUE(region.ok()) << region.status();
    auto queue = fabric.OpenQueue({});
    ASSERT_TRUE(queue.ok()) << queue.status();
    std::vector<std::byte> got(layout.stride()), want(layout.row_bytes());
    const RowSealer sealer(table.uid, layout.row_bytes());
    for (std::uint64_t slot = 0; slot < range.rows; slot += 37) {
      fabric::ReadOp op;
      op.region = *region;
      op.offset = slot * layout.stride();
      op.length = layout.stride();
      op.local[0] = {got.data(), layout.stride(), nullptr};
      ASSERT_EQ((*queue)->Submit({&op, 1}), 1u);
      fabric::ReadCompletion completion;
      while ((*queue)->Poll({&completion, 1}) == 0) std::this_thread::yield();
      ASSERT_EQ(completion.status, ReadStatus::kOk);
      const RowId row(range.first.value() + slot);
      FillSyntheticRow(table.source.seed, row, want);
      ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin())) << "row " << row.value();
      std::uint64_t seal = 0;
      std::memcpy(&seal, got.data() + layout.row_bytes(), sizeof seal);
      ASSERT_TRUE(sealer.Check(row, got.data(), seal)) << "row " << row.value();
    }
    queue->reset();
    fabric.Release(*region);
    fabric.RemovePeer(*peer);
  }
}

TEST_F(PoolNodeTest, ServesVerifiedRowsOverMappedAndStream) {
  StartNode();
  const TableRecord table = SyntheticTable();
  const std::uint32_t shards = ShardLayout(table.spec, table.options).shards();
  Load(table);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kServing, shards));
  EXPECT_EQ(controller_.hello.failure_domain, "rack1");
  EXPECT_EQ(controller_.hello.endpoint, node_->endpoint());

  Session session(node_->endpoint(), options_.node, table.uid);
  const auto opened = session.HearA<SessionOpened>();
  ASSERT_EQ(opened.paths.size(), 2u);
  std::vector<Grant> grants;
  while (grants.size() < shards) {
    for (Grant& grant : session.HearA<GrantUpdate>().granted) grants.push_back(std::move(grant));
  }
  auto mapped = fabric::OpenMappedFabric();
  auto stream = *fabric::stream::StreamFabric::Open({});
  for (const Grant& grant : grants) {
    ASSERT_EQ(grant.paths.size(), 2u);
    ReadAndCheck(*mapped, opened, grant, table);
    ReadAndCheck(*stream, opened, grant, table);
  }
}

TEST_F(PoolNodeTest, ServesVerifiedRowsOfTheNvmeTierOverStreamAlone) {
  const nvme::DiskFolder folder;
  options_.memory.clear();
  options_.nvme.emplace();
  options_.nvme->owner = options_.node;
  options_.nvme->directory = folder.path();
  options_.nvme->capacity_bytes = std::uint64_t{64} << 20;
  options_.nvme->cache_bytes = std::uint64_t{2} << 20;
  if (const auto store = nvme::NvmeStore::Open(*options_.nvme);
      absl::IsFailedPrecondition(store.status()))
    GTEST_SKIP() << store.status().message();
  StartNode();
  const TableRecord table = SyntheticTable();
  const std::uint32_t shards = ShardLayout(table.spec, table.options).shards();
  Load(table, Tier::kNvme);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kServing, shards));
  ASSERT_EQ(controller_.tiers.size(), 1u);
  EXPECT_EQ(controller_.tiers[0].tier, Tier::kNvme);

  Session session(node_->endpoint(), options_.node, table.uid);
  const auto opened = session.HearA<SessionOpened>();
  std::size_t granted = 0;
  auto stream = *fabric::stream::StreamFabric::Open({});
  while (granted < shards) {
    for (const Grant& grant : session.HearA<GrantUpdate>().granted) {
      ++granted;
      ASSERT_EQ(grant.paths.size(), 1u) << "no other fabric reaches a device";
      EXPECT_EQ(opened.paths.at(grant.paths[0].path).fabric, FabricKind::kStream);
      ReadAndCheck(*stream, opened, grant, table);
    }
  }
}

TEST_F(PoolNodeTest, BlockChecksumsAreThoseOfTheRows) {
  StartNode();
  const TableRecord table = SyntheticTable();
  const ShardLayout layout(table.spec, table.options);
  Load(table);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kServing, layout.shards()));
  const ShardRange range = layout.Range(ShardIndex(1));
  const auto& crcs = controller_.replicas[{table.uid, ShardIndex(1)}].block_crcs;
  ASSERT_EQ(crcs.size(), (range.rows + kBlockRows - 1) / kBlockRows);
  std::uint32_t crc = 0;
  std::vector<std::byte> row(layout.row_bytes());
  for (std::uint64_t i = 0; i < kBlockRows; ++i) {
    FillSyntheticRow(table.source.seed, RowId(range.first.value() + i), row);
    crc = Crc32c(crc, row.data(), row.size());
  }
  EXPECT_EQ(crcs[0], crc);
}

TEST_F(PoolNodeTest, RetirementWaitsForTheReaderThenFreesTheMemory) {
  StartNode();
  const TableRecord table = SyntheticTable();
  const std::uint32_t shards = ShardLayout(table.spec, table.options).shards();
  Load(table);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kServing, shards));
  Session session(node_->endpoint(), options_.node, table.uid);
  session.HearA<SessionOpened>();
  GrantUpdate update;
  std::size_t granted = 0;
  while (granted < shards) {
    update = session.HearA<GrantUpdate>();
    granted += update.granted.size();
  }
  std::vector<ShardIndex> all;
  for (std::uint32_t i = 0; i < shards; ++i) all.push_back(ShardIndex(i));
  controller_.Order(RetireReplicas{table.uid, all, {}});
  std::size_t withdrawn = 0;
  while (withdrawn < shards) {
    update = session.HearA<GrantUpdate>();
    withdrawn += update.withdrawn.size();
  }
  session.Say(RenewLease{1, update.revision});
  session.HearA<LeaseRenewed>();
  EXPECT_TRUE(AllReplicasAre(ReplicaState::kRetired, shards));
  EXPECT_TRUE(controller_.WaitUntil(
      [](Controller& c) { return !c.tiers.empty() && c.tiers[0].allocated_bytes == 0; }));
}

TEST_F(PoolNodeTest, JoinsAgainAndGoesOnServingWhileTheControllerIsAway) {
  StartNode();
  const TableRecord table = SyntheticTable();
  const std::uint32_t shards = ShardLayout(table.spec, table.options).shards();
  Load(table);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kServing, shards));
  const int port = server_->port();
  server_->Stop(0ms);

  Session session(node_->endpoint(), options_.node, table.uid);
  EXPECT_EQ(session.HearA<SessionOpened>().incarnation, Controller::kIncarnation);
  EXPECT_FALSE(session.HearA<GrantUpdate>().granted.empty());

  wire::ServerOptions server;
  server.listen = "127.0.0.1:" + std::to_string(port);
  server.services = {&controller_};
  auto restarted = wire::GrpcServer::Start(server);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  server_ = *std::move(restarted);
  ASSERT_TRUE(controller_.WaitUntil([](Controller& c) { return c.joins() >= 2; }));
  ASSERT_TRUE(controller_.WaitUntil(
      [](Controller& c) { return c.hello.incarnation == Controller::kIncarnation; }));
  EXPECT_EQ(controller_.hello.replicas.size(), shards);
}

TEST_F(PoolNodeTest, ARefusedNodeEnds) {
  controller_.Refuse(absl::AbortedError("n1 was started again elsewhere"));
  StartNode();
  std::unique_lock lock(exit_mutex_);
  ASSERT_TRUE(exited_.wait_for(lock, kPatience, [this] { return !exit_.ok(); }));
  EXPECT_THAT(std::string(exit_.message()), HasSubstr("started again elsewhere"));
}

TEST_F(PoolNodeTest, ATableThatDoesNotFitIsReportedAndTakesNothing) {
  options_.memory[0].capacity_bytes = std::uint64_t{2} << 20;
  StartNode();
  const TableRecord table = SyntheticTable();
  const std::uint32_t shards = ShardLayout(table.spec, table.options).shards();
  Load(table);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kRetired, shards));
  const ReplicaReport& report = controller_.replicas[{table.uid, ShardIndex(0)}];
  EXPECT_EQ(report.error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(report.error.message()),
              testing::AllOf(HasSubstr("small@1"), HasSubstr("--memory")));
}

TEST_F(PoolNodeTest, ACheckpointThatIsNotThereIsReportedByInspection) {
  StartNode();
  TableSource source;
  source.kind = TableSource::Kind::kCheckpoint;
  source.checkpoint_dir = "/nonexistent/checkpoint";
  controller_.Order(InspectSource{{"c", "1"}, source});
  ASSERT_TRUE(controller_.WaitUntil([](Controller& c) { return !c.done.empty(); }));
  EXPECT_THAT(std::string(controller_.done[0].status.message()),
              HasSubstr("/nonexistent/checkpoint"));
}

TEST_F(PoolNodeTest, GarbageOnASessionEndsThatStreamOnly) {
  StartNode();
  // It beats once it was welcomed.
  ASSERT_TRUE(controller_.WaitUntil([](Controller& c) { return !c.tiers.empty(); }));
  grpc::ClientContext context;
  auto stub = v1::ReadSessionService::NewStub(wire::Connect(node_->endpoint()));
  auto stream = stub->ReadSession(&context);
  stream->Write(v1::ReadSessionRequest());
  v1::ReadSessionResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext status_call;
  v1::GetNodeStatusResponse status;
  EXPECT_TRUE(stub->GetNodeStatus(&status_call, {}, &status).ok());
  EXPECT_EQ(status.node(), "n1");
  EXPECT_EQ(status.incarnation(), Controller::kIncarnation.value());
  EXPECT_EQ(status.not_ready_reason(), "no replica is serving");
}

TEST_F(PoolNodeTest, ASecondTierIsReportedGrantedAndRead) {
  options_.metrics_listen = "127.0.0.1:0";
  AddCxl();
  StartNode();
  ASSERT_EQ(controller_.hello.tiers.size(), 2u);
  EXPECT_EQ(controller_.hello.tiers[1], (TierCapacity{Tier::kCxl, 32 << 20, 0, 5'000, ""}));
  const TableRecord table = SyntheticTable();
  const std::uint32_t shards = ShardLayout(table.spec, table.options).shards();
  Load(table, Tier::kCxl);
  ASSERT_TRUE(AllReplicasAre(ReplicaState::kServing, shards));
  EXPECT_EQ(controller_.replicas.begin()->second.tier, Tier::kCxl);
  const std::string text = Scrape(node_->metrics_port());
  EXPECT_THAT(text, HasSubstr("engram_pool_allocated_bytes{tier=\"dram\"} 0"));
  EXPECT_THAT(text, HasSubstr("engram_pool_read_bytes_per_second{tier=\"cxl\"} 5000"));
  EXPECT_THAT(text, HasSubstr("engram_pool_tier_healthy{tier=\"cxl\"} 1"));
  EXPECT_THAT(
      text, HasSubstr("engram_replicas{state=\"Serving\",tier=\"cxl\"} " + std::to_string(shards)));

  Session session(node_->endpoint(), options_.node, table.uid);
  const auto opened = session.HearA<SessionOpened>();
  const auto grants = session.HearA<GrantUpdate>();
  ASSERT_FALSE(grants.granted.empty());
  EXPECT_EQ(grants.granted[0].tier, Tier::kCxl);
  auto mapped = fabric::OpenMappedFabric();
  ReadAndCheck(*mapped, opened, grants.granted[0], table);
}

TEST_F(PoolNodeTest, ANodeWithoutAnyTierDoesNotStart) {
  options_.memory.clear();
  const auto node = PoolNode::Start(options_, [](const absl::Status&) {});
  EXPECT_EQ(node.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PoolNodeTest, MetricsHaveTheirPromisedNamesFromTheStart) {
  options_.metrics_listen = "127.0.0.1:0";
  StartNode();
  const std::string text = Scrape(node_->metrics_port());
  for (const char* name :
       {"engram_build_info{", "engram_pool_capacity_bytes{tier=\"dram\"} 67108864",
        "engram_pool_allocated_bytes{", "engram_pool_registered_bytes{", "engram_replicas{",
        "engram_pull_bytes_total", "engram_verify_failures_total{", "engram_sessions 0",
        "engram_lease_renewals_total{", "engram_retirements_pending 0",
        "engram_registration_renewals_total{result=\"begun\"} 0",
        "engram_registration_renewals_total{result=\"failed\"} 0",
        "engram_gather_rows_total{lane=\"bulk\"} 0",
        "engram_gather_messages_total{lane=\"urgent\"} 0", "engram_map_epoch "}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(PoolNodeTest, MetricsTellTheEpochThatTheControllerSaidLast) {
  options_.metrics_listen = "127.0.0.1:0";
  StartNode();
  const std::string wanted = "engram_map_epoch 12\n";
  std::string text;
  for (int i = 0; i < 1'200 && text.find(wanted) == std::string::npos; ++i) {
    std::this_thread::sleep_for(50ms);
    text = Scrape(node_->metrics_port());
  }
  EXPECT_THAT(text, HasSubstr(wanted));
}

TEST_F(PoolNodeTest, ServesOneSidedReadsWhereAskedTo) {
  options_.targets.fabrics = {"ofi", "mapped"};
  options_.targets.ofi_providers = {"tcp;ofi_rxm"};
  StartNode();
  const TableRecord table = SyntheticTable();
  Load(table);
  ASSERT_TRUE(
      AllReplicasAre(ReplicaState::kServing, ShardLayout(table.spec, table.options).shards()));
  Session session(node_->endpoint(), options_.node, table.uid);
  const auto opened = session.HearA<SessionOpened>();
  ASSERT_EQ(opened.paths.size(), 2u);
  const auto update = session.HearA<GrantUpdate>();
  ASSERT_FALSE(update.granted.empty());
  auto ofi = fabric::ofi::OfiFabric::Open({});
  ASSERT_TRUE(ofi.ok()) << ofi.status();
  ReadAndCheck(**ofi, opened, update.granted.front(), table);
}

// Two NICs of a node are two paths; each host that cannot be bound is an error that names it.
TEST_F(PoolNodeTest, EveryOfiHostIsAPathOfItsOwn) {
  options_.targets.fabrics = {"ofi"};
  options_.targets.ofi_providers = {"tcp;ofi_rxm"};
  options_.targets.ofi_hosts = {"127.0.0.1", "127.0.0.2"};
  StartNode();
  const TableRecord table = SyntheticTable();
  Load(table);
  ASSERT_TRUE(
      AllReplicasAre(ReplicaState::kServing, ShardLayout(table.spec, table.options).shards()));
  Session session(node_->endpoint(), options_.node, table.uid);
  const auto opened = session.HearA<SessionOpened>();
  ASSERT_EQ(opened.paths.size(), 2u);
  EXPECT_NE(opened.paths[0].address, opened.paths[1].address);
  const auto update = session.HearA<GrantUpdate>();
  ASSERT_FALSE(update.granted.empty());
  ASSERT_EQ(update.granted.front().paths.size(), 2u);
  auto ofi = fabric::ofi::OfiFabric::Open({});
  ASSERT_TRUE(ofi.ok()) << ofi.status();
  ReadAndCheck(**ofi, opened, update.granted.front(), table);

  options_.targets.ofi_hosts = {"127.0.0.1", "192.0.2.1"};
  const auto refused = PoolNode::Start(options_, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--ofi-host 192.0.2.1"));
}

TEST_F(PoolNodeTest, ATakenPortIsAClearError) {
  options_.listen = "127.0.0.1:" + std::to_string(server_->port());
  auto node = PoolNode::Start(options_, nullptr);
  ASSERT_FALSE(node.ok());
  EXPECT_THAT(std::string(node.status().message()), HasSubstr(options_.listen));
}

}  // namespace
}  // namespace engram::poolserver
