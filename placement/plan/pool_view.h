// What the planner sees of a ClusterState: nodes with what they have free, tables with where their
// replicas are and how much each shard is read. Pure. Thread-safe.
#pragma once

#include <functional>
#include <set>

#include "placement/plan/planner.h"
#include "placement/state/cluster_state.h"

namespace engram::placement {

// Rows read a second, per shard of the table; empty: nothing is known.
using ShardReads = std::function<std::vector<double>(const TableUid&)>;

// The tiers of all nodes in order of name, as ClusterState::Rooms has them.
std::vector<PlanNode> NodesOf(const ClusterState& state);
// One table with the replicas of `chunks`. A stored move, and replicas on the way (Loading or
// Draining ones of a Ready table), mark their shard as moving; nodes that the state does not know
// are left out.
PlanTable TableOf(const ClusterState& state, const TableRecord& table, const ShardLayout& layout,
                  const std::vector<MapChunk>& chunks);
// The whole pool: its Ready tables. Others only take room.
PoolView ViewOf(const ClusterState& state, const ShardReads& reads);

}  // namespace engram::placement
