#include "placement/state/registry.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "placement/state/records.h"

namespace engram::placement {
namespace {

// One transaction stays below both the store's limit of writes and etcd's limit of request bytes.
constexpr std::size_t kWritesPerTxn = 60;
constexpr std::size_t kBytesPerTxn = std::size_t{1} << 20;

std::size_t ChunkCount(const ShardLayout& layout) {
  return (layout.shards() + kChunkShards - 1) / kChunkShards;
}

std::shared_ptr<const Chunk> MakeChunk(MapChunk map) {
  const ReplicaCounts counts = Count(map);
  return std::make_shared<const Chunk>(Chunk{std::move(map), counts});
}

std::uint64_t NextDeleted(const ClusterState& state) {
  return state.deleted.empty() ? 1 : state.deleted.rbegin()->first + 1;
}

bool IsEmpty(const TenantRecord& tenant) { return tenant == TenantRecord{tenant.name, 0, {}, {}}; }

// A table as it is before its chunks are known.
std::shared_ptr<TableEntry> MakeTable(StoredTable table, const TableEntry* before) {
  auto entry = std::make_shared<TableEntry>();
  if (before != nullptr) *entry = *before;
  static_cast<StoredTable&>(*entry) = std::move(table);
  if (entry->layout == nullptr) {
    entry->layout = std::make_shared<const ShardLayout>(entry->record.spec, entry->record.options);
    const std::size_t chunks = ChunkCount(*entry->layout);
    for (std::size_t i = 0; i < chunks; ++i) {
      MapChunk empty{entry->record.uid, static_cast<std::uint32_t>(i), {}};
      empty.shards.resize(
          std::min<std::size_t>(kChunkShards, entry->layout->shards() - i * kChunkShards));
      entry->chunks.push_back(MakeChunk(std::move(empty)));
    }
  }
  return entry;
}

// Applies a committed change to a copy of the state.
class Applier {
 public:
  explicit Applier(ClusterState* next) : next_(next) {}

  void Apply(Change& change) {
    if (change.last_incarnation) next_->last_incarnation = *change.last_incarnation;
    for (NodeRecord& node : change.nodes) {
      // The key is copied first: the right side of an assignment is evaluated before the left.
      const NodeId id = node.id;
      next_->nodes[id] = std::make_shared<const NodeRecord>(std::move(node));
    }
    for (const NodeId& id : change.nodes_removed) {
      next_->nodes.erase(id);
      next_->live.erase(id);
    }
    for (TokenMap& map : change.token_maps) {
      std::string digest = Digest(map);
      next_->token_maps[std::move(digest)] = std::make_shared<const TokenMap>(std::move(map));
    }
    for (StoredTable& table : change.tables) {
      const TableUid uid = table.record.uid;
      edited_[uid] = MakeTable(std::move(table), next_->FindTable(uid));
    }
    for (MapChunk& chunk : change.chunks) {
      auto& stored = Edit(chunk.table).chunks.at(chunk.chunk);
      stored = MakeChunk(std::move(chunk));
    }
    for (Change::Sums& sums : change.sums) {
      Edit(sums.table).shard_sums =
          std::make_shared<const std::vector<std::uint64_t>>(std::move(sums.sums));
    }
    for (auto& [uid, entry] : edited_) next_->tables[uid] = std::move(entry);
    for (MoveRecord& move : change.moves) {
      const ShardKey shard = move.shard;
      next_->moves[shard] = std::make_shared<const MoveRecord>(std::move(move));
    }
    for (const ShardKey& shard : change.moves_removed) next_->moves.erase(shard);
    for (TenantRecord& tenant : change.tenants) {
      const std::string name = tenant.name;
      next_->tenants.erase(name);
      if (IsEmpty(tenant)) continue;
      next_->tenants[name] = std::make_shared<const TenantRecord>(std::move(tenant));
    }
    for (const TableUid& uid : change.tables_removed) {
      next_->tables.erase(uid);
      std::erase_if(next_->moves, [&](const auto& entry) { return entry.first.table == uid; });
    }
    for (StoredTable& table : change.deletes_remembered) {
      const std::uint64_t number = NextDeleted(*next_);
      next_->deleted[number] = std::make_shared<const StoredTable>(std::move(table));
      if (next_->deleted.size() > kRememberedDeletes) next_->deleted.erase(next_->deleted.begin());
    }
    ForgetTokenMaps();
  }

