#include "engram/table_spec.h"

#include <openssl/sha.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace engram {
namespace {

std::string Quoted(std::string_view text) {
  return absl::StrCat("\"", absl::string_view(text.data(), text.size()), "\"");
}

// Appends length-prefixed little-endian fields, so that no two specs encode alike.
class CanonicalEncoder {
 public:
  void U64(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void Text(std::string_view text) {
    U64(text.size());
    out_.append(text);
  }
  const std::string& out() const { return out_; }

 private:
  std::string out_;
};

constexpr std::uint32_t kMaxRowBytes = 1 << 20;
constexpr std::size_t kMaxColumns = 1 << 16;

absl::Status ValidatePlanes(const std::vector<Plane>& planes) {
  if (planes.empty())
    return absl::InvalidArgumentError("table spec has no planes; give at least one");
  std::uint64_t bytes = 0;
  for (const Plane& plane : planes) {
    if (plane.bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("plane ", Quoted(plane.name), " has 0 bytes; a plane has at least 1"));
    }
    bytes += plane.bytes;
  }
  if (bytes > kMaxRowBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a row has ", bytes, " bytes; the limit is ", kMaxRowBytes));
  }
  return absl::OkStatus();
}

absl::Status ValidateColumns(const std::vector<Column>& columns) {
  if (columns.empty() || columns.size() > kMaxColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat("table spec has ", columns.size(), " columns; it needs 1 to ", kMaxColumns));
  }
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> seen;
  for (const Column& column : columns) {
    const auto id = absl::StrCat("column (layer ", column.layer, ", order ", column.order,
                                 ", head ", column.head, ")");
    if (column.rows == 0) return absl::InvalidArgumentError(absl::StrCat(id, " has 0 rows"));
    if (!seen.emplace(column.layer, column.order, column.head).second) {
      return absl::InvalidArgumentError(absl::StrCat(id, " is listed twice"));
    }
    if (column.rows > kMaxColumnRows) {
      return absl::InvalidArgumentError(
          absl::StrCat(id, " has ", column.rows, " rows; the limit is ", kMaxColumnRows));
    }
  }
  return absl::OkStatus();
}

