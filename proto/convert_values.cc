// Ids, enums, statuses, table specs and records.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/bounds.h"
#include "proto/convert.h"

namespace engram::wire {
namespace {

absl::Status Unknown(const char* what, int value) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " number ", value, " is not known to this version; upgrade this program"));
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::string_view message = status.message();
  return {static_cast<grpc::StatusCode>(status.code()),
          std::string(message.data(), message.size())};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

v1::Outcome ToWire(const absl::Status& status) {
  v1::Outcome out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  return out;
}

absl::Status FromWire(const v1::Outcome& outcome) {
  return absl::Status(static_cast<absl::StatusCode>(outcome.code()), outcome.message());
}

std::string ToWire(const TableUid& uid) {
  return std::string(reinterpret_cast<const char*>(uid.bytes.data()), uid.bytes.size());
}

absl::StatusOr<TableUid> TableUidFromWire(std::string_view bytes) {
  TableUid uid;
  if (bytes.size() != uid.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table uid has ", bytes.size(), " bytes; it must have 16"));
  }
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(uid.bytes.data()));
  return uid;
}

// The enums of the domain and of the wire share their numbers; 0 is "unspecified" on the wire only.
v1::Tier ToWire(Tier tier) { return static_cast<v1::Tier>(tier); }
v1::ReplicaState ToWire(ReplicaState state) { return static_cast<v1::ReplicaState>(state); }
v1::TableState ToWire(TableState state) { return static_cast<v1::TableState>(state); }
v1::FabricKind ToWire(FabricKind kind) { return static_cast<v1::FabricKind>(kind); }

absl::StatusOr<Tier> FromWire(v1::Tier tier) {
  if (tier < v1::TIER_DRAM || tier > v1::TIER_NVME) return Unknown("tier", tier);
  return static_cast<Tier>(tier);
}

absl::StatusOr<ReplicaState> FromWire(v1::ReplicaState state) {
  if (state < v1::REPLICA_STATE_LOADING || state > v1::REPLICA_STATE_RETIRED) {
    return Unknown("replica state", state);
  }
  return static_cast<ReplicaState>(state);
}

absl::StatusOr<TableState> FromWire(v1::TableState state) {
  if (state < v1::TABLE_STATE_LOADING || state > v1::TABLE_STATE_FAILED) {
    return Unknown("table state", state);
  }
  return static_cast<TableState>(state);
}

absl::StatusOr<FabricKind> FromWire(v1::FabricKind kind) {
  if (kind < v1::FABRIC_KIND_LOOPBACK || kind > v1::FABRIC_KIND_UCX) return Unknown("fabric", kind);
  return static_cast<FabricKind>(kind);
}

v1::TableSpec ToWire(const TableSpec& spec) {
  v1::TableSpec out;
  for (const Column& column : spec.columns) {
    auto* to = out.add_columns();
    to->set_layer(column.layer);
    to->set_order(column.order);
    to->set_head(column.head);
    to->set_rows(column.rows);
  }
  for (const Plane& plane : spec.planes) {
    auto* to = out.add_planes();
    to->set_name(plane.name);
    to->set_dtype(static_cast<v1::DType>(plane.dtype));
    to->set_bytes(plane.bytes);
  }
  const AddressingSpec& from = spec.addressing;
  auto* to = out.mutable_addressing();
  to->set_function(from.function);
  for (std::uint32_t layer : from.layers) to->add_layers(layer);
  to->set_max_order(from.max_order);
  to->set_heads(from.heads);
  to->set_base_rows(from.base_rows);
  to->set_base_seed(from.base_seed);
  to->set_pad_token(from.pad_token);
  to->set_raw_vocab(from.raw_vocab);
  to->set_compressed_vocab(from.compressed_vocab);
  for (const auto& multipliers : from.multipliers) {
    auto* layer = to->add_multipliers();
    for (std::int64_t value : multipliers) layer->add_values(value);
  }
  to->set_token_map_digest(from.token_map_digest);
  return out;
}

absl::StatusOr<TableSpec> FromWire(const v1::TableSpec& spec) {
  TableSpec out;
  for (const auto& column : spec.columns()) {
    out.columns.push_back({column.layer(), column.order(), column.head(), column.rows()});
  }
  for (const auto& plane : spec.planes()) {
    if (plane.dtype() < v1::D_TYPE_E4M3 || plane.dtype() > v1::D_TYPE_BYTES) {
      return Unknown("dtype", plane.dtype());
    }
    out.planes.push_back({plane.name(), static_cast<DType>(plane.dtype()), plane.bytes()});
  }
  const auto& from = spec.addressing();
  AddressingSpec& to = out.addressing;
  to.function = from.function();
  to.layers.assign(from.layers().begin(), from.layers().end());
  to.max_order = from.max_order();
  to.heads = from.heads();
  to.base_rows = from.base_rows();
  to.base_seed = from.base_seed();
  to.pad_token = from.pad_token();
  to.raw_vocab = from.raw_vocab();
  to.compressed_vocab = from.compressed_vocab();
  for (const auto& layer : from.multipliers()) {
    to.multipliers.emplace_back(layer.values().begin(), layer.values().end());
  }
  to.token_map_digest = from.token_map_digest();
  if (absl::Status valid = out.Validate(); !valid.ok()) return valid;
  return out;
}

v1::TableOptions ToWire(const TableOptions& options) {
  v1::TableOptions out;
  out.set_shard_bytes(options.shard_bytes);
  out.set_seal(options.seal == SealKind::kNone ? v1::SEAL_KIND_NONE : v1::SEAL_KIND_CRC32C);
  out.set_replicas(options.replicas);
  out.set_max_nodes(options.max_nodes);
  for (Tier tier : options.tiers) out.add_tiers(ToWire(tier));
  return out;
}

