#include "placement/state/records.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "placement/state/codec.h"

namespace engram::placement {
namespace {

constexpr std::uint8_t kFormat = 1;

absl::Status Unreadable(const std::string& key) {
  return absl::DataLossError(
      absl::StrCat("state key ", key,
                   " holds bytes that this program cannot read; restore the state file from "
                   "a backup, or start the version that wrote it"));
}

void EncodeTiers(const std::vector<TierCapacity>& tiers, Encoder* to) {
  to->Number(tiers.size());
  for (const TierCapacity& tier : tiers) {
    to->Number(static_cast<std::uint64_t>(tier.tier));
    to->Number(tier.capacity_bytes);
    to->Number(tier.allocated_bytes);
    to->Number(tier.read_bytes_per_second);
  }
}

std::vector<TierCapacity> DecodeTiers(Decoder* from) {
  std::vector<TierCapacity> tiers(from->Count());
  for (TierCapacity& tier : tiers) {
    tier.tier = static_cast<Tier>(from->Number());
    tier.capacity_bytes = from->Number();
    tier.allocated_bytes = from->Number();
    tier.read_bytes_per_second = from->Number();
  }
  return tiers;
}

void EncodeSpec(const TableSpec& spec, Encoder* to) {
  to->Number(spec.columns.size());
  for (const Column& column : spec.columns) {
    for (std::uint64_t value : {std::uint64_t{column.layer}, std::uint64_t{column.order},
                                std::uint64_t{column.head}, column.rows}) {
      to->Number(value);
    }
  }
  to->Number(spec.planes.size());
  for (const Plane& plane : spec.planes) {
    to->Text(plane.name);
    to->Number(static_cast<std::uint64_t>(plane.dtype));
    to->Number(plane.bytes);
  }
  const AddressingSpec& addressing = spec.addressing;
  to->Text(addressing.function);
  to->Number(addressing.layers.size());
  for (std::uint32_t layer : addressing.layers) to->Number(layer);
  to->Number(addressing.max_order);
  to->Number(addressing.heads);
  to->Number(addressing.base_rows);
  to->Number(addressing.base_seed);
  to->Signed(addressing.pad_token);
  to->Number(addressing.raw_vocab);
  to->Number(addressing.compressed_vocab);
  to->Number(addressing.multipliers.size());
  for (const auto& multipliers : addressing.multipliers) {
    to->Number(multipliers.size());
    for (std::int64_t value : multipliers) to->Signed(value);
  }
  to->Text(addressing.token_map_digest);
}

template <class T>
T Small(Decoder* from) {
  return static_cast<T>(from->Number());
}

TableSpec DecodeSpec(Decoder* from) {
  TableSpec spec;
  spec.columns.resize(from->Count());
  for (Column& column : spec.columns) {
    column.layer = Small<std::uint32_t>(from);
    column.order = Small<std::uint32_t>(from);
    column.head = Small<std::uint32_t>(from);
    column.rows = from->Number();
  }
  spec.planes.resize(from->Count());
  for (Plane& plane : spec.planes) {
    plane.name = from->Text();
    plane.dtype = Small<DType>(from);
    plane.bytes = Small<std::uint32_t>(from);
  }
  AddressingSpec& addressing = spec.addressing;
  addressing.function = from->Text();
  addressing.layers.resize(from->Count());
  for (std::uint32_t& layer : addressing.layers) layer = Small<std::uint32_t>(from);
  addressing.max_order = Small<std::uint32_t>(from);
  addressing.heads = Small<std::uint32_t>(from);
  addressing.base_rows = from->Number();
  addressing.base_seed = from->Number();
  addressing.pad_token = from->Signed();
  addressing.raw_vocab = from->Number();
  addressing.compressed_vocab = from->Number();
  addressing.multipliers.resize(from->Count());
  for (auto& multipliers : addressing.multipliers) {
    multipliers.resize(from->Count());
    for (std::int64_t& value : multipliers) value = from->Signed();
  }
  addressing.token_map_digest = from->Text();
  return spec;
}

// Node names of one chunk, each written once.
class NodeNames {
 public:
  explicit NodeNames(const MapChunk& chunk) {
    for (const auto& replicas : chunk.shards) {
      for (const MapReplica& replica : replicas) names_.push_back(replica.node.name);
    }
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  }
  std::size_t IndexOf(const NodeId& id) const {
    return static_cast<std::size_t>(std::lower_bound(names_.begin(), names_.end(), id.name) -
                                    names_.begin());
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

}  // namespace

std::string NodeKey(const NodeId& id) { return "node/" + id.name; }
std::string TableKey(const TableUid& uid) { return "table/" + uid.Hex(); }
std::string ChunkPrefix(const TableUid& uid) { return "chunk/" + uid.Hex() + "/"; }
std::string ChunkKey(const TableUid& uid, std::uint32_t chunk) {
  return absl::StrFormat("%s%08x", ChunkPrefix(uid), chunk);
}
std::string SumsPrefix(const TableUid& uid) { return "sums/" + uid.Hex() + "/"; }
std::string SumsKey(const TableUid& uid, std::uint32_t chunk) {
  return absl::StrFormat("%s%08x", SumsPrefix(uid), chunk);
}
std::string TokenMapPrefix(const std::string& digest) { return "token_map/" + digest + "/"; }
std::string TokenMapKey(const std::string& digest, std::uint32_t piece) {
  return absl::StrFormat("%s%08x", TokenMapPrefix(digest), piece);
}

std::string MovesPrefix(const TableUid& uid) { return std::string(kMovePrefix) + uid.Hex() + "/"; }
std::string MoveKey(const ShardKey& shard) {
  return absl::StrFormat("%s%08x", MovesPrefix(shard.table), shard.shard.value());
}

std::string TenantKey(const std::string& name) { return std::string(kTenantPrefix) + name; }

std::string DeletedKey(std::uint64_t number) {
  return absl::StrFormat("%s%016x", std::string(kDeletedPrefix), number);
}

std::string EncodeNumber(std::uint64_t number) {
  Encoder encoder(kFormat);
  encoder.Number(number);
  return encoder.Take();
}

std::string Encode(const NodeRecord& node) {
  Encoder encoder(kFormat);
  encoder.Text(node.id.name);
  encoder.Number(node.incarnation.value());
  encoder.Text(node.process_nonce);
  encoder.Text(node.endpoint);
  encoder.Text(node.failure_domain);
  encoder.Text(node.version);
  EncodeTiers(node.tiers, &encoder);
  encoder.Number(node.alive);
  encoder.Signed(node.joined_unix_ms);
  // Left out where there is none: then it is what programs without drains wrote and read.
  if (node.cordoned || node.draining) encoder.Number(node.cordoned + 2 * node.draining);
  return encoder.Take();
}

std::string Encode(const StoredTable& table) {
  const TableRecord& record = table.record;
  Encoder encoder(kFormat);
  encoder.Text(record.uid.Hex());
  encoder.Text(record.name.name);
  encoder.Text(record.name.version);
  EncodeSpec(record.spec, &encoder);
  encoder.Number(record.options.shard_bytes);
  encoder.Number(static_cast<std::uint64_t>(record.options.seal));
  encoder.Number(record.options.replicas);
  encoder.Number(record.options.max_nodes);
  encoder.Number(static_cast<std::uint64_t>(record.source.kind));
  encoder.Text(record.source.checkpoint_dir);
  encoder.Text(record.source.name_map_json);
  encoder.Number(record.source.seed);
  encoder.Number(static_cast<std::uint64_t>(record.state));
  encoder.Text(record.spec_digest);
  encoder.Text(record.content_digest);
  encoder.Text(record.tenant);
  encoder.Text(record.error);
  encoder.Signed(record.created_unix_ms);
  encoder.Text(table.load_request);
  encoder.Text(table.delete_request);
  // Left out where there is none: then it is what programs without aliases wrote and read.
  const std::vector<Tier>& tiers = record.options.tiers;
  if (record.aliases.empty() && tiers.empty()) return encoder.Take();
  encoder.Number(record.aliases.size());
  for (const std::string& alias : record.aliases) encoder.Text(alias);
  // Likewise, for what aliases named before.
  if (table.alias_before.empty() && tiers.empty()) return encoder.Take();
  encoder.Number(table.alias_before.size());
  for (const auto& [alias, version] : table.alias_before) {
    encoder.Text(alias);
    encoder.Text(version);
  }
  // Likewise, for tiers that the table is restricted to.
  if (tiers.empty()) return encoder.Take();
  encoder.Number(tiers.size());
  for (const Tier tier : tiers) encoder.Number(static_cast<std::uint64_t>(tier));
  return encoder.Take();
}

std::string Encode(const TenantRecord& tenant) {
  Encoder encoder(kFormat);
  encoder.Text(tenant.name);
  encoder.Number(tenant.rows_per_second);
  for (const auto* list : {&tenant.granted_tables, &tenant.revoked_clients}) {
    encoder.Number(list->size());
    for (const std::string& one : *list) encoder.Text(one);
  }
  return encoder.Take();
}

std::string Encode(const MoveRecord& move) {
  Encoder encoder(kFormat);
  encoder.Text(move.shard.table.Hex());
  encoder.Number(move.shard.shard.value());
  encoder.Text(move.from.name);
  encoder.Text(move.to.name);
  encoder.Number(static_cast<std::uint64_t>(move.kind));
  encoder.Text(move.reason);
  encoder.Number(move.started);
  encoder.Signed(move.created_unix_ms);
  // Left out where it is dram: then it is what programs without tiers wrote and read.
  if (move.to_tier != Tier::kDram) encoder.Number(static_cast<std::uint64_t>(move.to_tier));
  return encoder.Take();
}

std::string Encode(const MapChunk& chunk) {
  const NodeNames nodes(chunk);
  Encoder encoder(kFormat);
  encoder.Text(chunk.table.Hex());
  encoder.Number(chunk.chunk);
  encoder.Number(nodes.names().size());
  for (const std::string& name : nodes.names()) encoder.Text(name);
  encoder.Number(chunk.shards.size());
  for (const auto& replicas : chunk.shards) {
    encoder.Number(replicas.size());
    for (const MapReplica& replica : replicas) {
      encoder.Number(nodes.IndexOf(replica.node));
      encoder.Number(static_cast<std::uint64_t>(replica.tier) * 8 +
                     static_cast<std::uint64_t>(replica.state));
    }
  }
  return encoder.Take();
}

std::string EncodeSums(std::span<const std::uint64_t> sums) {
  Encoder encoder(kFormat);
  encoder.Number(sums.size());
  for (std::uint64_t sum : sums) encoder.Number(sum);
  return encoder.Take();
}

std::string EncodePiece(std::span<const std::int32_t> piece) {
  std::string bytes(1, static_cast<char>(kFormat));
  for (std::int32_t value : piece) {
    const auto word = static_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(word >> (8 * i)));
  }
  return bytes;
}

absl::StatusOr<std::uint64_t> DecodeNumber(const std::string& key, std::string_view bytes) {
  Decoder decoder(bytes, kFormat);
  const std::uint64_t number = decoder.Number();
  if (!decoder.AtEnd()) return Unreadable(key);
  return number;
}

absl::StatusOr<std::uint64_t> DeletedNumber(const std::string& key) {
  std::uint64_t number = 0;
  const char* const first = key.data() + std::min(key.size(), kDeletedPrefix.size());
  const char* const end = key.data() + key.size();
  const auto [parsed, error] = std::from_chars(first, end, number, 16);
  if (error != std::errc() || parsed != end || DeletedKey(number) != key) return Unreadable(key);
  return number;
}

absl::StatusOr<NodeRecord> DecodeNode(const std::string& key, std::string_view bytes) {
  Decoder decoder(bytes, kFormat);
  NodeRecord node;
  node.id.name = decoder.Text();
  node.incarnation = Incarnation(decoder.Number());
  node.process_nonce = decoder.Text();
  node.endpoint = decoder.Text();
  node.failure_domain = decoder.Text();
  node.version = decoder.Text();
  node.tiers = DecodeTiers(&decoder);
  node.alive = decoder.Number() != 0;
  node.joined_unix_ms = decoder.Signed();
  const std::uint64_t intent = decoder.ok() && !decoder.AtEnd() ? decoder.Number() : 0;
  node.cordoned = (intent & 1) != 0;
  node.draining = (intent & 2) != 0;
  if (!decoder.AtEnd()) return Unreadable(key);
  return node;
}

absl::StatusOr<StoredTable> DecodeTable(const std::string& key, std::string_view bytes) {
  Decoder decoder(bytes, kFormat);
  StoredTable table;
  TableRecord& record = table.record;
  const bool uid_ok = TableUid::Parse(decoder.Text(), &record.uid);
  record.name.name = decoder.Text();
  record.name.version = decoder.Text();
  record.spec = DecodeSpec(&decoder);
  record.options.shard_bytes = decoder.Number();
  record.options.seal = Small<SealKind>(&decoder);
  record.options.replicas = Small<std::uint32_t>(&decoder);
  record.options.max_nodes = Small<std::uint32_t>(&decoder);
  record.source.kind = Small<TableSource::Kind>(&decoder);
  record.source.checkpoint_dir = decoder.Text();
  record.source.name_map_json = decoder.Text();
  record.source.seed = decoder.Number();
  record.state = Small<TableState>(&decoder);
  record.spec_digest = decoder.Text();
  record.content_digest = decoder.Text();
  record.tenant = decoder.Text();
  record.error = decoder.Text();
  record.created_unix_ms = decoder.Signed();
  table.load_request = decoder.Text();
  table.delete_request = decoder.Text();
  if (decoder.ok() && !decoder.AtEnd()) record.aliases.resize(decoder.Count());
  for (std::string& alias : record.aliases) alias = decoder.Text();
  const std::uint64_t before = decoder.ok() && !decoder.AtEnd() ? decoder.Count() : 0;
  for (std::uint64_t i = 0; i < before; ++i) {
    std::string alias = decoder.Text();
    table.alias_before[std::move(alias)] = decoder.Text();
  }
  if (decoder.ok() && !decoder.AtEnd()) record.options.tiers.resize(decoder.Count());
  for (Tier& tier : record.options.tiers) tier = Small<Tier>(&decoder);
  if (!uid_ok || !decoder.AtEnd()) return Unreadable(key);
  if (!record.spec.Validate().ok() || !record.options.Validate().ok()) return Unreadable(key);
  return table;
}

absl::StatusOr<TenantRecord> DecodeTenant(const std::string& key, std::string_view bytes) {
  Decoder decoder(bytes, kFormat);
  TenantRecord tenant;
  tenant.name = decoder.Text();
  tenant.rows_per_second = decoder.Number();
  for (auto* list : {&tenant.granted_tables, &tenant.revoked_clients}) {
    list->resize(decoder.Count());
    for (std::string& one : *list) one = decoder.Text();
  }
  if (!decoder.AtEnd() || TenantKey(tenant.name) != key) return Unreadable(key);
  return tenant;
}

absl::StatusOr<MoveRecord> DecodeMove(const std::string& key, std::string_view bytes) {
  Decoder decoder(bytes, kFormat);
  MoveRecord move;
  const bool uid_ok = TableUid::Parse(decoder.Text(), &move.shard.table);
  move.shard.shard = ShardIndex(Small<std::uint32_t>(&decoder));
  move.from.name = decoder.Text();
  move.to.name = decoder.Text();
  move.kind = Small<MoveKind>(&decoder);
  move.reason = decoder.Text();
  move.started = decoder.Number() != 0;
  move.created_unix_ms = decoder.Signed();
  if (decoder.ok() && !decoder.AtEnd()) move.to_tier = Small<Tier>(&decoder);
  const bool known = move.kind >= MoveKind::kBalance && move.kind <= MoveKind::kManual;
  if (!uid_ok || !known || !decoder.AtEnd()) return Unreadable(key);
  return move;
}

absl::StatusOr<MapChunk> DecodeChunk(const std::string& key, std::string_view bytes) {
  Decoder decoder(bytes, kFormat);
  MapChunk chunk;
  const bool uid_ok = TableUid::Parse(decoder.Text(), &chunk.table);
  chunk.chunk = Small<std::uint32_t>(&decoder);
  std::vector<std::string> names(decoder.Count());
  for (std::string& name : names) name = decoder.Text();
  chunk.shards.resize(decoder.Count());
  for (auto& replicas : chunk.shards) {
    replicas.resize(decoder.Count());
    for (MapReplica& replica : replicas) {
      const std::uint64_t index = decoder.Number();
      if (index >= names.size()) return Unreadable(key);
      const std::uint64_t packed = decoder.Number();
      replica = {NodeId{names[index]}, static_cast<Tier>(packed / 8),
                 static_cast<ReplicaState>(packed % 8)};
    }
  }
  if (!uid_ok || !decoder.AtEnd() || chunk.shards.size() > kChunkShards) return Unreadable(key);
  return chunk;
}

absl::Status DecodeSums(const std::string& key, std::string_view bytes,
                        std::vector<std::uint64_t>* append_to) {
  Decoder decoder(bytes, kFormat);
  const std::uint64_t count = decoder.Count();
  for (std::uint64_t i = 0; i < count; ++i) append_to->push_back(decoder.Number());
  return decoder.AtEnd() ? absl::OkStatus() : Unreadable(key);
}

absl::Status DecodePiece(const std::string& key, std::string_view bytes, TokenMap* append_to) {
  if (bytes.size() % 4 != 1 || bytes[0] != kFormat) return Unreadable(key);
  for (std::size_t at = 1; at < bytes.size(); at += 4) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      word |= std::uint32_t{static_cast<std::uint8_t>(bytes[at + static_cast<std::size_t>(i)])}
              << (8 * i);
    }
    append_to->push_back(static_cast<std::int32_t>(word));
  }
  return absl::OkStatus();
}

}  // namespace engram::placement
