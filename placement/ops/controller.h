// The placement controller as one state machine without threads, sockets or gRPC: events go in,
// actions come out, and everything that must survive is in the StateStore before an action says so.
// The program drives it with streams and a clock, the simulator with a fake of both. Operations
// (placement/ops) answer one event each; duties (placement/duties) do what follows from the state.
//
//   std::vector<Action> OnEvent(Instant now, Event event);   // Tick at least every 200 ms
//
// A Controller that dies at any point is replaced by opening another on the same store: the same
// tables serve, nodes rejoin with their incarnation. Thread-confined: call from the owner thread
// only; snapshot() may be read anywhere.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/node_protocol.h"
#include "engram/random.h"
#include "placement/plan/planner.h"
#include "placement/state/cluster_state.h"
#include "placement/store/state_store.h"

namespace engram::placement {

// One Join stream of a node / one question of a client, numbered by the adapter; never reused.
using LinkId = StrongId<struct LinkIdTag>;
using CallId = StrongId<struct CallIdTag>;

// Who asks, and which attempt: the same three again get the first answer.
struct CallerId {
  std::string client;
  std::string tenant;
  std::string request_id;  // empty: every call is a new attempt
};
struct LoadRequest {
  CallerId caller;
  TableName name;
  TableSource source;
  TableOptions options;
  std::optional<TableSpec> spec;  // synthetic tables
  TokenMap token_map;             // synthetic tables with token compression
  bool dry_run = false;
};
struct DeleteRequest {
  CallerId caller;
  TableName name;
  bool dry_run = false;
  bool force = false;  // even while clients hold the table
};

struct AliasRequest {
  CallerId caller;
  TableName alias;      // NAME@ALIAS
  std::string version;  // of the same NAME; empty: the alias is removed
  bool dry_run = false;
  bool rollback = false;  // instead of a version: what the alias named before
};

struct TenantBudget {
  std::uint64_t rows_per_second = 0;  // 0: no limit
};
struct TableGrant {
  std::string table;  // NAME or NAME@VERSION
  bool withdraw = false;
};
struct ClientRevocation {
  std::string client;
  bool restore = false;
};
struct TenantRequest {
  CallerId caller;
  std::string tenant;
  std::variant<TenantBudget, TableGrant, ClientRevocation> change;
  bool dry_run = false;
};

// What a node is wanted for. A drain moves its replicas away; an uncordon ends a drain, too. A
// deleted node is forgotten: it must be dead and empty.
enum class NodeIntent : std::uint8_t { kCordon, kUncordon, kDrain, kDelete };
struct IntentRequest {
  CallerId caller;
  NodeId node;
  NodeIntent intent = NodeIntent::kCordon;
  bool dry_run = false;
};
struct MoveRequest {
  CallerId caller;
  TableName table;
  ShardIndex shard;
  NodeId from;  // empty: the only node that has the shard
  NodeId to;
  bool dry_run = false;
  std::optional<Tier> tier = std::nullopt;  // of the copy at `to`; else the fastest with room
};

// ---- events ----
// A stream began; it must say hello within hello_within.
struct LinkOpened {
  LinkId link;
};
struct NodeSaid {
  LinkId link;
  NodeToController message;
};
struct LinkBroke {
  LinkId link;
};
struct LoadAsked {
  CallId call;
  LoadRequest request;
};
struct DeleteAsked {
  CallId call;
  DeleteRequest request;
};
struct AliasAsked {
  CallId call;
  AliasRequest request;
};
struct TenantAsked {
  CallId call;
  TenantRequest request;
};
struct IntentAsked {
  CallId call;
  IntentRequest request;
};
struct MoveAsked {
  CallId call;
  MoveRequest request;
};
struct Tick {};
using Event = std::variant<LinkOpened, NodeSaid, LinkBroke, LoadAsked, DeleteAsked, AliasAsked,
                           IntentAsked, MoveAsked, TenantAsked, Tick>;

// ---- actions ----
struct SendToNode {
  LinkId link;
  ControllerToNode message;
};
// End the stream with this status, after everything sent before it. Answered by LinkBroke or not.
struct CloseLink {
  LinkId link;
  absl::Status why;
};
struct Answer {
  CallId call;
  absl::StatusOr<TableRecord> table;
};
// The node as it is wanted now; for a drain, where its replicas would go as things stand.
struct IntentReply {
  NodeRecord node;
  std::vector<MoveRecord> moves;
  std::uint64_t moves_more = 0;  // not named here
};
struct IntentAnswer {
  CallId call;
  absl::StatusOr<IntentReply> node;
};
struct MoveAnswer {
  CallId call;
  absl::StatusOr<MoveRecord> move;
};
struct TenantAnswer {
  CallId call;
  absl::StatusOr<TenantRecord> tenant;
};
struct MapChanged {
  std::shared_ptr<const MapDelta> delta;
};
// One line for the operator's log.
struct Say {
  std::string text;
};
// What this controller believes may not be what is stored: another has taken the store (Aborted),
// or nobody knows whether a change was stored (Unknown). Nothing it does may be believed any more;
// opening another Controller on the store reads everything anew.
struct Deposed {
  absl::Status why;
};
using Action = std::variant<SendToNode, CloseLink, Answer, IntentAnswer, MoveAnswer, TenantAnswer,
                            MapChanged, Say, Deposed>;

struct ControllerOptions {
  Duration heartbeat_every = std::chrono::seconds(1);
  Duration dead_after = std::chrono::seconds(5);
  // Beyond dead_after, for nodes to say hello to a controller that was just opened: where there are
  // several they must notice first that the old one is gone (RejoinGrace, placement/rpc/program.h).
  Duration rejoin_grace{};
  Duration hello_within = std::chrono::seconds(10);
  Duration inspection_timeout = std::chrono::seconds(60);
  // A load or retirement that a node refused is sent again after this.
  Duration retry_after = std::chrono::seconds(5);
  // Replicas of a node that was dead for so long are made elsewhere.
  Duration repair_after = std::chrono::minutes(1);
  // Between the epoch at which both copies serve and that at which the old one goes.
  Duration move_settle = std::chrono::milliseconds(500);
  // Pulls at one time that a node gives or takes, and in all.
  std::uint32_t moves_per_node = 4;
  std::uint32_t moves_per_pool = 64;
  // Shards move for load, capacity and few nodes a table without being told to.
  bool rebalance = false;
  Duration rebalance_every = std::chrono::seconds(30);
  PlanLimits plan_limits;
  // Rows read a second, one a shard; empty where nothing is known.
  std::function<std::vector<double>(Instant now, const TableUid&)> reads;
  // Who holds a table open, for people; empty where nobody is known to.
  std::function<std::vector<std::string>(Instant now, const TableUid&)> holders;
  // Milliseconds since 1970, for people.
  std::function<std::int64_t()> unix_ms = [] { return std::int64_t{0}; };
  const Clock* stopwatch = nullptr;  // measures plans; null = they are not measured
};

struct Counters {
  std::uint64_t loads_commanded = 0, loads_done = 0, loads_failed = 0;  // replicas
  std::uint64_t retires_commanded = 0, retires_done = 0;                // replicas
  std::uint64_t nodes_joined = 0, nodes_refused = 0, nodes_lost = 0;
  std::uint64_t commits_failed = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t plans = 0, plan_ns = 0;
  std::uint64_t replicas_suspect = 0;               // that a scrubber found to be wrong
  std::array<std::uint64_t, 5> moves_done = {};     // by MoveKind
  std::array<std::uint64_t, 5> moves_dropped = {};  // by MoveKind
};

struct Core;

class Controller {
 public:
  // `store` and `random` must outlive the controller. Fails with what the store or its contents
  // have to say.
  static absl::StatusOr<std::unique_ptr<Controller>> Open(Instant now, ControllerOptions options,
                                                          StateStore* store, Random* random);
  ~Controller();

  std::vector<Action> OnEvent(Instant now, Event event);
  // This process was stopped, or waited for its store, for `time`: nodes are not silent for that;
  // what they said meanwhile is still to come.
  void Slept(Duration time);

  const ClusterState& state() const;
  std::shared_ptr<const ClusterState> snapshot() const;
  const Counters& counters() const;

 private:
  explicit Controller(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace engram::placement
