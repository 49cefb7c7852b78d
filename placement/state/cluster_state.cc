#include "placement/state/cluster_state.h"

#include <algorithm>

#include "engram/check.h"
#include "engram/identity.h"

namespace engram::placement {
namespace {

constexpr std::int64_t kSlabSlackShare = 128;
constexpr std::int64_t kSlabSlackBytes = std::int64_t{2} << 20;

std::int64_t FreeOf(const TierCapacity& tier, std::uint64_t assigned) {
  const std::uint64_t used = std::max(assigned, tier.allocated_bytes);
  const auto free = static_cast<std::int64_t>(tier.capacity_bytes - used);
  // A node whose capacity shrank; memory that is being freed is not that.
  if (free <= 0)
    return std::min<std::int64_t>(
        0, static_cast<std::int64_t>(tier.capacity_bytes) - static_cast<std::int64_t>(assigned));
  // Nodes allocate in slabs of whole pages: the last page of each may be partly empty.
  return std::max<std::int64_t>(0, free - free / kSlabSlackShare - kSlabSlackBytes);
}

}  // namespace

ReplicaCounts& ReplicaCounts::operator+=(const ReplicaCounts& other) {
  loading += other.loading;
  serving += other.serving;
  draining += other.draining;
  shards_serving += other.shards_serving;
  fewest = std::min(fewest, other.fewest);
  return *this;
}

ReplicaCounts Count(const MapChunk& chunk) {
  ReplicaCounts counts;
  for (const std::vector<MapReplica>& replicas : chunk.shards) {
    const std::uint64_t before = counts.serving, wanted = counts.serving + counts.loading;
    for (const MapReplica& replica : replicas) {
      counts.loading += replica.state == ReplicaState::kLoading;
      counts.serving += replica.state == ReplicaState::kServing;
      counts.draining += replica.state == ReplicaState::kDraining;
    }
    counts.shards_serving += counts.serving > before;
    counts.fewest = std::min(counts.fewest, counts.serving + counts.loading - wanted);
  }
  return counts;
}

ReplicaCounts TableEntry::counts() const {
  ReplicaCounts sum;
  for (const auto& chunk : chunks) sum += chunk->counts;
  return sum;
}

std::span<const MapReplica> TableEntry::Replicas(ShardIndex shard) const {
  const std::uint32_t chunk = shard.value() / kChunkShards, at = shard.value() % kChunkShards;
  if (chunk >= chunks.size() || at >= chunks[chunk]->map.shards.size()) return {};
  return chunks[chunk]->map.shards[at];
}

const NodeRecord* ClusterState::FindNode(const NodeId& id) const {
  const auto it = nodes.find(id);
  return it == nodes.end() ? nullptr : it->second.get();
}

const TableEntry* ClusterState::FindTable(const TableUid& uid) const {
  const auto it = tables.find(uid);
  return it == tables.end() ? nullptr : it->second.get();
}

const TableEntry* ClusterState::FindTable(const TableName& name) const {
  const TableEntry* failed = nullptr;
  for (const auto& [uid, table] : tables) {
    if (table->record.name != name || table->record.state == TableState::kDeleting) continue;
    if (table->record.state != TableState::kFailed) return table.get();
    failed = table.get();
  }
  return failed;
}

TenantRecord ClusterState::TenantNamed(const std::string& name) const {
  const auto it = tenants.find(name);
  return it == tenants.end() ? TenantRecord{name, 0, {}, {}} : *it->second;
}

bool ClusterState::MayRead(const std::string& tenant, const TableRecord& table) const {
  const auto it = tenants.find(tenant);
  return TenantMayRead(
      tenant, table.tenant, table.name,
      it == tenants.end() ? std::vector<std::string>() : it->second->granted_tables);
}

const TableEntry* ClusterState::FindAlias(const TableName& alias) const {
  for (const auto& [uid, table] : tables) {
    const std::vector<std::string>& aliases = table->record.aliases;
    if (table->record.name.name == alias.name &&
        std::find(aliases.begin(), aliases.end(), alias.version) != aliases.end())
      return table.get();
  }
  return nullptr;
}

const MapReplica* ClusterState::FindReplica(const ShardKey& shard, const NodeId& node) const {
  const TableEntry* table = FindTable(shard.table);
  if (table == nullptr) return nullptr;
  for (const MapReplica& replica : table->Replicas(shard.shard)) {
    if (replica.node == node) return &replica;
  }
  return nullptr;
}

bool ClusterState::IsAlive(const NodeId& id) const {
  const NodeRecord* node = FindNode(id);
  return node != nullptr && node->alive;
}

bool ClusterState::MayReceive(const NodeId& id) const {
  const NodeRecord* node = FindNode(id);
  return node != nullptr && node->alive && !node->cordoned && !node->draining;
}

std::vector<Successor> ClusterState::Servers(const ShardKey& shard, const NodeId& except) const {
  std::vector<Successor> servers;
  const TableEntry* table = FindTable(shard.table);
  if (table == nullptr) return servers;
  for (const MapReplica& replica : table->Replicas(shard.shard)) {
    const NodeRecord* node = FindNode(replica.node);
    if (replica.state != ReplicaState::kServing || replica.node == except) continue;
    if (node != nullptr && node->alive) {
      servers.push_back({node->id, node->incarnation, node->endpoint});
    }
  }
  return servers;
}

std::map<TierOfNode, std::uint64_t> ClusterState::AssignedBytes() const {
  std::map<TierOfNode, std::uint64_t> bytes;
  for (const auto& [uid, table] : tables) {
    for (const auto& chunk : table->chunks) {
      for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
        const auto shard =
            static_cast<std::uint32_t>(std::size_t{chunk->map.chunk} * kChunkShards + i);
        for (const MapReplica& replica : chunk->map.shards[i]) {
          bytes[{replica.node, replica.tier}] += table->layout->StoredBytes(ShardIndex(shard));
        }
      }
    }
  }
  for (const auto& [shard, move] : moves) {
    if (!move->started || !move->within_node()) continue;
    const MapReplica* replica = FindReplica(shard, move->to);
    if (replica == nullptr || replica->tier == move->to_tier) continue;
    bytes[{move->to, move->to_tier}] += FindTable(shard.table)->layout->StoredBytes(shard.shard);
  }
  return bytes;
}

