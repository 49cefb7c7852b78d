// Who serves what: an immutable snapshot of nodes, tables and replicas at one epoch, and the deltas
// that lead from one snapshot to the next. It says only *which node*; keys and addresses of memory
// never pass through it. Immutable: Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/table_spec.h"
#include "engram/tier.h"

namespace engram {

// Never moves backwards.
enum class ReplicaState : std::uint8_t { kLoading = 1, kServing = 2, kDraining = 3, kRetired = 4 };
std::string_view Name(ReplicaState state);

struct MapNode {
  NodeId id;
  Incarnation incarnation;
  std::string endpoint;  // gRPC host:port of the node's read sessions
  std::string failure_domain;
  bool alive = true;
  friend bool operator==(const MapNode&, const MapNode&) = default;
};

struct MapReplica {
  NodeId node;
  Tier tier = Tier::kDram;
  ReplicaState state = ReplicaState::kLoading;
  friend bool operator==(const MapReplica&, const MapReplica&) = default;
};

// Replicas of `kChunkShards` consecutive shards of one table: the unit in which the map is stored
// and sent.
inline constexpr std::uint32_t kChunkShards = 1024;
struct MapChunk {
  TableUid table;
  std::uint32_t chunk = 0;                      // shards [chunk * kChunkShards, ...)
  std::vector<std::vector<MapReplica>> shards;  // at most kChunkShards entries
  friend bool operator==(const MapChunk&, const MapChunk&) = default;
};

struct MapTable {
  TableUid uid;
  TableName name;
  TableState state = TableState::kLoading;
  std::string spec_digest;
  std::string content_digest;
  std::vector<std::string> aliases;  // TableRecord::aliases
  friend bool operator==(const MapTable&, const MapTable&) = default;
};

// Everything that changed after `from` up to `to`; from 0 = a whole snapshot (replaces what was
// known).
struct MapDelta {
  Epoch from;
  Epoch to;
  std::vector<MapNode> nodes;  // added or changed
  std::vector<NodeId> nodes_removed;
  std::vector<MapTable> tables;          // added or changed
  std::vector<TableUid> tables_removed;  // with all their chunks
  std::vector<MapChunk> chunks;          // added or changed
};

class ShardMap {
 public:
  // The empty map at epoch 0.
  static std::shared_ptr<const ShardMap> Empty();
  // FailedPrecondition when delta.from is neither 0 nor this map's epoch, or more nodes were named
  // than can be numbered: ask for a snapshot.
  absl::StatusOr<std::shared_ptr<const ShardMap>> Apply(const MapDelta& delta) const;
  // The delta that makes `*this` out of the empty map.
  MapDelta Snapshot() const;

  Epoch epoch() const { return epoch_; }
  const std::map<NodeId, MapNode>& nodes() const { return nodes_; }
  const std::map<TableUid, MapTable>& tables() const { return tables_; }
  const MapNode* FindNode(const NodeId& id) const;
  const MapTable* FindTable(const TableUid& uid) const;
  const MapTable* FindTable(const TableName& name) const;
  // The table that NAME@ALIAS names now.
  const MapTable* FindAlias(const TableName& alias) const;
  // Empty when the table or shard is unknown.
  std::vector<MapReplica> Replicas(const ShardKey& key) const;
  // Those with a replica of some shard of the table that can be read: Serving or Draining.
  std::set<NodeId> ReadableNodes(const TableUid& table) const;

 private:
  using ChunkKey = std::pair<TableUid, std::uint32_t>;
  // A chunk as the map keeps it: a table may have a million replicas, a pool has few nodes.
  struct PackedReplica {
    std::uint32_t node : 24;  // index into names_
    std::uint32_t tier : 4;
    std::uint32_t state : 4;
  };
  static_assert(sizeof(PackedReplica) == 4);
  struct PackedChunk {
    std::vector<std::uint32_t> ends;  // of each shard's replicas
    std::vector<PackedReplica> replicas;
  };
  static constexpr std::uint32_t kMostNames = 1u << 24;

  std::shared_ptr<const PackedChunk> Pack(const MapChunk& chunk);
  std::vector<MapReplica> Unpack(const PackedChunk& chunk, std::size_t shard) const;

  Epoch epoch_;
  std::map<NodeId, MapNode> nodes_;
  std::map<TableUid, MapTable> tables_;
  std::map<ChunkKey, std::shared_ptr<const PackedChunk>> chunks_;
  // Every node that a chunk has named since the last snapshot, and where it stands here.
  std::vector<NodeId> names_;
  std::map<NodeId, std::uint32_t> numbers_;
};

}  // namespace engram
