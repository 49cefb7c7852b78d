// Shard map deltas, cut into messages and put together again.
#include "proto/bounds.h"
#include "proto/convert.h"

namespace engram::wire {
namespace {

constexpr int kChunksPerMessage = 16;  // of 1,024 shards: well below gRPC's 4 MiB

void AddChunk(const MapChunk& chunk, v1::WatchMapResponse* piece) {
  auto* to = piece->add_chunks();
  to->set_table(ToWire(chunk.table));
  to->set_chunk(chunk.chunk);
  for (const auto& replicas : chunk.shards) {
    auto* shard = to->add_shards();
    for (const MapReplica& replica : replicas) {
      auto* one = shard->add_replicas();
      one->set_node(replica.node.name);
      one->set_tier(ToWire(replica.tier));
      one->set_state(ToWire(replica.state));
    }
  }
}

v1::WatchMapResponse Head(const MapDelta& delta) {
  v1::WatchMapResponse head;
  for (const MapNode& node : delta.nodes) {
    auto* to = head.add_nodes();
    to->set_node(node.id.name);
    to->set_incarnation(node.incarnation.value());
    to->set_endpoint(node.endpoint);
    to->set_failure_domain(node.failure_domain);
    to->set_alive(node.alive);
  }
  for (const NodeId& id : delta.nodes_removed) head.add_nodes_removed(id.name);
  for (const MapTable& table : delta.tables) {
    auto* to = head.add_tables();
    to->set_uid(ToWire(table.uid));
    to->set_name(table.name.name);
    to->set_version(table.name.version);
    to->set_state(ToWire(table.state));
    to->set_spec_digest(table.spec_digest);
    to->set_content_digest(table.content_digest);
    to->mutable_aliases()->Assign(table.aliases.begin(), table.aliases.end());
  }
  for (const TableUid& uid : delta.tables_removed) head.add_tables_removed(ToWire(uid));
  return head;
}

absl::StatusOr<MapTable> TableFromWire(const v1::MapTable& table) {
  auto uid = TableUidFromWire(table.uid());
  if (!uid.ok()) return uid.status();
  auto name = TableName::Parse(table.name() + "@" + table.version());
  if (!name.ok()) return name.status();
  auto state = FromWire(table.state());
  if (!state.ok()) return state.status();
  return MapTable{*uid,
                  *std::move(name),
                  *state,
                  table.spec_digest(),
                  table.content_digest(),
                  {table.aliases().begin(), table.aliases().end()}};
}

absl::StatusOr<MapChunk> ChunkFromWire(const v1::MapChunk& chunk) {
  auto uid = TableUidFromWire(chunk.table());
  if (!uid.ok()) return uid.status();
  if (auto ok = CheckCount("MapChunk.shards", chunk.shards_size(), kChunkShards); !ok.ok())
    return ok;
  MapChunk out{*uid, chunk.chunk(), {}};
  for (const auto& shard : chunk.shards()) {
    if (auto ok = CheckCount("ShardReplicas.replicas", shard.replicas_size(), kMaxReplicasPerShard);
        !ok.ok()) {
      return ok;
    }
    auto& replicas = out.shards.emplace_back();
    for (const auto& replica : shard.replicas()) {
      auto tier = FromWire(replica.tier());
      if (!tier.ok()) return tier.status();
      auto state = FromWire(replica.state());
      if (!state.ok()) return state.status();
      replicas.push_back({NodeId{replica.node()}, *tier, *state});
    }
  }
  return out;
}

}  // namespace

std::vector<v1::WatchMapResponse> ToWire(const MapDelta& delta) {
  std::vector<v1::WatchMapResponse> pieces{Head(delta)};
  for (const MapChunk& chunk : delta.chunks) {
    if (pieces.back().chunks_size() == kChunksPerMessage) pieces.emplace_back();
    AddChunk(chunk, &pieces.back());
  }
  for (auto& piece : pieces) {
    piece.set_from_epoch(delta.from.value());
    piece.set_to_epoch(delta.to.value());
  }
  pieces.back().set_last(true);
  return pieces;
}

absl::StatusOr<bool> MapDeltaAssembler::Add(const v1::WatchMapResponse& piece) {
  for (const auto& [field, count] : {std::pair{"WatchMapResponse.nodes", piece.nodes_size()},
                                     std::pair{"WatchMapResponse.tables", piece.tables_size()},
                                     std::pair{"WatchMapResponse.chunks", piece.chunks_size()}}) {
    if (auto ok = CheckCount(field, count, kMaxMapEntriesPerMessage); !ok.ok()) return ok;
  }
  const Epoch from(piece.from_epoch()), to(piece.to_epoch());
  if (started_ && (from != delta_.from || to != delta_.to)) {
    return absl::InvalidArgumentError(absl::StrCat("map delta piece for epoch ", to.value(),
                                                   " arrived inside the delta for epoch ",
                                                   delta_.to.value()));
  }
  started_ = true;
  delta_.from = from;
  delta_.to = to;
  for (const auto& node : piece.nodes()) {
    delta_.nodes.push_back({NodeId{node.node()}, Incarnation(node.incarnation()), node.endpoint(),
                            node.failure_domain(), node.alive()});
  }
  for (const std::string& node : piece.nodes_removed()) delta_.nodes_removed.push_back({node});
  for (const auto& table : piece.tables()) {
    auto from_wire = TableFromWire(table);
    if (!from_wire.ok()) return from_wire.status();
    delta_.tables.push_back(*std::move(from_wire));
  }
  for (const std::string& bytes : piece.tables_removed()) {
    auto uid = TableUidFromWire(bytes);
    if (!uid.ok()) return uid.status();
    delta_.tables_removed.push_back(*uid);
  }
  for (const auto& chunk : piece.chunks()) {
    auto from_wire = ChunkFromWire(chunk);
    if (!from_wire.ok()) return from_wire.status();
    delta_.chunks.push_back(*std::move(from_wire));
  }
  return piece.last();
}

MapDelta MapDeltaAssembler::Take() {
  started_ = false;
  return std::exchange(delta_, MapDelta{});
}

}  // namespace engram::wire
