// Fake nodes and clients over real loopback gRPC, against the server in this process and against
// the real program, which is killed at random moments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "placement/rpc/program.h"
#include "proto/convert.h"
#include "tests/placement/small_pool.h"

namespace engram::placement {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr auto kPatience = seconds(60);

// A node's process: joins, obeys, beats, and joins again whenever its stream ends.
class GrpcNode {
 public:
  GrpcNode(const std::string& name, const std::string& endpoint)
      : node_(name, 256 << 20), endpoint_(endpoint), thread_([this] { Run(); }) {}
  ~GrpcNode() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    thread_.join();
  }
  std::uint64_t incarnation() const { return incarnation_; }
  std::uint64_t joins() const { return joins_; }

 private:
  void Run() {
    const auto channel = wire::Connect(endpoint_);
    const auto stub = v1::NodeService::NewStub(channel);
    while (!stopping_) {
      Join(*stub);
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  void Join(v1::NodeService::Stub& stub) {
    grpc::ClientContext context;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      context_ = &context;
    }
    const auto stream = stub.Join(&context);
    node_.hello.replicas.clear();
    node_.commands.clear();  // of an earlier stream
    node_.done.clear();
    for (const auto& [key, held] : node_.held) {
      node_.hello.replicas.push_back(node_.Report(key, false));
    }
    bool alive = stream->Write(wire::ToWire(NodeToController(node_.hello)));
    alive = alive && Receive(*stream) && node_.welcomed && node_.refused.ok();
    if (alive) {
      incarnation_ = node_.welcomed->incarnation.value();
      ++joins_;
    }
    std::atomic<bool> reading{alive};
    std::thread reader([&] {
      while (reading && Receive(*stream)) {
      }
      reading = false;
    });
    while (alive && reading && !stopping_) {
      alive = Beat(*stream);
      std::this_thread::sleep_for(milliseconds(20));
    }
    context.TryCancel();
    reader.join();
    (void)stream->Finish();
    std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

  using Stream = grpc::ClientReaderWriter<v1::JoinRequest, v1::JoinResponse>;
  bool Receive(Stream& stream) {
    v1::JoinResponse response;
    if (!stream.Read(&response)) return false;
    const auto message = wire::FromWire(response);
    if (!message.ok()) return false;
    std::lock_guard lock(mutex_);
    node_.Receive(*message);
    return true;
  }
  bool Beat(Stream& stream) {
    std::vector<v1::JoinRequest> out;
    {
      std::lock_guard lock(mutex_);
      node_.Obey();
      for (CommandDone& done : std::exchange(node_.done, {})) {
        out.push_back(wire::ToWire(NodeToController(done)));
      }
      NodeHeartbeat beat{node_.hello.incarnation,
                         node_.welcomed->token,
                         node_.hello.tiers,
                         std::exchange(node_.changed, {}),
                         ++node_.sequence,
                         2,
                         0};
      out.push_back(wire::ToWire(NodeToController(beat)));
    }
    for (const auto& message : out) {
      if (!stream.Write(message)) return false;
    }
    return true;
  }

  std::mutex mutex_;
  FakeNode node_;
  grpc::ClientContext* context_ = nullptr;
  const std::string endpoint_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> incarnation_{0}, joins_{0};
  std::thread thread_;
};

class PoolClient {
 public:
  explicit PoolClient(const std::string& endpoint)
      : stub_(v1::PoolService::NewStub(wire::Connect(endpoint))) {}

  v1::PoolService::Stub& stub() { return *stub_; }

  grpc::Status Load(const std::string& version, const std::string& request_id,
                    std::uint32_t replicas = 2) {
    LoadRequest small = SmallLoad(request_id, replicas);
    v1::LoadTableRequest request;
    request.mutable_caller()->set_client("test");
    request.mutable_caller()->set_request_id(request_id);
    request.set_name("small");
    request.set_version(version);
    *request.mutable_source() = wire::ToWire(small.source);
    *request.mutable_options() = wire::ToWire(small.options);
    *request.mutable_spec() = wire::ToWire(*small.spec);
    v1::LoadTableResponse response;
    grpc::ClientContext context;
    return stub_->LoadTable(&context, request, &response);
  }
  std::optional<v1::GetTableResponse> Get(const std::string& version) {
    v1::GetTableRequest request;
    request.set_name("small");
    request.set_version(version);
    v1::GetTableResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(2));
    if (!stub_->GetTable(&context, request, &response).ok()) return std::nullopt;
    return response;
  }
  bool AwaitReady(const std::string& version) {
    return Await([&] {
      const auto table = Get(version);
      return table && table->table().state() == v1::TABLE_STATE_READY &&
             table->shards_serving() == table->shards_total();
    });
  }
  static bool Await(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  }

 private:
  std::unique_ptr<v1::PoolService::Stub> stub_;
};

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

class Folder {
 public:
  Folder() {
    std::string pattern = ::testing::TempDir() + "/pool_over_grpc_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class PoolOverGrpcTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<PlacementServer>> Start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                                          "--state-file=" + folder_ / "state.db"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto settings = LoadSettings(PlacementProgram(), arguments,
                                 [](const std::string&) { return std::nullopt; });
    if (!settings.ok()) return settings.status();
    return PlacementServer::Start(
        *settings, [](const std::string&) {}, [](const absl::Status&) {});
  }
  static std::string EndpointOf(const PlacementServer& server) {
    return "127.0.0.1:" + std::to_string(server.port());
  }
  Folder folder_;
};

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

  v1::DeleteTableRequest remove;
  remove.set_name("small");
  remove.set_version("1");
  v1::DeleteTableResponse removed;
  grpc::ClientContext remove_context;
  ASSERT_TRUE(client.stub().DeleteTable(&remove_context, remove, &removed).ok());
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

// ---- the real program ----

class Process {
 public:
  Process(const std::string& folder_state, const std::string& log, int port) : log_(log) {
    const std::string program = std::string(ENGRAM_BINARY_DIR) + "/bin/engram-placement";
    const std::vector<std::string> arguments = {
        program, "--listen=127.0.0.1:" + std::to_string(port),
        "--metrics-listen=", "--state-file=" + folder_state};
    std::filesystem::remove(log);  // of an earlier process
    pid_ = fork();
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
      }
      argv.push_back(nullptr);
      if (freopen(log.c_str(), "w", stderr) == nullptr) _exit(126);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) Kill(SIGKILL);
  }
  // 0 unless it says where it listens.
  int AwaitPort() {
    int port = 0;
    PoolClient::Await([&] {
      std::ifstream in(log_);
      std::stringstream text;
      text << in.rdbuf();
      const std::size_t at = text.str().find("listens on port ");
      if (at != std::string::npos) port = std::atoi(text.str().c_str() + at + 16);
      return port != 0 || kill(pid_, 0) != 0;
    });
    return port;
  }
  int Kill(int signal) {
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  std::string log_;
  pid_t pid_;
};

TEST(PlacementProgramTest, SurvivesKillAtRandomPointsOfALoad) {
  Folder folder;
  SeededRandom random(20);
  auto process = std::make_unique<Process>(folder / "state.db", folder / "log", 0);
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
    process->Kill(SIGKILL);
    process = std::make_unique<Process>(folder / "state.db", folder / "log", port);
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
  }
  EXPECT_EQ(a.incarnation(), incarnations[0]);
  EXPECT_EQ(b.incarnation(), incarnations[1]);
  EXPECT_GE(a.joins(), 7u);
  const int status = process->Kill(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace engram::placement
