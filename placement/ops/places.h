// Where the replicas of nodes that leave go: one shard after the other, to a node that already has
// some of the table where one has room (few nodes a table), in a failure domain of its own. Made
// for drains and repairs, which must go on whether or not a plan for the whole pool is being made.
// Deterministic; equal choices are settled by node name. Thread-compatible.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "placement/state/cluster_state.h"

namespace engram::placement {

struct Evacuation {
  std::vector<MoveRecord> moves;          // the most urgent first: shards that fewest nodes serve
  std::uint64_t more = 0;                 // beyond the limit
  std::map<NodeId, std::string> waiting;  // leaving nodes, and why some replica cannot go now
  std::uint64_t unplaced = 0;             // copies that have no place now
  std::map<TableUid, std::string> unmet;  // how many of each table, and what is missing
};

// What to do so that nothing of a Ready table is on `leaving` any more, and every shard has the
// copies it should have. Shards that move already are left alone.
Evacuation PlanEvacuation(const ClusterState& state, const std::set<NodeId>& leaving,
                          std::size_t limit);

// The failure domain of a node of the state.
std::string DomainIn(const ClusterState& state, const NodeId& node);

}  // namespace engram::placement
