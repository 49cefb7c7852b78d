// Which node gets which shard: a pure, deterministic function of its input. It moves nothing and
// knows no store, clock or network; placement/ops and placement/duties carry plans out.
//
// Order of goals: distinct failure domains for the replicas of a shard; capacity; no more nodes a
// table than capacity and replication need (and never more than max_nodes); equal bytes a node.
// Nodes that already hold replicas of the table are preferred to new ones. Equal choices are
// settled by node name. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/shard_map.h"
#include "placement/state/cluster_state.h"

namespace engram::placement {

struct PlanNode {
  NodeId id;
  std::string failure_domain;  // empty: the node is a domain of its own
  std::uint64_t free_bytes = 0;
  std::uint64_t table_bytes = 0;  // of this table, already here
};

struct PlanShard {
  ShardIndex shard;
  std::uint64_t bytes = 0;
  std::uint32_t wanted = 0;                // replicas to place
  std::vector<std::string> domains_taken;  // of the replicas that stay
};

struct PlanView {
  TableName table;
  std::vector<PlanNode> nodes;  // alive ones
  std::vector<PlanShard> shards;
  std::uint32_t replicas = 1;
  std::uint32_t max_nodes = 0;  // 0 = no limit
};

struct Placement {
  ShardIndex shard;
  NodeId node;
  friend bool operator==(const Placement&, const Placement&) = default;
};
using Plan = std::vector<Placement>;  // in order of (shard, node)

// ResourceExhausted: it does not fit; names the table's bytes, what each node has free, and the
// next step. InvalidArgument: more replicas than max_nodes allows.
absl::StatusOr<Plan> MakePlan(const PlanView& view);

// The failure domain that counts for a node.
std::string DomainOf(const NodeId& id, const std::string& failure_domain);

// The view for replicas of `table` that have no node yet: all of a table that is being created, or
// those that `chunks` lacks. Free bytes are a node's DRAM capacity less what is assigned to it or
// what it says it has allocated, whichever is more, less 2 MiB and 1/128 for partly filled pages.
PlanView ViewOf(const ClusterState& state, const TableRecord& table, const ShardLayout& layout,
                const std::vector<MapChunk>& chunks);

// `chunks` with the placements added as Loading replicas.
void AddPlacements(const Plan& plan, std::vector<MapChunk>* chunks);
// Chunks of a table without any replica.
std::vector<MapChunk> EmptyChunks(const TableUid& uid, const ShardLayout& layout);

}  // namespace engram::placement
