#include "client/ctl/listing.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/documents.h"
#include "client/ctl/units.h"
#include "engram/settings/units.h"
#include "proto/convert.h"

namespace engram::ctl {
namespace {

template <class Value>
std::string Word(const absl::StatusOr<Value>& value) {
  return value.ok() ? std::string(Name(*value)) : "?";
}

std::string Fraction(std::uint64_t part, std::uint64_t whole) {
  return absl::StrCat(part, "/", whole);
}

std::string LayersOf(const v1::Table& table) {
  return absl::StrJoin(table.spec().addressing().layers(), ",");
}

// NAME@VERSION, or one of its aliases.
bool IsNamed(const v1::Table& table, const std::string& name) {
  const auto is = [&](const std::string& alias) { return table.name() + "@" + alias == name; };
  return FullName(table) == name || std::any_of(table.aliases().begin(), table.aliases().end(), is);
}

// What is said of each table, by uid, beside its shards.
struct Owner {
  std::string name;
  std::int64_t created_unix_ms = 0;
};

std::map<std::string, Owner> Owners(const v1::ListTablesResponse& tables) {
  std::map<std::string, Owner> owners;
  for (const auto& entry : tables.tables()) {
    owners[entry.table().uid()] = {FullName(entry.table()), entry.table().created_unix_ms()};
  }
  return owners;
}

// A table that was deleted between the two calls is named by its uid.
Owner OwnerOf(const std::map<std::string, Owner>& owners,
              const v1::ListShardsResponse::Shard& shard) {
  const auto found = owners.find(shard.table());
  return found == owners.end() ? Owner{HexUid(shard.table()), 0} : found->second;
}

// "1.0GiB/2.0GiB", or of each tier: "dram 1.0GiB/2.0GiB, nvme 0B/1.0TiB"; "!" marks one in trouble.
std::string UsedOf(const v1::Node& node) {
  std::vector<std::string> tiers;
  const bool several = node.tiers_size() > 1;
  for (const auto& tier : node.tiers()) {
    tiers.push_back(
        absl::StrCat(several ? TierWord(tier.tier()) + " " : "", RoundSize(tier.allocated_bytes()),
                     "/", RoundSize(tier.capacity_bytes()), tier.trouble().empty() ? "" : "!"));
  }
  return tiers.empty() ? "0B/0B" : absl::StrJoin(tiers, ", ");
}

// "2", or "2 (6 missing)": of all shards together.
std::string CopiesOf(const v1::ListTablesResponse::Entry& entry) {
  const std::uint64_t missing = entry.copies_missing();
  return absl::StrCat(entry.table().options().replicas(),
                      missing == 0 ? "" : absl::StrCat(" (", missing, " missing)"));
}

std::string NodesOf(const v1::ListShardsResponse::Shard& shard) {
  std::vector<std::string> nodes;
  for (const auto& replica : shard.replicas()) {
    const bool serving = replica.state() == v1::REPLICA_STATE_SERVING;
    nodes.push_back(serving ? replica.node()
                            : absl::StrCat(replica.node(), "(", StateWord(replica.state()), ")"));
  }
  return absl::StrJoin(nodes, ",");
}

// Of an answer to GetTable or ListTables. Controllers before `copies_missing` say 0.
template <class Answer>
std::string StateOf(const Answer& answer) {
  const bool short_of_copies =
      answer.shards_serving() < answer.shards_total() || answer.copies_missing() > 0;
  const bool ready = answer.table().state() == v1::TABLE_STATE_READY;
  return ready && short_of_copies ? "Degraded" : StateWord(answer.table().state());
}

}  // namespace

std::string StateWord(v1::TableState state) { return Word(wire::FromWire(state)); }
std::string StateWord(const v1::GetTableResponse& table) { return StateOf(table); }
std::string StateWord(const v1::ListTablesResponse::Entry& table) { return StateOf(table); }
std::string MissingCopies(const v1::GetTableResponse& table) {
  if (table.copies_missing() == 0) return "";
  const std::uint64_t copies = table.shards_total() * table.table().options().replicas();
  return absl::StrCat(table.copies_missing(), " of ", copies, " copies are missing",
                      table.note().empty() ? "" : ": ", table.note());
}
std::string StateWord(v1::ReplicaState state) { return Word(wire::FromWire(state)); }
std::string StateWord(v1::MoveState state) {
  switch (state) {
    case v1::MOVE_STATE_WAITING: return "Waiting";
    case v1::MOVE_STATE_PULLING: return "Pulling";
    case v1::MOVE_STATE_SERVING: return "Serving";
    case v1::MOVE_STATE_RETIRING: return "Retiring";
    default: return "?";
  }
}
std::string TierWord(v1::Tier tier) { return Word(wire::FromWire(tier)); }
std::string AtTier(const std::string& node, v1::Tier tier) {
  const bool dram = tier == v1::TIER_DRAM || tier == v1::TIER_UNSPECIFIED;
  return node.empty() || dram ? node : absl::StrCat(node, "/", TierWord(tier));
}
std::string FabricWord(v1::FabricKind kind) { return Word(wire::FromWire(kind)); }

std::string FullName(const v1::Table& table) { return table.name() + "@" + table.version(); }
std::string HexUid(const std::string& bytes) { return absl::BytesToHexString(bytes); }

std::uint64_t RowsOf(const v1::Table& table) {
  std::uint64_t rows = 0;
  for (const auto& column : table.spec().columns()) rows += column.rows();
  return rows;
}

std::uint64_t RowBytesOf(const v1::Table& table) {
  std::uint64_t bytes = 0;
  for (const auto& plane : table.spec().planes()) bytes += plane.bytes();
  return bytes;
}

std::uint64_t StoredBytes(const v1::Table& table) {
  const bool sealed = table.options().seal() == v1::SEAL_KIND_CRC32C;
  return RowsOf(table) * (RowBytesOf(table) + (sealed ? kSealBytes : 0));
}

Listing ListTables(const v1::ListTablesResponse& tables, const std::string& only,
                   std::int64_t now_unix_ms) {
  Listing listing{TextTable({{"NAME"},
                             {"STATE"},
                             {"SHARDS", false, true},
                             {"SIZE", false, true},
                             {"COPIES", false, true},
                             {"ROWS", true, true},
                             {"ROW-BYTES", true, true},
                             {"LAYERS", true},
                             {"SEAL", true},
                             {"SHARD-BYTES", true, true},
                             {"UID", true},
                             {"CONTENT-DIGEST", true},
                             {"ALIASES", true},
                             {"AGE", false, true}}),
                  {},
                  ""};
  v1::ListTablesResponse shown;
  for (const auto& entry : tables.tables()) {
    const v1::Table& table = entry.table();
    if (!only.empty() && !IsNamed(table, only)) continue;
    *shown.add_tables() = entry;
    listing.names.push_back("table/" + FullName(table));
    const bool known = table.spec().columns_size() > 0;
    const bool sealed = table.options().seal() == v1::SEAL_KIND_CRC32C;
    listing.table.Add(
        {FullName(table), StateWord(entry), Fraction(entry.shards_serving(), entry.shards_total()),
         known ? RoundSize(StoredBytes(table)) : "", CopiesOf(entry),
         known ? absl::StrCat(RowsOf(table)) : "", known ? absl::StrCat(RowBytesOf(table)) : "",
         LayersOf(table), sealed ? "crc32c" : "none", FormatSize(table.options().shard_bytes()),
         HexUid(table.uid()), table.content_digest().substr(0, 16),
         absl::StrJoin(table.aliases(), ","), HumanAge(table.created_unix_ms(), now_unix_ms)});
  }
  listing.json = only.empty() || shown.tables_size() == 0 ? ToJson(shown) : ToJson(shown.tables(0));
  return listing;
}

Listing ListNodes(const v1::ListNodesResponse& nodes, const std::string& only,
                  std::int64_t now_unix_ms) {
  Listing listing{TextTable({{"NAME"},
                             {"STATE"},
                             {"ENDPOINT"},
                             {"USED"},
                             {"REPLICAS", false, true},
                             {"SESSIONS", false, true},
                             {"LOADING", true, true},
                             {"RETIRING", true, true},
                             {"DOMAIN", true},
                             {"INCARNATION", true, true},
                             {"VERSION", true},
                             {"AGE", false, true}}),
                  {},
                  ""};
  v1::ListNodesResponse shown;
  for (const v1::Node& node : nodes.nodes()) {
    if (!only.empty() && node.node() != only) continue;
    *shown.add_nodes() = node;
    listing.names.push_back("node/" + node.node());
    listing.table.Add({node.node(), StateWord(node), node.endpoint(), UsedOf(node),
                       absl::StrCat(node.replicas_serving()), absl::StrCat(node.sessions()),
                       absl::StrCat(node.replicas_loading()),
                       absl::StrCat(node.retirements_pending()), node.failure_domain(),
                       absl::StrCat(node.incarnation()), node.version(),
                       HumanAge(node.joined_unix_ms(), now_unix_ms)});
  }
  listing.json = only.empty() || shown.nodes_size() == 0 ? ToJson(shown) : ToJson(shown.nodes(0));
  return listing;
}

std::string StateWord(const v1::Node& node) {
  const std::uint64_t held =
      node.replicas_serving() + node.replicas_loading() + node.replicas_draining();
  if (!node.alive()) return node.draining() && held == 0 ? "Stopped" : "Dead";
  if (node.draining()) return held > 0 ? "Draining" : "Drained";
  return node.cordoned() ? "Cordoned" : "Alive";
}

Listing ListMoves(const v1::ListMovesResponse& moves, std::int64_t now_unix_ms) {
  Listing listing{TextTable({{"NAME"},
                             {"FROM"},
                             {"TO"},
                             {"STATE"},
                             {"SIZE", false, true},
                             {"REASON"},
                             {"NOTE", true},
                             {"AGE", false, true}}),
                  {},
                  ToJson(moves)};
  for (const v1::Move& move : moves.moves()) {
    const std::string name = absl::StrCat(move.table_name(), "/", move.shard());
    listing.names.push_back("move/" + name);
    const std::string from = AtTier(move.from(), move.from_tier());
    const std::string to = AtTier(move.to(), move.to_tier());
    listing.table.Add({name, from.empty() ? "-" : from, to.empty() ? "-" : to,
                       StateWord(move.state()), RoundSize(move.bytes()), move.reason(), move.note(),
                       HumanAge(move.created_unix_ms(), now_unix_ms)});
  }
  return listing;
}

Listing ListSessions(const v1::ListSessionsResponse& sessions, std::int64_t now_unix_ms) {
  Listing listing{TextTable({{"NAME"}, {"TENANT"}, {"TABLE"}, {"OPENED-AS"}, {"AGE", false, true}}),
                  {},
                  ToJson(sessions)};
  for (const v1::ListSessionsResponse::Session& session : sessions.sessions()) {
    listing.names.push_back("session/" + session.client());
    for (const v1::ListSessionsResponse::Held& held : session.held()) {
      listing.table.Add({session.client(), session.tenant(), held.table_name(), held.asked(),
                         HumanAge(session.last_report_unix_ms(), now_unix_ms)});
    }
  }
  return listing;
}

Listing ListTenants(const v1::ListTenantsResponse& tenants, const std::string& only) {
  Listing listing{TextTable({{"NAME"},
                             {"TABLES", false, true},
                             {"CLIENTS", false, true},
                             {"ROWS/S", false, true},
                             {"BUDGET", false, true},
                             {"WAITED", false, true},
                             {"GRANTED", true},
                             {"REVOKED"}}),
                  {},
                  ToJson(tenants)};
  for (const v1::Tenant& tenant : tenants.tenants()) {
    if (!only.empty() && tenant.name() != only) continue;
    listing.names.push_back("tenant/" + tenant.name());
    listing.table.Add(
        {tenant.name(), absl::StrCat(tenant.tables()), absl::StrCat(tenant.clients()),
         absl::StrCat(static_cast<std::uint64_t>(tenant.rows_per_second())),
         tenant.budget_rows_per_second() == 0 ? "-" : absl::StrCat(tenant.budget_rows_per_second()),
         absl::StrCat(tenant.throttled_messages()), absl::StrJoin(tenant.granted_tables(), ","),
         tenant.revoked_clients().empty() ? "-" : absl::StrJoin(tenant.revoked_clients(), ",")});
  }
  return listing;
}

Listing ListAliases(const v1::ListTablesResponse& tables, const v1::ListSessionsResponse& sessions,
                    const std::string& only, std::int64_t now_unix_ms) {
  Listing listing{
      TextTable(
          {{"NAME"}, {"VERSION"}, {"ADOPTED", false, true}, {"WAITING-FOR"}, {"AGE", false, true}}),
      {},
      ""};
  v1::ListTablesResponse shown;
  for (const auto& entry : tables.tables()) {
    for (const std::string& alias : entry.table().aliases()) {
      const std::string name = entry.table().name() + "@" + alias;
      if (!only.empty() && name != only) continue;
      std::size_t all = 0, adopted = 0;
      std::string behind;
      for (const auto& session : sessions.sessions()) {
        for (const auto& held : session.held()) {
          if (held.asked() != name) continue;
          ++all;
          if (held.table() == entry.table().uid()) {
            ++adopted;
          } else {
            absl::StrAppend(&behind, behind.empty() ? "" : ",", session.client());
          }
        }
      }
      listing.names.push_back("alias/" + name);
      listing.table.Add({name, entry.table().version(), absl::StrCat(adopted, "/", all),
                         behind.empty() ? "-" : behind,
                         HumanAge(entry.table().created_unix_ms(), now_unix_ms)});
      *shown.add_tables() = entry;
    }
  }
  listing.json = ToJson(shown);
  return listing;
}

Listing ListShards(const Shards& shards, const v1::ListTablesResponse& tables,
                   std::int64_t now_unix_ms) {
  Listing listing{TextTable({{"NAME"},
                             {"COLUMN", false, true},
                             {"FIRST-ROW", false, true},
                             {"ROWS", false, true},
                             {"SIZE", false, true},
                             {"NODES"},
                             {"AGE", false, true}}),
                  {},
                  ""};
  const std::map<std::string, Owner> owners = Owners(tables);
  v1::ListShardsResponse shown;
  for (const auto& shard : shards) {
    *shown.add_shards() = shard;
    const Owner owner = OwnerOf(owners, shard);
    const std::string name = absl::StrCat(owner.name, "/", shard.shard());
    listing.names.push_back("shard/" + name);
    listing.table.Add({name, absl::StrCat(shard.column()), absl::StrCat(shard.first_row()),
                       absl::StrCat(shard.rows()), RoundSize(shard.stored_bytes()), NodesOf(shard),
                       HumanAge(owner.created_unix_ms, now_unix_ms)});
  }
  listing.json = ToJson(shown);
  return listing;
}

Listing ListReplicas(const Shards& shards, const v1::ListTablesResponse& tables,
                     std::int64_t now_unix_ms) {
  Listing listing{
      TextTable(
          {{"NAME"}, {"NODE"}, {"TIER"}, {"STATE"}, {"SIZE", false, true}, {"AGE", false, true}}),
      {},
      ""};
  const std::map<std::string, Owner> owners = Owners(tables);
  nlohmann::ordered_json json = {{"replicas", nlohmann::ordered_json::array()}};
  for (const auto& shard : shards) {
    const Owner owner = OwnerOf(owners, shard);
    for (const v1::MapReplica& replica : shard.replicas()) {
      const std::string name = absl::StrCat(owner.name, "/", shard.shard());
      listing.names.push_back(absl::StrCat("replica/", name, "/", replica.node()));
      listing.table.Add({name, replica.node(), TierWord(replica.tier()), StateWord(replica.state()),
                         RoundSize(shard.stored_bytes()),
                         HumanAge(owner.created_unix_ms, now_unix_ms)});
      json["replicas"].push_back({{"table", owner.name},
                                  {"shard", shard.shard()},
                                  {"node", replica.node()},
                                  {"tier", v1::Tier_Name(replica.tier())},
                                  {"state", v1::ReplicaState_Name(replica.state())},
                                  {"storedBytes", absl::StrCat(shard.stored_bytes())}});
    }
  }
  listing.json = json.dump();
  return listing;
}

}  // namespace engram::ctl
