// Everything the controller has decided: nodes, tables, replicas, at one epoch. A value whose parts
// are shared: a copy is cheap and never changes, so one thread changes the next copy while others
// read this one. What it holds is in the store too, except NodeLive. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engram/addressing.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "engram/session.h"
#include "engram/shard_layout.h"
#include "engram/shard_map.h"
#include "engram/table_spec.h"

namespace engram::placement {

struct NodeRecord {
  NodeId id;
  Incarnation incarnation;
  std::string process_nonce;  // of the process that has this incarnation
  std::string endpoint;
  std::string failure_domain;
  std::string version;
  std::vector<TierCapacity> tiers;
  bool alive = true;
  std::int64_t joined_unix_ms = 0;
  bool cordoned = false;  // no new replica goes there
  bool draining = false;  // its replicas move away; cordoned, too
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// What a node last said of itself. Not stored.
struct NodeLive {
  std::vector<TierCapacity> tiers;
  std::uint32_t sessions = 0;
  std::uint32_t retirements_pending = 0;
  std::vector<TenantUse> tenants = {};
  std::int64_t last_seen_unix_ms = 0;
  std::string note;  // why its drain waits; the controller's own words
};

enum class MoveKind : std::uint8_t { kBalance = 1, kDrain = 2, kRepair = 3, kManual = 4 };
std::string_view Name(MoveKind kind);

// A copy of a shard that is to be somewhere else. The intent is here; how far it is stands in the
// replicas of the map (StepOf). At most one a shard.
struct MoveRecord {
  ShardKey shard;
  NodeId from;  // empty: one more copy
  NodeId to;    // empty: one copy less
  Tier to_tier = Tier::kDram;
  MoveKind kind = MoveKind::kManual;
  std::string reason;    // for people
  bool started = false;  // the replica at `to` was added to the map
  std::int64_t created_unix_ms = 0;
  // To another tier of its node: no replica is added, the node copies it, and says so.
  bool within_node() const { return from == to && !to.name.empty(); }
  friend bool operator==(const MoveRecord&, const MoveRecord&) = default;
};

// What is known of a tenant besides its tables.
struct TenantRecord {
  std::string name;
  std::uint64_t rows_per_second = 0;         // of the whole pool; 0: no limit
  std::vector<std::string> granted_tables;   // NAME or NAME@VERSION, of other tenants; sorted
  std::vector<std::string> revoked_clients;  // sorted
  friend bool operator==(const TenantRecord&, const TenantRecord&) = default;
};

struct ReplicaCounts {
  std::uint64_t loading = 0, serving = 0, draining = 0;  // replicas
  std::uint64_t shards_serving = 0;                      // shards with at least one serving replica
  std::uint64_t fewest = ~std::uint64_t{0};              // of a shard, Draining ones left out
  ReplicaCounts& operator+=(const ReplicaCounts& other);
};
ReplicaCounts Count(const MapChunk& chunk);

struct StoredTable {
  TableRecord record;
  std::string load_request;    // who asked for it, and which attempt: the same one gets this answer
  std::string delete_request;  // likewise, once Deleting
  // What an alias of this version named before, by alias; empty: nothing.
  std::map<std::string, std::string> alias_before = {};
  friend bool operator==(const StoredTable&, const StoredTable&) = default;
};

struct Chunk {
  MapChunk map;
  ReplicaCounts counts;
};

struct TableEntry : StoredTable {
  std::shared_ptr<const ShardLayout> layout;
  std::vector<std::shared_ptr<const Chunk>> chunks;
  // Ready tables: per shard the first 8 bytes of the SHA-256 of its block CRCs, so that a replica
  // loaded later can be compared with what was committed.
  std::shared_ptr<const std::vector<std::uint64_t>> shard_sums;

