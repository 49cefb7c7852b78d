// Stored form of nodes, tables and map chunks, and the keys they stand under:
//
//   meta/epoch, meta/fencing_token, meta/incarnation: numbers
//   node/NODE                 NodeRecord
//   table/UID                 StoredTable; without it the next two are garbage
//   chunk/UID/CHUNK           replicas of 1,024 shards (CHUNK: 8 hex digits)
//   sums/UID/CHUNK            sums of 1,024 shards
//   move/UID/SHARD            MoveRecord (SHARD: 8 hex digits)
//   tenant/NAME               TenantRecord
//   token_map/DIGEST/PIECE    little-endian int32, at most 768 KiB a piece
//   deleted/NUMBER            StoredTable that is gone (16 hex digits, growing)
//
// Every value begins with a format byte; another one is DataLoss naming the key. Pure functions:
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement/state/cluster_state.h"

namespace engram::placement {

inline constexpr std::string_view kEpochKey = "meta/epoch";
inline constexpr std::string_view kFencingKey = "meta/fencing_token";
inline constexpr std::string_view kIncarnationKey = "meta/incarnation";
inline constexpr std::string_view kDeletedPrefix = "deleted/";
inline constexpr std::string_view kMovePrefix = "move/";
inline constexpr std::string_view kTenantPrefix = "tenant/";
inline constexpr std::size_t kTokenMapPieceEntries = 192 << 10;

std::string NodeKey(const NodeId& id);
std::string TableKey(const TableUid& uid);
std::string ChunkPrefix(const TableUid& uid);
std::string ChunkKey(const TableUid& uid, std::uint32_t chunk);
std::string SumsPrefix(const TableUid& uid);
std::string SumsKey(const TableUid& uid, std::uint32_t chunk);
std::string MovesPrefix(const TableUid& uid);
std::string MoveKey(const ShardKey& shard);
std::string TenantKey(const std::string& name);
std::string DeletedKey(std::uint64_t number);
std::string TokenMapPrefix(const std::string& digest);
std::string TokenMapKey(const std::string& digest, std::uint32_t piece);

std::string EncodeNumber(std::uint64_t number);
std::string Encode(const NodeRecord& node);
std::string Encode(const StoredTable& table);
std::string Encode(const MoveRecord& move);
std::string Encode(const TenantRecord& tenant);
std::string Encode(const MapChunk& chunk);
std::string EncodeSums(std::span<const std::uint64_t> sums);
std::string EncodePiece(std::span<const std::int32_t> piece);

// DataLoss names `key`.
absl::StatusOr<std::uint64_t> DeletedNumber(const std::string& key);
absl::StatusOr<std::uint64_t> DecodeNumber(const std::string& key, std::string_view bytes);
absl::StatusOr<NodeRecord> DecodeNode(const std::string& key, std::string_view bytes);
absl::StatusOr<StoredTable> DecodeTable(const std::string& key, std::string_view bytes);
absl::StatusOr<TenantRecord> DecodeTenant(const std::string& key, std::string_view bytes);
absl::StatusOr<MoveRecord> DecodeMove(const std::string& key, std::string_view bytes);
absl::StatusOr<MapChunk> DecodeChunk(const std::string& key, std::string_view bytes);
absl::Status DecodeSums(const std::string& key, std::string_view bytes,
                        std::vector<std::uint64_t>* append_to);
absl::Status DecodePiece(const std::string& key, std::string_view bytes, TokenMap* append_to);

}  // namespace engram::placement
