// A controller for tests of the client: real gRPC, one table, whatever nodes join. It loads the
// table's shards on every node that joins, tells clients the map, and goes away or retires when
// told. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "engram/shard_layout.h"
#include "engram/shard_map.h"
#include "engram/v1/placement.grpc.pb.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::client {

class ScriptedController final : public v1::NodeService::Service, public v1::PoolService::Service {
 public:
  explicit ScriptedController(TableRecord table)
      : table_(std::move(table)), shards_(ShardLayout(table_.spec, table_.options).shards()) {}

  void Listen() {
    wire::ServerOptions options;
    options.listen = "127.0.0.1:" + std::to_string(port_);
    options.services = {static_cast<v1::NodeService::Service*>(this),
                        static_cast<v1::PoolService::Service*>(this)};
    auto server = wire::GrpcServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->port();
  }
  void GoAway() {
    {
      std::lock_guard lock(mutex_);
      away_ = true;
      changed_.notify_all();
    }
    server_->Stop(std::chrono::milliseconds(0));
    std::lock_guard lock(mutex_);
    away_ = false;
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  bool WaitServing(const std::string& node) {
    return Wait([&] { return Count(node, ReplicaState::kServing) == shards_; });
  }
  bool WaitRetired(const std::string& node) {
    return Wait([&] { return Count(node, ReplicaState::kRetired) == shards_; });
  }
  // The node leaves the map as dead, as the controller says when its heartbeats stop.
  void DeclareDead(const std::string& node) {
    std::lock_guard lock(mutex_);
    nodes_[node].alive = false;
    Bump();
  }
  void Retire(const std::string& node) {
    std::lock_guard lock(mutex_);
    Order(node, RetireReplicas{table_.uid, AllShards(), {}});
  }

  grpc::Status Join(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::JoinResponse, v1::JoinRequest>* stream) override {
    std::string node;
    v1::JoinRequest request;
    while (stream->Read(&request)) {
      const auto said = wire::FromWire(request);
      std::lock_guard lock(mutex_);
      if (const auto* hello = std::get_if<NodeHello>(&*said)) {
        node = hello->node.name;
        Welcome(*hello, stream);
      } else if (const auto* beat = std::get_if<NodeHeartbeat>(&*said)) {
        for (const ReplicaReport& report : beat->changed)
          replicas_[node][report.shard.shard] = report.state;
        if (!beat->changed.empty()) Bump();
        stream->Write(wire::ToWire(ControllerToNode(HeartbeatSeen{beat->sequence})));
      }
      changed_.notify_all();
    }
    std::lock_guard lock(mutex_);
    if (streams_[node] == stream) streams_.erase(node);
    return grpc::Status::OK;
  }

  grpc::Status GetPoolInfo(grpc::ServerContext*, const v1::GetPoolInfoRequest*,
                           v1::GetPoolInfoResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status GetTable(grpc::ServerContext*, const v1::GetTableRequest* request,
                        v1::GetTableResponse* response) override {
    if (request->name() != table_.name.name)
      return {grpc::StatusCode::NOT_FOUND, "no table " + request->name()};
    *response->mutable_table() = wire::ToWire(table_);
    return grpc::Status::OK;
  }
  grpc::Status WatchMap(grpc::ServerContext* context, const v1::WatchMapRequest*,
                        grpc::ServerWriter<v1::WatchMapResponse>* writer) override {
    std::uint64_t sent = 0;
    std::unique_lock lock(mutex_);
    while (!away_ && !context->IsCancelled()) {
      if (epoch_ != sent) {
        sent = epoch_;
        const MapDelta delta = Snapshot();
        lock.unlock();
        for (const v1::WatchMapResponse& piece : wire::ToWire(delta)) writer->Write(piece);
        lock.lock();
      }
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return grpc::Status::OK;
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::JoinResponse, v1::JoinRequest>;

  void Welcome(const NodeHello& hello, Stream* stream) {
    const std::string& node = hello.node.name;
    const Incarnation incarnation =
        hello.incarnation.value() != 0 ? hello.incarnation : Incarnation(++incarnations_);
    streams_[node] = stream;
    nodes_[node] = {hello.node, incarnation, hello.endpoint, node, true};
    stream->Write(wire::ToWire(ControllerToNode(NodeWelcome{
        incarnation, FencingToken(1), std::chrono::milliseconds(50), std::chrono::seconds(10)})));
    if (hello.replicas.empty()) {
      replicas_[node].clear();
      Order(node, LoadReplicas{table_, AllShards(), Tier::kDram});
    }
    Bump();
  }
  void Order(const std::string& node, decltype(Command::body) body) {
    Command command{++commands_, nodes_[node].incarnation, FencingToken(1), std::move(body)};
    streams_[node]->Write(wire::ToWire(ControllerToNode(std::move(command))));
  }
  std::vector<ShardIndex> AllShards() const {
    std::vector<ShardIndex> out;
    for (std::uint32_t i = 0; i < shards_; ++i) out.push_back(ShardIndex(i));
    return out;
  }
  void Bump() {
    ++epoch_;
    changed_.notify_all();
  }
  std::size_t Count(const std::string& node, ReplicaState wanted) {
    std::size_t count = 0;
    for (const auto& [shard, state] : replicas_[node]) count += state == wanted ? 1 : 0;
    return count;
  }
  template <class Holds>
  bool Wait(Holds holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), holds);
  }
  MapDelta Snapshot() {
    MapDelta delta;
    delta.to = Epoch(epoch_);
    delta.tables.push_back({table_.uid, table_.name, table_.state, table_.spec_digest,
                            table_.content_digest, table_.aliases});
    MapChunk chunk{table_.uid, 0, std::vector<std::vector<MapReplica>>(shards_)};
    for (const auto& [name, node] : nodes_) {
      delta.nodes.push_back(node);
      for (const auto& [shard, state] : replicas_[name]) {
        if (state != ReplicaState::kRetired)
          chunk.shards[shard.value()].push_back({node.id, Tier::kDram, state});
      }
    }
    delta.chunks.push_back(std::move(chunk));
    return delta;
  }

  const TableRecord table_;
  const std::uint32_t shards_;
  std::unique_ptr<wire::GrpcServer> server_;
  int port_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool away_ = false;
  std::uint64_t epoch_ = 1;
  std::uint64_t commands_ = 0;
  std::uint64_t incarnations_ = 6;
  std::map<std::string, MapNode> nodes_;
  std::map<std::string, std::map<ShardIndex, ReplicaState>> replicas_;
  std::map<std::string, Stream*> streams_;
};

}  // namespace engram::client
