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
    next->chunks_[{chunk.table, chunk.chunk}] = next->Pack(chunk);
  }
  if (next->names_.size() > kMostNames) {
    return absl::FailedPreconditionError(absl::StrCat(
        "replicas of the map were on ", next->names_.size(),
        " nodes since its last snapshot, the most is ", kMostNames, "; ask for a snapshot"));
  }
  return next;
}

std::shared_ptr<const ShardMap::PackedChunk> ShardMap::Pack(const MapChunk& chunk) {
  auto packed = std::make_shared<PackedChunk>();
  std::size_t replicas = 0;
  for (const auto& shard : chunk.shards) replicas += shard.size();
  packed->ends.reserve(chunk.shards.size());
  packed->replicas.reserve(replicas);
  for (const auto& shard : chunk.shards) {
    for (const MapReplica& one : shard) {
      const auto next = static_cast<std::uint32_t>(names_.size());
      const auto [number, fresh] = numbers_.try_emplace(one.node, next);
      if (fresh) names_.push_back(one.node);
      packed->replicas.push_back({number->second & (kMostNames - 1),
                                  static_cast<std::uint32_t>(one.tier),
                                  static_cast<std::uint32_t>(one.state)});
    }
    packed->ends.push_back(static_cast<std::uint32_t>(packed->replicas.size()));
  }
  return packed;
}

std::vector<MapReplica> ShardMap::Unpack(const PackedChunk& chunk, std::size_t shard) const {
  std::vector<MapReplica> replicas;
  for (std::uint32_t i = shard == 0 ? 0 : chunk.ends[shard - 1]; i < chunk.ends[shard]; ++i) {
    const PackedReplica& one = chunk.replicas[i];
    replicas.push_back(
        {names_[one.node], static_cast<Tier>(one.tier), static_cast<ReplicaState>(one.state)});
  }
  return replicas;
}

MapDelta ShardMap::Snapshot() const {
  MapDelta delta;
  delta.to = epoch_;
  for (const auto& [id, node] : nodes_) delta.nodes.push_back(node);
  for (const auto& [uid, table] : tables_) delta.tables.push_back(table);
  for (const auto& [key, packed] : chunks_) {
    MapChunk& chunk = delta.chunks.emplace_back(MapChunk{key.first, key.second, {}});
    for (std::size_t i = 0; i < packed->ends.size(); ++i) {
      chunk.shards.push_back(Unpack(*packed, i));
    }
  }
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

std::vector<MapReplica> ShardMap::Replicas(const ShardKey& key) const {
  const std::uint32_t shard = key.shard.value();
  const auto it = chunks_.find({key.table, shard / kChunkShards});
  if (it == chunks_.end() || shard % kChunkShards >= it->second->ends.size()) return {};
  return Unpack(*it->second, shard % kChunkShards);
}

std::set<NodeId> ShardMap::ReadableNodes(const TableUid& table) const {
  std::vector<bool> readable(names_.size());
  const auto end = chunks_.upper_bound({table, ~0u});
  for (auto it = chunks_.lower_bound({table, 0}); it != end; ++it) {
    for (const PackedReplica& one : it->second->replicas) {
      const auto state = static_cast<ReplicaState>(one.state);
      if (state != ReplicaState::kServing && state != ReplicaState::kDraining) continue;
      readable[one.node] = true;
    }
  }
  std::set<NodeId> nodes;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (readable[i]) nodes.insert(names_[i]);
  }
  return nodes;
}

}  // namespace engram
