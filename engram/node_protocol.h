// The words that a pool node and the controller exchange (ARCHITECTURE section 4, rules 6 and 8),
// as plain values. The wire form is proto/engram/v1/placement.proto; proto/convert.h converts.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engram/addressing.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/session.h"
#include "engram/shard_map.h"
#include "engram/table_spec.h"

namespace engram {

struct TierCapacity {
  Tier tier = Tier::kDram;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t read_bytes_per_second = 0;  // 0 = not measured
  std::string trouble = {};                 // why nothing new should go there; empty: it is well
  friend bool operator==(const TierCapacity&, const TierCapacity&) = default;
};

// What a node says of one replica it holds or tried to hold.
struct ReplicaReport {
  ShardKey shard;
  Tier tier = Tier::kDram;
  ReplicaState state = ReplicaState::kLoading;
  std::vector<std::uint32_t>
      block_crcs;      // kServing, sent until the controller has them: one per block
  absl::Status error;  // a load that failed
};

// ---- node -> controller ----
struct NodeHello {
  NodeId node;
  Incarnation incarnation;  // 0: this process has none yet; else the one it was given before
  std::string
      process_nonce;  // random per process: the same process may ask again and gets the same answer
  std::string request_id;
  std::string endpoint;  // advertised gRPC host:port for read sessions
  std::string failure_domain;
  std::string version;
  std::vector<TierCapacity> tiers;
  std::vector<ReplicaReport> replicas;
};
// What a node did for one tenant since it started.
struct TenantUse {
  std::string tenant;
  std::uint64_t gathered_rows = 0;
  std::uint64_t throttled_messages = 0;  // gathers that waited for the tenant's budget
  friend bool operator==(const TenantUse&, const TenantUse&) = default;
};
struct NodeHeartbeat {
  Incarnation incarnation;
  FencingToken seen;  // highest fencing token this node has obeyed
  std::vector<TierCapacity> tiers;
  std::vector<ReplicaReport> changed;  // since the last acknowledged heartbeat
  std::uint64_t sequence = 0;
  std::uint32_t sessions = 0;
  std::uint32_t retirements_pending = 0;
  std::vector<TenantUse> tenants = {};
};
// What a node found when it looked at a table's source.
struct Inspection {
  TableSpec spec;
  TokenMap token_map;
  std::uint64_t source_bytes = 0;
};
struct CommandDone {
  std::uint64_t command = 0;
  absl::Status status;
  std::vector<Inspection> inspection;  // exactly one for a successful InspectSource, else none
};
using NodeToController = std::variant<NodeHello, NodeHeartbeat, CommandDone>;

// ---- controller -> node ----
struct NodeWelcome {
  Incarnation incarnation;
  FencingToken token;
  Duration heartbeat_every{};
  Duration dead_after{};
};
struct HeartbeatSeen {
  std::uint64_t sequence = 0;
  Epoch map_epoch{};  // of the controller, once it had taken the heartbeat
};
// The node must exit: another process of this NodeId has taken over, or the id is refused.
struct NodeRefused {
  absl::Status status;
};

struct LoadReplicas {  // idempotent: replicas already held are left alone
  TableRecord table;
  std::vector<ShardIndex> shards;
  Tier tier = Tier::kDram;
  // Who serves them: their rows are pulled from there, else read from the table's source.
  std::optional<Successor> source = std::nullopt;
  // SumOf each shard's block checksums; empty while they are not known (the table is Loading).
  std::vector<std::uint64_t> sums = {};
};
struct RetireReplicas {  // idempotent: unknown replicas are reported Retired
  TableUid table;
  std::vector<ShardIndex> shards;
  std::vector<Successor> successors;
};
struct InspectSource {
  TableName table;
  TableSource source;
};
struct Command {
  std::uint64_t id = 0;
  Incarnation incarnation;  // whom it is meant for
  FencingToken token;       // who sends it
  std::variant<LoadReplicas, RetireReplicas, InspectSource> body;
};
// What a node must know of one tenant: engram/identity.h has its names.
struct TenantPolicy {
  std::string tenant;
  std::uint64_t rows_per_second = 0;         // this node's share of the budget; 0: no limit
  std::vector<std::string> granted_tables;   // NAME or NAME@VERSION, of other tenants; sorted
  std::vector<std::string> revoked_clients;  // whose certificates count for nothing; sorted
  friend bool operator==(const TenantPolicy&, const TenantPolicy&) = default;
};
struct TenantPolicies {  // replaces what was said before; tenants that are not in it have none
  std::vector<TenantPolicy> tenants;
  FencingToken token;  // who sends it
};
using ControllerToNode =
    std::variant<NodeWelcome, HeartbeatSeen, NodeRefused, Command, TenantPolicies>;

}  // namespace engram