 private:
  TableEntry& Edit(const TableUid& uid) {
    std::shared_ptr<TableEntry>& entry = edited_[uid];
    if (entry == nullptr) {
      const TableEntry* before = next_->FindTable(uid);
      ENGRAM_CHECK(before != nullptr);
      entry = std::make_shared<TableEntry>(*before);
    }
    return *entry;
  }
  void ForgetTokenMaps() {
    std::set<std::string> used;
    for (const auto& [uid, table] : next_->tables) {
      used.insert(table->record.spec.addressing.token_map_digest);
    }
    std::erase_if(next_->token_maps,
                  [&](const auto& entry) { return !used.contains(entry.first); });
  }

  ClusterState* next_;
  std::map<TableUid, std::shared_ptr<TableEntry>> edited_;
};

MapDelta DeltaOf(const Change& change, Epoch from, Epoch to) {
  MapDelta delta;
  delta.from = from;
  delta.to = to;
  for (const NodeRecord& node : change.nodes) delta.nodes.push_back(ToMapNode(node));
  delta.nodes_removed = change.nodes_removed;
  for (const StoredTable& table : change.tables) delta.tables.push_back(ToMapTable(table.record));
  delta.tables_removed = change.tables_removed;
  delta.chunks = change.chunks;
  return delta;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Registry>> Registry::Open(StateStore* store) {
  std::unique_ptr<Registry> registry(new Registry(store));
  auto state = std::make_shared<ClusterState>();
  registry->state_ = state;
  absl::Status status = registry->TakeToken();
  for (int tries = 1; absl::IsAborted(status) && tries < 8; ++tries) {
    status = registry->TakeToken();
  }
  if (!status.ok()) return status;
  *state = *registry->state_;
  for (auto read : {&Registry::ReadNodes, &Registry::ReadTables, &Registry::ReadTokenMaps,
                    &Registry::ReadDeleted, &Registry::ReadMoves, &Registry::ReadTenants}) {
    status = (registry.get()->*read)(state.get());
    if (!status.ok()) return status;
  }
  status = registry->RemoveOrphans(*state);
  if (!status.ok()) return status;
  registry->state_ = std::move(state);
  return registry;
}

absl::Status Registry::TakeToken() {
  const absl::StatusOr<StoreListing> meta = store_->List("meta/");
  if (!meta.ok()) return meta.status();
  std::map<std::string, std::uint64_t> numbers;
  // All three: another controller may write until the token is taken.
  std::vector<Compare> compares;
  for (const auto key : {kFencingKey, kEpochKey, kIncarnationKey}) {
    compares.push_back({std::string(key), Revision()});
  }
  for (const StoreEntry& entry : meta->entries) {
    const absl::StatusOr<std::uint64_t> number = DecodeNumber(entry.key, entry.value);
    if (!number.ok()) return number.status();
    numbers[entry.key] = *number;
    for (Compare& compare : compares) {
      if (entry.key == compare.key) compare.revision = entry.revision;
    }
  }
  auto state = std::make_shared<ClusterState>(*state_);
  state->token = FencingToken(numbers[std::string(kFencingKey)] + 1);
  // A crash may have stored a part of a change that no epoch stands for: nobody may believe that
  // the map of the last epoch is the present one.
  state->epoch = Epoch(numbers[std::string(kEpochKey)] + 1);
  state->last_incarnation = Incarnation(numbers[std::string(kIncarnationKey)]);
  const absl::StatusOr<Revision> taken =
      store_->Txn({compares,
                   {{std::string(kFencingKey), EncodeNumber(state->token.value())},
                    {std::string(kEpochKey), EncodeNumber(state->epoch.value())}},
                   {}});
  if (!taken.ok()) return taken.status();
  fencing_revision_ = *taken;
  state_ = std::move(state);
  return absl::OkStatus();
}

absl::Status Registry::ReadNodes(ClusterState* state) {
  const absl::StatusOr<StoreListing> nodes = store_->List("node/");
  if (!nodes.ok()) return nodes.status();
  for (const StoreEntry& entry : nodes->entries) {
    absl::StatusOr<NodeRecord> node = DecodeNode(entry.key, entry.value);
    if (!node.ok()) return node.status();
    const NodeId id = node->id;
    state->nodes[id] = std::make_shared<const NodeRecord>(*std::move(node));
  }
  return absl::OkStatus();
}

absl::Status Registry::ReadTables(ClusterState* state) {
  const absl::StatusOr<StoreListing> tables = store_->List("table/");
  if (!tables.ok()) return tables.status();
  for (const StoreEntry& stored : tables->entries) {
    absl::StatusOr<StoredTable> table = DecodeTable(stored.key, stored.value);
    if (!table.ok()) return table.status();
    const TableUid uid = table->record.uid;
    const std::shared_ptr<TableEntry> entry = MakeTable(*std::move(table), nullptr);
    const absl::StatusOr<StoreListing> chunks = store_->List(ChunkPrefix(uid));
    if (!chunks.ok()) return chunks.status();
    for (const StoreEntry& piece : chunks->entries) {
      absl::StatusOr<MapChunk> chunk = DecodeChunk(piece.key, piece.value);
      if (!chunk.ok()) return chunk.status();
      if (chunk->chunk >= entry->chunks.size() ||
          chunk->shards.size() != entry->chunks[chunk->chunk]->map.shards.size()) {
        return absl::DataLossError(
            absl::StrCat("state key ", piece.key, " does not fit its table; restore a backup"));
      }
      const std::uint32_t at = chunk->chunk;
      entry->chunks[at] = MakeChunk(*std::move(chunk));
    }
    const absl::StatusOr<StoreListing> sums = store_->List(SumsPrefix(uid));
    if (!sums.ok()) return sums.status();
    auto all = std::make_shared<std::vector<std::uint64_t>>();
    for (const StoreEntry& piece : sums->entries) {
      absl::Status read = DecodeSums(piece.key, piece.value, all.get());
      if (!read.ok()) return read;
    }
    if (entry->record.state == TableState::kReady) entry->shard_sums = std::move(all);
    state->tables[uid] = entry;
  }
  return absl::OkStatus();
}

absl::Status Registry::ReadTokenMaps(ClusterState* state) {
  for (const auto& [uid, table] : state->tables) {
    const std::string& digest = table->record.spec.addressing.token_map_digest;
    if (digest.empty() || state->token_maps.contains(digest)) continue;
    const absl::StatusOr<StoreListing> pieces = store_->List(TokenMapPrefix(digest));
    if (!pieces.ok()) return pieces.status();
    auto map = std::make_shared<TokenMap>();
    for (const StoreEntry& piece : pieces->entries) {
      absl::Status read = DecodePiece(piece.key, piece.value, map.get());
      if (!read.ok()) return read;
    }
    if (Digest(*map) != digest) {
      return absl::DataLossError(absl::StrCat("the stored token map ", digest,
                                              " does not have that digest; restore a backup"));
    }
    state->token_maps[digest] = std::move(map);
  }
  return absl::OkStatus();
}

absl::Status Registry::ReadDeleted(ClusterState* state) {
  const absl::StatusOr<StoreListing> deleted = store_->List(std::string(kDeletedPrefix));
  if (!deleted.ok()) return deleted.status();
  for (const StoreEntry& entry : deleted->entries) {
    const absl::StatusOr<std::uint64_t> number = DeletedNumber(entry.key);
    if (!number.ok()) return number.status();
    absl::StatusOr<StoredTable> table = DecodeTable(entry.key, entry.value);
    if (!table.ok()) return table.status();
    state->deleted[*number] = std::make_shared<const StoredTable>(*std::move(table));
  }
  return absl::OkStatus();
}

absl::Status Registry::ReadMoves(ClusterState* state) {
  const absl::StatusOr<StoreListing> moves = store_->List(std::string(kMovePrefix));
  if (!moves.ok()) return moves.status();
  for (const StoreEntry& entry : moves->entries) {
    absl::StatusOr<MoveRecord> move = DecodeMove(entry.key, entry.value);
    if (!move.ok()) return move.status();
    // A table's moves go with it: a crash may have left some, which RemoveOrphans removes.
    if (state->FindTable(move->shard.table) == nullptr) continue;
    const ShardKey shard = move->shard;
    state->moves[shard] = std::make_shared<const MoveRecord>(*std::move(move));
  }
  return absl::OkStatus();
}

absl::Status Registry::ReadTenants(ClusterState* state) {
  const absl::StatusOr<StoreListing> tenants = store_->List(std::string(kTenantPrefix));
  if (!tenants.ok()) return tenants.status();
  for (const StoreEntry& entry : tenants->entries) {
    absl::StatusOr<TenantRecord> tenant = DecodeTenant(entry.key, entry.value);
    if (!tenant.ok()) return tenant.status();
    const std::string name = tenant->name;
    state->tenants[name] = std::make_shared<const TenantRecord>(*std::move(tenant));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Registry::Keys(const std::string& prefix) {
  const absl::StatusOr<StoreListing> listing = store_->List(prefix);
  if (!listing.ok()) return listing.status();
  std::vector<std::string> keys;
  for (const StoreEntry& entry : listing->entries) keys.push_back(entry.key);
  return keys;
}

absl::Status Registry::RemoveOrphans(const ClusterState& state) {
  std::vector<std::string> owners;
  for (const auto& [uid, table] : state.tables) {
    owners.push_back(ChunkPrefix(uid));
    owners.push_back(SumsPrefix(uid));
    owners.push_back(MovesPrefix(uid));
  }
  for (const auto& [digest, map] : state.token_maps) owners.push_back(TokenMapPrefix(digest));
  std::vector<Write> writes;
  for (const char* prefix : {"chunk/", "sums/", "token_map/", "move/"}) {
    const absl::StatusOr<std::vector<std::string>> keys = Keys(prefix);
    if (!keys.ok()) return keys.status();
    for (const std::string& key : *keys) {
      const std::string owner = key.substr(0, key.rfind('/') + 1);
      if (std::find(owners.begin(), owners.end(), owner) == owners.end()) {
        writes.push_back({key, std::nullopt});
      }
    }
  }
  return WriteAll(writes, {});
}

absl::StatusOr<std::vector<Registry::Write>> Registry::Writes(const Change& change) {
  std::vector<Write> writes;
  for (const TokenMap& map : change.token_maps) {
    const std::string digest = Digest(map);
    for (std::size_t at = 0, piece = 0; at < map.size(); at += kTokenMapPieceEntries, ++piece) {
      const std::size_t size = std::min(kTokenMapPieceEntries, map.size() - at);
      writes.push_back({TokenMapKey(digest, static_cast<std::uint32_t>(piece)),
                        EncodePiece(std::span(map).subspan(at, size))});
    }
  }
  for (const Change::Sums& sums : change.sums) {
    for (std::size_t at = 0; at < sums.sums.size(); at += kChunkShards) {
      const std::size_t size = std::min<std::size_t>(kChunkShards, sums.sums.size() - at);
      writes.push_back({SumsKey(sums.table, static_cast<std::uint32_t>(at / kChunkShards)),
                        EncodeSums(std::span(sums.sums).subspan(at, size))});
    }
  }
  for (const MapChunk& chunk : change.chunks) {
    writes.push_back({ChunkKey(chunk.table, chunk.chunk), Encode(chunk)});
  }
  for (const NodeRecord& node : change.nodes) writes.push_back({NodeKey(node.id), Encode(node)});
  for (const NodeId& node : change.nodes_removed) writes.push_back({NodeKey(node), std::nullopt});
  for (const TenantRecord& tenant : change.tenants) {
    writes.push_back({TenantKey(tenant.name),
                      IsEmpty(tenant) ? std::nullopt : std::optional<std::string>(Encode(tenant))});
  }
  for (const MoveRecord& move : change.moves) writes.push_back({MoveKey(move.shard), Encode(move)});
  for (const ShardKey& shard : change.moves_removed) {
    writes.push_back({MoveKey(shard), std::nullopt});
  }
  for (const StoredTable& table : change.tables) {
    writes.push_back({TableKey(table.record.uid), Encode(table)});
  }
  // Before the table goes: a crash in between leaves both, and the removal is done again.
  std::uint64_t number = NextDeleted(*state_);
  auto oldest = state_->deleted.begin();
  for (std::size_t i = 0; i < change.deletes_remembered.size(); ++i) {
    writes.push_back({DeletedKey(number++), Encode(change.deletes_remembered[i])});
    if (state_->deleted.size() + i < kRememberedDeletes || oldest == state_->deleted.end())
      continue;
    writes.push_back({DeletedKey((oldest++)->first), std::nullopt});
  }
  for (const TableUid& uid : change.tables_removed) {
    writes.push_back({TableKey(uid), std::nullopt});
    for (const std::string& prefix : {ChunkPrefix(uid), SumsPrefix(uid), MovesPrefix(uid)}) {
      const absl::StatusOr<std::vector<std::string>> keys = Keys(prefix);
      if (!keys.ok()) return keys.status();
      for (const std::string& key : *keys) writes.push_back({key, std::nullopt});
    }
  }
  return writes;
}

absl::Status Registry::WriteAll(const std::vector<Write>& writes, const std::vector<Put>& in_each) {
  for (std::size_t at = 0; at < writes.size();) {
    StoreTxn txn{{{std::string(kFencingKey), fencing_revision_}}, in_each, {}};
    std::size_t bytes = 0;
    for (std::size_t count = 0; at < writes.size() && count < kWritesPerTxn; ++at, ++count) {
      const Write& write = writes[at];
      const std::size_t size = write.value ? write.value->size() : 0;
      if (count > 0 && bytes + size > kBytesPerTxn) break;
      bytes += size;
      if (write.value) {
        txn.puts.push_back({write.key, *write.value});
      } else {
        txn.deletes.push_back(write.key);
      }
    }
    const absl::StatusOr<Revision> written = store_->Txn(txn);
    if (written.status().code() == absl::StatusCode::kAborted) {
      return absl::AbortedError(absl::StrCat("another controller has taken the state store ",
                                             store_->Describe(), "; this one must stop (",
                                             written.status().message(), ")"));
    }
    if (!written.ok()) return written.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const MapDelta>> Registry::Commit(Change change) {
  const bool visible = !change.empty();
  const Epoch epoch(state_->epoch.value() + (visible ? 1 : 0));
  absl::StatusOr<std::vector<Write>> writes = Writes(change);
  if (!writes.ok()) return writes.status();
  std::vector<Put> in_each;
  if (visible) in_each.push_back({std::string(kEpochKey), EncodeNumber(epoch.value())});
  if (change.last_incarnation) {
    in_each.push_back(
        {std::string(kIncarnationKey), EncodeNumber(change.last_incarnation->value())});
  }
  absl::Status written = WriteAll(*writes, in_each);
  if (!written.ok()) return written;
  auto next = std::make_shared<ClusterState>(*state_);
  std::shared_ptr<const MapDelta> delta;
  if (visible) delta = std::make_shared<const MapDelta>(DeltaOf(change, state_->epoch, epoch));
  next->epoch = epoch;
  Applier(next.get()).Apply(change);
  state_ = std::move(next);
  return delta;
}

void Registry::SetLive(std::map<NodeId, std::shared_ptr<const NodeLive>> live,
                       std::map<ShardKey, std::string> move_notes,
                       std::map<TableUid, std::string> table_notes) {
  auto next = std::make_shared<ClusterState>(*state_);
  next->live = std::move(live);
  next->move_notes = std::move(move_notes);
  next->table_notes = std::move(table_notes);
  state_ = std::move(next);
}

}  // namespace engram::placement
