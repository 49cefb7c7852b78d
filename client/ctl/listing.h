// What `get` shows: the same objects as a table, as names and as a JSON document, built from the
// controller's answers. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/printer.h"
#include "engram/v1/placement.pb.h"

namespace engram::ctl {

struct Listing {
  TextTable table;
  std::vector<std::string> names;  // "table/small@1"
  std::string json;
};

using Shards = std::vector<v1::ListShardsResponse::Shard>;

// An empty `only` lists all.
Listing ListTables(const v1::ListTablesResponse& tables, const std::string& only,
                   std::int64_t now_unix_ms);
Listing ListNodes(const v1::ListNodesResponse& nodes, const std::string& only,
                  std::int64_t now_unix_ms);
Listing ListShards(const Shards& shards, const v1::ListTablesResponse& tables,
                   std::int64_t now_unix_ms);
Listing ListReplicas(const Shards& shards, const v1::ListTablesResponse& tables,
                     std::int64_t now_unix_ms);

// Moves that are stored and not ended: what is left of plans.
Listing ListMoves(const v1::ListMovesResponse& moves, std::int64_t now_unix_ms);

Listing ListSessions(const v1::ListSessionsResponse& sessions, std::int64_t now_unix_ms);
Listing ListTenants(const v1::ListTenantsResponse& tenants, const std::string& only);
// What each alias names, and how many of those who opened it hold that version.
Listing ListAliases(const v1::ListTablesResponse& tables, const v1::ListSessionsResponse& sessions,
                    const std::string& only, std::int64_t now_unix_ms);

// "Alive", "Cordoned", "Draining", "Drained", "Dead"; "Stopped": dead, and drained before.
std::string StateWord(const v1::Node& node);
// "Ready", "Serving", "dram", ... of wire values; "?" for one that this program does not know.
std::string StateWord(v1::TableState state);
// The same, but "Degraded" for a Ready table that lacks copies on nodes that are alive.
std::string StateWord(const v1::GetTableResponse& table);
std::string StateWord(const v1::ListTablesResponse::Entry& table);
// "6 of 12 copies are missing: why they have no place"; "" when none is.
std::string MissingCopies(const v1::GetTableResponse& table);
std::string StateWord(v1::ReplicaState state);
std::string StateWord(v1::MoveState state);
std::string TierWord(v1::Tier tier);
// "node-0" for dram, "node-0/cxl" for other tiers; "" for no node.
std::string AtTier(const std::string& node, v1::Tier tier);
std::string FabricWord(v1::FabricKind kind);

std::string FullName(const v1::Table& table);
std::string HexUid(const std::string& bytes);
// Bytes of the table as it lies in memory once (rows and seals); 0 while its geometry is not known.
std::uint64_t StoredBytes(const v1::Table& table);
std::uint64_t RowsOf(const v1::Table& table);
std::uint64_t RowBytesOf(const v1::Table& table);

}  // namespace engram::ctl