const std::vector<TierCapacity>& ClusterState::TiersOf(const NodeRecord& node) const {
  const auto said = live.find(node.id);
  return said != live.end() && !said->second->tiers.empty() ? said->second->tiers : node.tiers;
}

std::map<TierOfNode, Room> ClusterState::Rooms() const {
  const std::map<TierOfNode, std::uint64_t> assigned = AssignedBytes();
  std::map<TierOfNode, Room> rooms;
  for (const auto& [place, bytes] : assigned) {
    if (FindNode(place.first) == nullptr) continue;
    rooms[place] = {-static_cast<std::int64_t>(bytes), 0, false};
  }
  for (const auto& [id, node] : nodes) {
    for (const TierCapacity& tier : TiersOf(*node)) {
      const auto here = assigned.find({id, tier.tier});
      rooms[{id, tier.tier}] = {FreeOf(tier, here == assigned.end() ? 0 : here->second),
                                tier.read_bytes_per_second, tier.trouble.empty()};
    }
  }
  for (const auto& [shard, move] : moves) {
    const auto to = rooms.find({move->to, move->to_tier});
    const TableEntry* table = FindTable(shard.table);
    if (move->started || to == rooms.end() || table == nullptr) continue;
    const auto bytes = static_cast<std::int64_t>(table->layout->StoredBytes(shard.shard));
    to->second.free_bytes -= std::clamp<std::int64_t>(to->second.free_bytes, 0, bytes);
  }
  return rooms;
}