absl::StatusOr<TableOptions> FromWire(const v1::TableOptions& options) {
  TableOptions out;
  if (options.shard_bytes() != 0) out.shard_bytes = options.shard_bytes();
  switch (options.seal()) {
    case v1::SEAL_KIND_UNSPECIFIED:
    case v1::SEAL_KIND_CRC32C: out.seal = SealKind::kCrc32c; break;
    case v1::SEAL_KIND_NONE: out.seal = SealKind::kNone; break;
    default: return Unknown("seal", options.seal());
  }
  if (options.replicas() != 0) out.replicas = options.replicas();
  out.max_nodes = options.max_nodes();
  if (auto ok = CheckCount("TableOptions.tiers", options.tiers_size(), 8); !ok.ok()) return ok;
  for (const int value : options.tiers()) {
    const absl::StatusOr<Tier> tier = FromWire(static_cast<v1::Tier>(value));
    if (!tier.ok()) return tier.status();
    out.tiers.push_back(*tier);
  }
  if (absl::Status valid = out.Validate(); !valid.ok()) return valid;
  return out;
}

v1::TableSource ToWire(const TableSource& source) {
  v1::TableSource out;
  if (source.kind == TableSource::Kind::kCheckpoint) {
    out.mutable_checkpoint()->set_directory(source.checkpoint_dir);
    out.mutable_checkpoint()->set_name_map_json(source.name_map_json);
  } else {
    out.mutable_synthetic()->set_seed(source.seed);
  }
  return out;
}

absl::StatusOr<TableSource> FromWire(const v1::TableSource& source) {
  TableSource out;
  switch (source.source_case()) {
    case v1::TableSource::kCheckpoint:
      out.kind = TableSource::Kind::kCheckpoint;
      out.checkpoint_dir = source.checkpoint().directory();
      out.name_map_json = source.checkpoint().name_map_json();
      if (out.checkpoint_dir.empty() || out.checkpoint_dir[0] != '/') {
        return absl::InvalidArgumentError(
            absl::StrCat("checkpoint directory \"", out.checkpoint_dir,
                         "\" is not an absolute path; give the path as the pool nodes see it"));
      }
      return out;
    case v1::TableSource::kSynthetic:
      out.kind = TableSource::Kind::kSynthetic;
      out.seed = source.synthetic().seed();
      return out;
    case v1::TableSource::SOURCE_NOT_SET: break;
  }
  return absl::InvalidArgumentError(
      "table source is empty; give a checkpoint directory or a synthetic spec");
}

v1::Table ToWire(const TableRecord& table) {
  v1::Table out;
  out.set_uid(ToWire(table.uid));
  out.set_name(table.name.name);
  out.set_version(table.name.version);
  *out.mutable_spec() = ToWire(table.spec);
  *out.mutable_options() = ToWire(table.options);
  *out.mutable_source() = ToWire(table.source);
  out.set_state(ToWire(table.state));
  out.set_spec_digest(table.spec_digest);
  out.set_content_digest(table.content_digest);
  out.set_tenant(table.tenant);
  out.set_error(table.error);
  out.set_created_unix_ms(table.created_unix_ms);
  out.mutable_aliases()->Assign(table.aliases.begin(), table.aliases.end());
  return out;
}

absl::StatusOr<TableRecord> FromWire(const v1::Table& table) {
  TableRecord out;
  auto uid = TableUidFromWire(table.uid());
  if (!uid.ok()) return uid.status();
  out.uid = *uid;
  auto name = TableName::Parse(table.name() + "@" + table.version());
  if (!name.ok()) return name.status();
  out.name = *std::move(name);
  auto spec = FromWire(table.spec());
  if (!spec.ok()) return spec.status();
  out.spec = *std::move(spec);
  auto options = FromWire(table.options());
  if (!options.ok()) return options.status();
  out.options = *options;
  auto source = FromWire(table.source());
  if (!source.ok()) return source.status();
  out.source = *std::move(source);
  auto state = FromWire(table.state());
  if (!state.ok()) return state.status();
  out.state = *state;
  out.spec_digest = table.spec_digest();
  out.content_digest = table.content_digest();
  out.tenant = table.tenant();
  out.error = table.error();
  out.created_unix_ms = table.created_unix_ms();
  out.aliases.assign(table.aliases().begin(), table.aliases().end());
  return out;
}

v1::Successor ToWire(const Successor& successor) {
  v1::Successor out;
  out.set_node(successor.node.name);
  out.set_incarnation(successor.incarnation.value());
  out.set_endpoint(successor.endpoint);
  return out;
}

Successor FromWire(const v1::Successor& successor) {
  return {NodeId{successor.node()}, Incarnation(successor.incarnation()), successor.endpoint()};
}

std::string ToWire(const TokenMap& map) {
  std::string bytes;
  bytes.reserve(map.size() * 4);
  for (std::int32_t id : map) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(static_cast<std::uint32_t>(id) >> shift));
    }
  }
  return bytes;
}

absl::StatusOr<TokenMap> TokenMapFromWire(std::string_view bytes) {
  if (bytes.size() % 4 != 0 || bytes.size() > static_cast<std::size_t>(kMaxTokenMapBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a token map has ", bytes.size(), " bytes; it must be whole int32 values, at most ",
        kMaxTokenMapBytes, " bytes"));
  }
  TokenMap map(bytes.size() / 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
    map[i / 4] =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(map[i / 4]) | byte << (i % 4 * 8));
  }
  return map;
}

}  // namespace engram::wire