bool IsNamePart(std::string_view part) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (part.empty() || part.size() > 63 || !alnum(part[0])) return false;
  for (char c : part) {
    if (!alnum(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

constexpr struct {
  DType dtype;
  std::string_view name;
} kDTypes[] = {{DType::kE4M3, "e4m3"},   {DType::kUE8M0, "ue8m0"},     {DType::kBF16, "bf16"},
               {DType::kNVFP4, "nvfp4"}, {DType::kF8Scale, "f8scale"}, {DType::kBytes, "bytes"}};

}  // namespace

std::string_view Name(DType dtype) {
  for (const auto& entry : kDTypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "unknown";
}

absl::StatusOr<DType> ParseDType(std::string_view name) {
  for (const auto& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype ", Quoted(name), " is unknown; use e4m3, ue8m0, bf16, nvfp4, f8scale or bytes"));
}

std::uint32_t TableSpec::RowBytes() const {
  std::uint32_t bytes = 0;
  for (const Plane& plane : planes) bytes += plane.bytes;
  return bytes;
}

std::uint64_t TableSpec::Rows() const {
  std::uint64_t rows = 0;
  for (const Column& column : columns) rows += column.rows;
  return rows;
}

std::uint64_t TableSpec::LayerFirstRow(std::uint32_t layer) const {
  std::uint64_t rows = 0;
  for (const Column& column : columns) {
    if (column.layer == layer) break;
    rows += column.rows;
  }
  return rows;
}

std::uint64_t TableSpec::LayerRows(std::uint32_t layer) const {
  std::uint64_t rows = 0;
  for (const Column& column : columns) rows += column.layer == layer ? column.rows : 0;
  return rows;
}

std::uint32_t TableSpec::ColumnsPerLayer() const {
  const std::size_t layers = addressing.layers.empty() ? 1 : addressing.layers.size();
  return static_cast<std::uint32_t>(columns.size() / layers);
}

absl::Status TableSpec::Validate() const {
  if (absl::Status planes_ok = ValidatePlanes(planes); !planes_ok.ok()) return planes_ok;
  if (absl::Status columns_ok = ValidateColumns(columns); !columns_ok.ok()) return columns_ok;
  if (addressing.layers.empty() || columns.size() % addressing.layers.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(columns.size(),
                                                   " columns do not divide evenly over ",
                                                   addressing.layers.size(), " layers"));
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::uint32_t layer = addressing.layers[i / ColumnsPerLayer()];
    if (columns[i].layer != layer) {
      return absl::InvalidArgumentError(absl::StrCat(
          "column ", i, " belongs to layer ", columns[i].layer, "; layer order wants ", layer));
    }
  }
  return absl::OkStatus();
}

std::string TableSpec::Digest() const {
  CanonicalEncoder encoder;
  encoder.Text("engram table spec 1");
  encoder.U64(columns.size());
  for (const Column& column : columns) {
    encoder.U64(column.layer);
    encoder.U64(column.order);
    encoder.U64(column.head);
    encoder.U64(column.rows);
  }
  encoder.U64(planes.size());
  for (const Plane& plane : planes) {
    encoder.Text(plane.name);
    encoder.U64(static_cast<std::uint64_t>(plane.dtype));
    encoder.U64(plane.bytes);
  }
  encoder.Text(addressing.function);
  encoder.U64(addressing.layers.size());
  for (std::uint32_t layer : addressing.layers) encoder.U64(layer);
  for (std::uint64_t value :
       {std::uint64_t{addressing.max_order}, std::uint64_t{addressing.heads}, addressing.base_rows,
        addressing.base_seed, static_cast<std::uint64_t>(addressing.pad_token),
        addressing.raw_vocab, addressing.compressed_vocab}) {
    encoder.U64(value);
  }
  encoder.U64(addressing.multipliers.size());
  for (const auto& multipliers : addressing.multipliers) {
    encoder.U64(multipliers.size());
    for (std::int64_t value : multipliers) encoder.U64(static_cast<std::uint64_t>(value));
  }
  encoder.Text(addressing.token_map_digest);
  return Sha256Hex(encoder.out());
}

absl::Status TableOptions::Validate() const {
  if (shard_bytes < kMinShardBytes || shard_bytes > kMaxShardBytes) {
    return absl::InvalidArgumentError(absl::StrCat("shard_bytes is ", shard_bytes, "; it must be ",
                                                   kMinShardBytes, " (1MiB) to ", kMaxShardBytes,
                                                   " (1GiB)"));
  }
  if (replicas == 0 || replicas > 16) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas is ", replicas, "; it must be 1 to 16"));
  }
  if (std::adjacent_find(tiers.begin(), tiers.end(), std::greater_equal<Tier>()) != tiers.end()) {
    return absl::InvalidArgumentError("tiers are not in the order dram, cxl, nvme, each once");
  }
  return absl::OkStatus();
}

bool TableOptions::MayUse(Tier tier) const {
  return tiers.empty() || std::find(tiers.begin(), tiers.end(), tier) != tiers.end();
}

absl::StatusOr<TableName> TableName::Parse(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at != std::string_view::npos) {
    TableName out{std::string(text.substr(0, at)), std::string(text.substr(at + 1))};
    if (IsNamePart(out.name) && IsNamePart(out.version)) return out;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("table name ", Quoted(text),
                   " is not NAME@VERSION, each part 1 to 63 of a-z 0-9 . _ - and starting with a "
                   "letter or digit; for instance deepseek-v4.1@1"));
}

std::string_view Name(TableState state) {
  switch (state) {
    case TableState::kLoading: return "Loading";
    case TableState::kReady: return "Ready";
    case TableState::kDeleting: return "Deleting";
    case TableState::kFailed: return "Failed";
  }
  return "Unknown";
}

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof digest});
}

}  // namespace engram
