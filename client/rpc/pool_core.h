// What a pool and its tables share: the loop with its state machines (map follower, one session a
// node, route keeper), the fabrics, and the calls to the controllers. It turns map changes into
// wanted sessions, and actions of the state machines into calls, imports and messages.
//
// Thread-safe, except members that say `loop`: on the loop's thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/map_follower.h"
#include "client/quiescence.h"
#include "client/route_board.h"
#include "client/route_keeper.h"
#include "client/rpc/duty_loop.h"
#include "client/rpc/heat_reporter.h"
#include "client/rpc/map_stream.h"
#include "client/rpc/pool.h"
#include "client/rpc/session_stream.h"
#include "client/session.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "proto/controllers.h"
#include "proto/credentials.h"

namespace engram::client {

class PoolCore {
 public:
  static absl::StatusOr<std::shared_ptr<PoolCore>> Open(const PoolOptions& options);
  ~PoolCore();  // Says goodbye, waits for quiescence, at most a second.

  absl::StatusOr<TableRecord> FetchTable(const TableName& name);
  absl::StatusOr<TokenMap> FetchTokenMap(const std::string& digest);

  // Keeps `board` published until RemoveTable, and sessions open with the nodes of the table.
  // `on_map` gets the map that there is, and each that comes, on the loop's thread.
  using OnMap = std::function<void(const ShardMap&)>;
  void AddTable(const TableUid& uid, std::uint32_t shards, RouteBoard* board, OnMap on_map);
  void RemoveTable(RouteBoard* board);
  // Waits until every shard has a route; Unavailable says which nodes are missing and why.
  absl::Status AwaitRoutes(const std::string& name, const RouteBoard& board, Instant deadline);

  std::shared_ptr<const ShardMap> map() const;
  bool connected() const;
  std::vector<ReachedNode> Nodes();
  // Why `node` cannot be read; OK when it can.
  absl::Status WhyUnreachable(const NodeId& node);

  Quiescence* quiescence() { return &quiescence_; }
  const std::vector<fabric::Fabric*>& fabrics() const { return fabrics_; }
  const PoolOptions& options() const { return options_; }
  HeatReporter& heat() { return *heat_; }

 private:
  struct OpenTable {
    TableUid uid;
    std::uint32_t shards = 0;
    OnMap on_map;
    std::set<NodeId> nodes;  // that the map says serve it
  };
  struct NodeEntry {
    std::unique_ptr<ClientSession> session;
    std::shared_ptr<SessionStream> stream;
    std::string endpoint;
    std::set<TableUid> tables;
  };
  struct Reaching {  // successors that a session waits for
    NodeId node;
    session::Opening opening;
    GrantRevision revision;
    std::vector<NodeId> successors;
  };

  explicit PoolCore(const PoolOptions& options);
  absl::Status OpenFabrics();
  absl::Status OpenOfi();
  absl::Status OpenUcx();
  // A fabric that may be missing: an error only where it is forced.
  absl::Status Keep(absl::StatusOr<std::unique_ptr<fabric::Fabric>> opened, bool forced);
  absl::Status Greet();
  // Calls the controllers in turn until one answers or says something final; where they are
  // electing a leader, until there is one or `patience` is over.
  absl::Status CallController(
      const std::function<grpc::Status(v1::PoolService::Stub*, grpc::ClientContext*)>& call,
      Duration timeout, Duration patience = Duration::zero());

  // loop
  std::optional<Instant> Tick(Instant now);
  void FeedMap(const MapFollower::Event& event);
  void Subscribe(const MapFollower::Subscribe& subscribe);
  void UseMap(const std::shared_ptr<const ShardMap>& map);
  void WantNodes(OpenTable& table);
  void WantSession(const NodeId& node, Incarnation incarnation, const std::string& endpoint,
                   const TableUid& table);
  void Feed(const NodeId& node, session::Event event);
  void Pump();
  void Carry(const NodeId& node, session::Action& action);
  void OpenStream(const NodeId& node, const session::OpenStream& open);
  void CheckSuccessors();
  bool Answers(const NodeId& node) const;
  void UpdateIncomplete();
  bool IsReadable(const NodeId& node) const;
  std::vector<ReachedNode> ListNodes() const;
  void SayGoodbye();
  void LogChanges(const std::vector<ReachedNode>& before,
                  const std::vector<ReachedNode>& now) const;

  const PoolOptions options_;
  wire::CredentialsPtr credentials_;
  SystemRandom random_;
  Quiescence quiescence_;
  std::vector<std::unique_ptr<fabric::Fabric>> owned_fabrics_;
  std::vector<fabric::Fabric*> fabrics_;
  std::unique_ptr<wire::Controllers> controllers_;
  const std::shared_ptr<DutyLoop> loop_ = std::make_shared<DutyLoop>();

  // loop
  std::unique_ptr<RouteKeeper> keeper_;
  MapFollower follower_;
  std::shared_ptr<MapStream> map_stream_;
  std::map<NodeId, NodeEntry> nodes_;
  std::map<RouteBoard*, OpenTable> tables_;
  std::vector<Reaching> reaching_;
  // Cancelled, replaced by others and not done when they were last looked at.
  std::vector<std::shared_ptr<SessionStream>> ending_sessions_;
  std::vector<std::shared_ptr<MapStream>> ending_maps_;
  std::deque<std::pair<NodeId, session::Event>> pending_;
  bool leaving_ = false;

  std::unique_ptr<HeatReporter> heat_;

  mutable Mutex mutex_;
  std::shared_ptr<const ShardMap> map_ ABSL_GUARDED_BY(mutex_) = ShardMap::Empty();
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<ReachedNode> reached_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::client