  ReplicaCounts counts() const;
  std::span<const MapReplica> Replicas(ShardIndex shard) const;
};

// What of a table can be read, on nodes that are alive.
struct Served {
  std::uint64_t shards = 0;          // with a serving copy
  std::uint64_t copies_missing = 0;  // of a Ready table: that should serve beside those that do
};

// A tier of a node: where a copy lies.
using TierOfNode = std::pair<NodeId, Tier>;

struct Room {
  std::int64_t free_bytes = 0;
  std::uint64_t read_bytes_per_second = 0;
  bool well = true;  // it takes new replicas
};

struct ClusterState {
  Epoch epoch;
  FencingToken token;
  Incarnation last_incarnation;
  std::map<NodeId, std::shared_ptr<const NodeRecord>> nodes;
  std::map<NodeId, std::shared_ptr<const NodeLive>> live;
  std::map<TableUid, std::shared_ptr<const TableEntry>> tables;
  std::map<std::string, std::shared_ptr<const TokenMap>> token_maps;  // by digest
  std::map<ShardKey, std::shared_ptr<const MoveRecord>> moves;
  std::map<ShardKey, std::string> move_notes;  // why a move waits; not stored
  // Why copies of a Ready table have no place; not stored.
  std::map<TableUid, std::string> table_notes;
  std::map<std::string, std::shared_ptr<const TenantRecord>> tenants;
  // The last tables that a request with an id deleted, oldest first, for when it asks again.
  std::map<std::uint64_t, std::shared_ptr<const StoredTable>> deleted;

  const NodeRecord* FindNode(const NodeId& id) const;
  const TableEntry* FindTable(const TableUid& uid) const;
  // The table of that name that is not Deleting; a Loading or Ready one before a Failed one.
  const TableEntry* FindTable(const TableName& name) const;
  // The table that NAME@ALIAS names.
  const TableEntry* FindAlias(const TableName& alias) const;
  // The record, or an empty one of that name.
  TenantRecord TenantNamed(const std::string& name) const;
  // Whether clients of the tenant may know and read the table.
  bool MayRead(const std::string& tenant, const TableRecord& table) const;
  // Null when the shard has no replica there.
  const MapReplica* FindReplica(const ShardKey& shard, const NodeId& node) const;
  // Known, and alive.
  bool IsAlive(const NodeId& id) const;
  // Alive, and new replicas may go there.
  bool MayReceive(const NodeId& id) const;
  // Alive nodes that serve the shard, less `except`, as a reader of another copy may go on there.
  std::vector<Successor> Servers(const ShardKey& shard, const NodeId& except) const;
  // What the node said last, or when it registered.
  const std::vector<TierCapacity>& TiersOf(const NodeRecord& node) const;
  // What the tiers of all nodes have left: capacity less what is assigned to the tier or what the
  // node says it has allocated there, whichever is more, less 2 MiB and 1/128 for partly filled
  // pages, and less what moves that have not begun will take. Below zero where more is assigned
  // than it has. A tier that replicas are assigned to and that its node does not have (any more) is
  // there too, with nothing.
  std::map<TierOfNode, Room> Rooms() const;
  // What moves may take of it: on nodes that may receive replicas, in tiers that are well.
  std::map<TierOfNode, std::uint64_t> RoomForMoves() const;
  // Bytes of all replicas assigned to each tier; of those that move within their node, to both.
  std::map<TierOfNode, std::uint64_t> AssignedBytes() const;
  Served ServedOf(const TableEntry& table) const;
  // The whole map as a delta from the empty map.
  MapDelta Snapshot() const;
};

enum class MoveStep : std::uint8_t { kWaiting = 1, kPulling = 2, kServing = 3, kRetiring = 4 };
// How far a move of the state is.
MoveStep StepOf(const ClusterState& state, const MoveRecord& move);

MapNode ToMapNode(const NodeRecord& node);
MapTable ToMapTable(const TableRecord& table);

// Chunks being changed: copies of those of one state, made when first touched.
class ChunkEdits {
 public:
  explicit ChunkEdits(const ClusterState& state) : state_(state) {}
  // REQUIRES: the table and the shard exist in the state.
  std::vector<MapReplica>& Replicas(const ShardKey& key);
  bool empty() const { return chunks_.empty(); }
  std::vector<MapChunk> Take();

 private:
  const ClusterState& state_;
  std::map<std::pair<TableUid, std::uint32_t>, MapChunk> chunks_;
};

}  // namespace engram::placement
