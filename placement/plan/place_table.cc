#include "placement/plan/place_table.h"

#include <algorithm>

#include "placement/plan/planner.h"
#include "placement/plan/pool_view.h"

namespace engram::placement {

absl::StatusOr<TablePlaces> PlaceTable(const ClusterState& state, const TableRecord& table,
                                       const ShardLayout& layout,
                                       const std::vector<MapChunk>& chunks) {
  PoolView view{NodesOf(state), {TableOf(state, table, layout, chunks)}};
  absl::StatusOr<PartPlan> part = PlaceWhatFits(view);
  if (!part.ok()) return part.status();
  TablePlaces places{{}, std::move(part->unmet)};
  for (const PlanStep& step : part->plan) {
    places.placements.push_back({step.shard, *step.to, step.to_tier});
  }
  return places;
}

void AddPlacements(const Placements& placements, std::vector<MapChunk>* chunks) {
  for (const Placement& placement : placements) {
    const std::uint32_t shard = placement.shard.value();
    chunks->at(shard / kChunkShards)
        .shards.at(shard % kChunkShards)
        .push_back({placement.node, placement.tier, ReplicaState::kLoading});
  }
}

std::vector<MapChunk> EmptyChunks(const TableUid& uid, const ShardLayout& layout) {
  std::vector<MapChunk> chunks;
  for (std::uint32_t first = 0; first < layout.shards(); first += kChunkShards) {
    MapChunk chunk{uid, first / kChunkShards, {}};
    chunk.shards.resize(std::min(kChunkShards, layout.shards() - first));
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace engram::placement
