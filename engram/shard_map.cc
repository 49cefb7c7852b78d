#include "engram/shard_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace engram {

std::string_view Name(ReplicaState state) {
  switch (state) {
    case ReplicaState::kLoading: return "Loading";
    case ReplicaState::kServing: return "Serving";
    case ReplicaState::kDraining: return "Draining";
    case ReplicaState::kRetired: return "Retired";
  }
  return "Unknown";
}

std::shared_ptr<const ShardMap> ShardMap::Empty() {
  static const auto empty = std::make_shared<const ShardMap>();
  return empty;
}

absl::StatusOr<std::shared_ptr<const ShardMap>> ShardMap::Apply(const MapDelta& delta) const {
  const bool whole = delta.from == Epoch(0);
  if (!whole && delta.from != epoch_) {
    return absl::FailedPreconditionError(
        absl::StrCat("map delta starts at epoch ", delta.from.value(), " but the map is at epoch ",
                     epoch_.value(), "; ask for a snapshot"));
  }
  auto next = std::make_shared<ShardMap>(whole ? ShardMap() : *this);
  next->epoch_ = delta.to;
  for (const NodeId& id : delta.nodes_removed) next->nodes_.erase(id);
  for (const MapNode& node : delta.nodes) next->nodes_[node.id] = node;
  for (const TableUid& uid : delta.tables_removed) {
    next->tables_.erase(uid);
    next->chunks_.erase(next->chunks_.lower_bound({uid, 0}), next->chunks_.upper_bound({uid, ~0u}));
  }
  for (const MapTable& table : delta.tables) next->tables_[table.uid] = table;
  for (const MapChunk& chunk : delta.chunks) {
    next->chunks_[{chunk.table, chunk.chunk}] = std::make_shared<const MapChunk>(chunk);
  }
  return next;
}

MapDelta ShardMap::Snapshot() const {
  MapDelta delta;
  delta.to = epoch_;
  for (const auto& [id, node] : nodes_) delta.nodes.push_back(node);
  for (const auto& [uid, table] : tables_) delta.tables.push_back(table);
  for (const auto& [key, chunk] : chunks_) delta.chunks.push_back(*chunk);
  return delta;
}

const MapNode* ShardMap::FindNode(const NodeId& id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second;
}

const MapTable* ShardMap::FindTable(const TableUid& uid) const {
  const auto it = tables_.find(uid);
  return it == tables_.end() ? nullptr : &it->second;
}

const MapTable* ShardMap::FindTable(const TableName& name) const {
  for (const auto& [uid, table] : tables_) {
    if (table.name == name && table.state != TableState::kDeleting) return &table;
  }
  return nullptr;
}

const MapTable* ShardMap::FindAlias(const TableName& alias) const {
  for (const auto& [uid, table] : tables_) {
    if (table.name.name == alias.name &&
        std::find(table.aliases.begin(), table.aliases.end(), alias.version) != table.aliases.end())
      return &table;
  }
  return nullptr;
}

std::span<const MapReplica> ShardMap::Replicas(const ShardKey& key) const {
  const std::uint32_t shard = key.shard.value();
  const auto it = chunks_.find({key.table, shard / kChunkShards});
  if (it == chunks_.end() || shard % kChunkShards >= it->second->shards.size()) return {};
  return it->second->shards[shard % kChunkShards];
}

}  // namespace engram
