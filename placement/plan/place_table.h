// Where the replicas of one table go that have no node yet: all of a table that is being created,
// or those that were lost while it loads. Where they do not all fit, as many copies of every shard
// as do, at least one. The choice is the planner's (plan/planner.h); here it is asked about one
// table, and the map's chunks are filled. Pure. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/shard_map.h"
#include "placement/state/cluster_state.h"

namespace engram::placement {

struct Placement {
  ShardIndex shard;
  NodeId node;
  Tier tier = Tier::kDram;
  friend bool operator==(const Placement&, const Placement&) = default;
};
using Placements = std::vector<Placement>;  // in order of (shard, node)

struct TablePlaces {
  Placements placements;
  std::string unmet;  // PartPlan::unmet
};

// For the replicas that `chunks` lacks. ResourceExhausted: not even one copy fits; names the
// table's bytes, what each node has free, and the next step. InvalidArgument: more replicas than
// max_nodes allows.
absl::StatusOr<TablePlaces> PlaceTable(const ClusterState& state, const TableRecord& table,
                                       const ShardLayout& layout,
                                       const std::vector<MapChunk>& chunks);

// `chunks` with the placements added as Loading replicas.
void AddPlacements(const Placements& placements, std::vector<MapChunk>* chunks);
// Chunks of a table without any replica.
std::vector<MapChunk> EmptyChunks(const TableUid& uid, const ShardLayout& layout);

}  // namespace engram::placement
