// Fake nodes and clients that speak real loopback gRPC, and a controller for them: in this process,
// or the real program. For the tests of placement/rpc.
#pragma once

#include <fcntl.h>
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

#include "checkout.h"
#include "placement/rpc/program.h"
#include "proto/convert.h"
#include "tests/placement/small_pool.h"

namespace engram::placement {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr auto kPatience = seconds(60);

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
  grpc::Status Delete(const std::string& version, const std::string& request_id,
                      v1::DeleteTableResponse* response) {
    v1::DeleteTableRequest request;
    request.mutable_caller()->set_client("test");
    request.mutable_caller()->set_request_id(request_id);
    request.set_name("small");
    request.set_version(version);
    grpc::ClientContext context;
    return stub_->DeleteTable(&context, request, response);
  }
  std::optional<v1::GetTableResponse> Get(const std::string& version) {
    v1::GetTableRequest request;
    request.set_name("small");
    request.set_version(version);
    v1::GetTableResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
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

// A real program, killed at the end at the latest. What it says goes to `log`.
class Process {
 public:
  Process(const std::string& name, std::vector<std::string> arguments, const std::string& log)
      : log_(log) {
    arguments.insert(arguments.begin(), std::string(ENGRAM_BINARY_DIR) + "/bin/" + name);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_ = fork();
    if (pid_ != 0) {
      close(out);
      return;
    }
    // Other threads' locks may be held for ever here: system calls only.
    if (dup2(out, STDERR_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) Kill(SIGKILL);
  }
  pid_t pid() const { return pid_; }
  std::string Said() const {
    std::ifstream in(log_);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // 0 unless it says where it listens.
  int AwaitPort() const {
    int port = 0;
    PoolClient::Await([&] {
      const std::string said = Said();
      const std::size_t at = said.find("listens on port ");
      if (at != std::string::npos) port = std::atoi(said.c_str() + at + 16);
      return port != 0;
    });
    return port;
  }
  int Kill(int signal) {
    kill(pid_, signal);
    return Wait();
  }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

inline std::unique_ptr<Process> StartController(const Folder& folder, int port) {
  return std::make_unique<Process>(
      "engram-placement",
      std::vector<std::string>{"--listen=127.0.0.1:" + std::to_string(port),
                               "--metrics-listen=", "--state-file=" + folder / "state.db"},
      folder / "log");
}

class GrpcPoolTest : public ::testing::Test {
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

}  // namespace engram::placement
