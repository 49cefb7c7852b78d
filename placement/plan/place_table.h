// Where the replicas of one table go that have no node yet: all of a table that is being created,
// or those that dead nodes left behind while it loads. All or nothing. The choice is the planner's
// (plan/planner.h); here it is asked about one table, and the map's chunks are filled. Pure.
// Thread-safe.
#pragma once

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

// For the replicas that `chunks` lacks. ResourceExhausted: it does not fit; names the table's
// bytes, what each node has free, and the next step. InvalidArgument: more replicas than max_nodes
// allows.
absl::StatusOr<Placements> PlaceTable(const ClusterState& state, const TableRecord& table,
                                      const ShardLayout& layout,
                                      const std::vector<MapChunk>& chunks);

// `chunks` with the placements added as Loading replicas.
void AddPlacements(const Placements& placements, std::vector<MapChunk>* chunks);
// Chunks of a table without any replica.
std::vector<MapChunk> EmptyChunks(const TableUid& uid, const ShardLayout& layout);

}  // namespace engram::placement
