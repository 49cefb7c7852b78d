// What a table is, before any of its bytes are loaded: columns, row format, addressing parameters.
//
// A TableSpec is a value. It never changes once a table carries it, and its digest is the same in
// every program and on every machine. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/tier.h"

namespace engram {

// Element types that a plane may hold. The numbers are part of the spec digest: never renumber.
enum class DType : std::uint8_t {
  kE4M3 = 1,     // FP8 value, 1 byte
  kUE8M0 = 2,    // power-of-two scale, 1 byte
  kBF16 = 3,     // 2 bytes
  kNVFP4 = 4,    // two 4-bit values a byte
  kF8Scale = 5,  // NVFP4 block scale (E4M3), 1 byte
  kBytes = 6,    // opaque
};
std::string_view Name(DType dtype);
absl::StatusOr<DType> ParseDType(std::string_view name);

// A contiguous part of a row with one element type, e.g. 256 B of values, then 8 B of scales.
struct Plane {
  std::string name;
  DType dtype = DType::kBytes;
  std::uint32_t bytes = 0;
  friend bool operator==(const Plane&, const Plane&) = default;
};

// One (layer, order, head): a contiguous range of `rows` rows. Columns are listed in row order.
struct Column {
  std::uint32_t layer = 0;
  std::uint32_t order = 0;
  std::uint32_t head = 0;
  std::uint64_t rows = 0;
  friend bool operator==(const Column&, const Column&) = default;
};

// Parameters of one named address function over this table (ENGRAM section 8).
// `multipliers[i]` belongs to `layers[i]`; index k of it is the look-back distance.
struct AddressingSpec {
  std::string function;  // "deepseek-v4.1", ...
  std::vector<std::uint32_t> layers;
  std::uint32_t max_order = 0;
  std::uint32_t heads = 0;
  std::uint64_t base_rows = 0;  // `engram_vocab_size`
  std::uint64_t base_seed = 0;
  std::int64_t pad_token = 0;  // raw id
  std::uint64_t raw_vocab = 0;
  std::uint64_t compressed_vocab = 0;
  std::vector<std::vector<std::int64_t>> multipliers;
  std::string
      token_map_digest;  // SHA-256, hex, of the little-endian int32 map; empty = no compression
  friend bool operator==(const AddressingSpec&, const AddressingSpec&) = default;
};

struct TableSpec {
  std::vector<Column> columns;
  std::vector<Plane> planes;  // stored in this order inside a packed row
  AddressingSpec addressing;

  std::uint32_t RowBytes() const;
  std::uint64_t Rows() const;
  // Rows of the layers before `layer` / of `layer`. REQUIRES: `layer` is one of addressing.layers.
  std::uint64_t LayerFirstRow(std::uint32_t layer) const;
  std::uint64_t LayerRows(std::uint32_t layer) const;
  std::uint32_t ColumnsPerLayer() const;

  // InvalidArgument names the field, the value and the limit.
  absl::Status Validate() const;
  // SHA-256, hex, over a canonical encoding of columns, planes and addressing: equal specs, equal
  // digest.
  std::string Digest() const;

  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

enum class SealKind : std::uint8_t { kNone = 0, kCrc32c = 1 };

inline constexpr std::uint64_t kBlockRows = 256;
inline constexpr std::uint64_t kMaxColumnRows = std::uint64_t{1} << 33;
inline constexpr std::uint32_t kSealBytes = 8;
inline constexpr std::uint64_t kMinShardBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxShardBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kDefaultShardBytes = std::uint64_t{64} << 20;

// How a table is stored. Chosen per load; never part of a digest.
struct TableOptions {
  std::uint64_t shard_bytes = kDefaultShardBytes;
  SealKind seal = SealKind::kCrc32c;
  std::uint32_t replicas = 1;
  std::uint32_t max_nodes = 0;   // 0 = as few as capacity and replication need
  std::vector<Tier> tiers = {};  // where its replicas may lie, fastest first; empty = everywhere
  absl::Status Validate() const;
  bool MayUse(Tier tier) const;
  friend bool operator==(const TableOptions&, const TableOptions&) = default;
};

// "name@version"; both parts are [a-z0-9][a-z0-9._-]{0,62}.
struct TableName {
  std::string name;
  std::string version;
  std::string Full() const { return name + "@" + version; }
  static absl::StatusOr<TableName> Parse(std::string_view text);
  friend auto operator<=>(const TableName&, const TableName&) = default;
};

enum class TableState : std::uint8_t { kLoading = 1, kReady = 2, kDeleting = 3, kFailed = 4 };
std::string_view Name(TableState state);

// Where a node takes rows from when no replica has them.
struct TableSource {
  enum class Kind : std::uint8_t { kCheckpoint = 1, kSynthetic = 2 };
  Kind kind = Kind::kSynthetic;
  std::string checkpoint_dir;  // kCheckpoint: as the node sees it
  std::string
      name_map_json;  // kCheckpoint: JSON object {wanted tensor name: name in the files}, or ""
  std::uint64_t seed = 0;  // kSynthetic
  friend bool operator==(const TableSource&, const TableSource&) = default;
};

// Everything the pool knows about one table.
struct TableRecord {
  TableUid uid;
  TableName name;
  TableSpec spec;
  TableOptions options;
  TableSource source;
  TableState state = TableState::kLoading;
  std::string spec_digest;
  std::string content_digest;  // empty until kReady
  std::string tenant;
  std::string error;  // kFailed: why; kLoading: what is missing; for people
  std::int64_t created_unix_ms = 0;
  // NAME@ALIAS names this version, too, and no other one. Sorted.
  std::vector<std::string> aliases;
  friend bool operator==(const TableRecord&, const TableRecord&) = default;
};

// Lower-case hexadecimal SHA-256.
std::string Sha256Hex(std::string_view bytes);

}  // namespace engram