std::map<TierOfNode, std::uint64_t> ClusterState::RoomForMoves() const {
  std::map<TierOfNode, std::uint64_t> room;
  for (const auto& [place, here] : Rooms()) {
    if (!MayReceive(place.first) || !here.well) continue;
    room[place] = static_cast<std::uint64_t>(std::max<std::int64_t>(0, here.free_bytes));
  }
  return room;
}

Served ClusterState::ServedOf(const TableEntry& table) const {
  const std::uint64_t copies =
      table.record.state == TableState::kReady ? table.record.options.replicas : 0;
  const ReplicaCounts counts = table.counts();
  const auto dead = [](const auto& node) { return !node.second->alive; };
  if (counts.loading == 0 && counts.fewest >= copies &&
      std::none_of(nodes.begin(), nodes.end(), dead)) {
    return {counts.shards_serving, 0};
  }
  Served served;
  for (const auto& chunk : table.chunks) {
    for (const auto& replicas : chunk->map.shards) {
      const auto here = static_cast<std::uint64_t>(
          std::count_if(replicas.begin(), replicas.end(), [&](const MapReplica& replica) {
            return replica.state == ReplicaState::kServing && IsAlive(replica.node);
          }));
      served.shards += here > 0;
      served.copies_missing += copies - std::min(copies, here);
    }
  }
  return served;
}

MapDelta ClusterState::Snapshot() const {
  MapDelta delta;
  delta.to = epoch;
  for (const auto& [id, node] : nodes) delta.nodes.push_back(ToMapNode(*node));
  for (const auto& [uid, table] : tables) {
    delta.tables.push_back(ToMapTable(table->record));
    for (const auto& chunk : table->chunks) delta.chunks.push_back(chunk->map);
  }
  return delta;
}

std::string_view Name(MoveKind kind) {
  switch (kind) {
    case MoveKind::kBalance: return "balance";
    case MoveKind::kDrain: return "drain";
    case MoveKind::kRepair: return "repair";
    case MoveKind::kManual: return "manual";
  }
  return "manual";
}

MoveStep StepOf(const ClusterState& state, const MoveRecord& move) {
  if (!move.started) return MoveStep::kWaiting;
  const MapReplica* from = state.FindReplica(move.shard, move.from);
  if (from != nullptr && from->state == ReplicaState::kDraining) return MoveStep::kRetiring;
  const MapReplica* to = state.FindReplica(move.shard, move.to);
  const bool there = to != nullptr && to->state == ReplicaState::kServing &&
                     (!move.within_node() || to->tier == move.to_tier);
  return there ? MoveStep::kServing : MoveStep::kPulling;
}

MapNode ToMapNode(const NodeRecord& node) {
  return {node.id, node.incarnation, node.endpoint, node.failure_domain, node.alive};
}

MapTable ToMapTable(const TableRecord& table) {
  return {table.uid,         table.name,           table.state,
          table.spec_digest, table.content_digest, table.aliases};
}

std::vector<MapReplica>& ChunkEdits::Replicas(const ShardKey& key) {
  const std::uint32_t chunk = key.shard.value() / kChunkShards;
  const auto [it, fresh] = chunks_.try_emplace({key.table, chunk});
  if (fresh) {
    const TableEntry* table = state_.FindTable(key.table);
    ENGRAM_CHECK(table != nullptr && chunk < table->chunks.size());
    it->second = table->chunks[chunk]->map;
  }
  return it->second.shards.at(key.shard.value() % kChunkShards);
}

std::vector<MapChunk> ChunkEdits::Take() {
  std::vector<MapChunk> changed;
  for (auto& [key, chunk] : chunks_) {
    const TableEntry* table = state_.FindTable(key.first);
    if (chunk != table->chunks[key.second]->map) changed.push_back(std::move(chunk));
  }
  chunks_.clear();
  return changed;
}

}  // namespace engram::placement
