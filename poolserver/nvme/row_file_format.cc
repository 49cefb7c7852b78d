#include "poolserver/nvme/row_file_format.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/sealed_row.h"
#include "engram/table_spec.h"

namespace engram::poolserver::nvme {
namespace {

constexpr char kRowFileMagic[8] = {'E', 'N', 'G', 'R', 'R', 'O', 'W', 'S'};
constexpr std::size_t kMostOwnerBytes = 253;
constexpr std::size_t kVersionAt = 8, kBlockBytesAt = 12, kFileIdAt = 16, kUidAt = 24,
                      kShardAt = 40, kStrideAt = 44, kRowsAt = 48, kOwnerBytesAt = 56,
                      kOwnerAt = 60, kDigestAt = 316, kHeaderCrcAt = kHeaderBytes - 4;
static_assert(kOwnerAt + kMostOwnerBytes <= kDigestAt);

template <class Word>
void Put(std::byte* at, Word word) {
  std::memcpy(at, &word, sizeof word);
}
template <class Word>
Word Get(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

absl::Status RowFileLayout::Check(std::uint32_t stride) {
  if (stride > 0 && stride + kTrailerBytes <= kMostBlockBytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rows of ", stride, " bytes do not fit the nvme tier, whose blocks hold ",
      kMostBlockBytes - kTrailerBytes, " bytes at most; keep this table in dram or cxl"));
}

RowFileLayout::RowFileLayout(std::uint32_t stride, std::uint64_t rows)
    : stride_(stride), rows_(rows) {
  ENGRAM_CHECK(Check(stride).ok() && rows > 0);
  block_bytes_ = static_cast<std::uint32_t>((stride + kTrailerBytes + kHeaderBytes - 1) /
                                            kHeaderBytes * kHeaderBytes);
  rows_per_block_ = (block_bytes_ - kTrailerBytes) / stride;
  data_blocks_ = static_cast<std::uint32_t>((rows + rows_per_block_ - 1) / rows_per_block_);
  checksums_ = static_cast<std::uint32_t>((rows + kBlockRows - 1) / kBlockRows);
  checksum_blocks_ = (checksums_ + checksums_per_block() - 1) / checksums_per_block();
}

std::uint32_t RowFileLayout::RowsIn(std::uint32_t block) const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(rows_per_block_, rows_ - FirstRowOf(block)));
}

void WriteHeader(const RowFileHeader& header, std::span<std::byte> out) {
  ENGRAM_CHECK(out.size() == kHeaderBytes && header.owner.name.size() <= kMostOwnerBytes &&
               header.spec_digest.size() == kSpecDigestBytes);
  std::memset(out.data(), 0, out.size());
  std::byte* const at = out.data();
  std::memcpy(at, kRowFileMagic, sizeof kRowFileMagic);
  Put(at + kVersionAt, header.version);
  Put(at + kBlockBytesAt, header.block_bytes);
  Put(at + kFileIdAt, header.file_id);
  std::memcpy(at + kUidAt, header.shard.table.bytes.data(), header.shard.table.bytes.size());
  Put(at + kShardAt, header.shard.shard.value());
  Put(at + kStrideAt, header.stride);
  Put(at + kRowsAt, header.rows);
  Put(at + kOwnerBytesAt, static_cast<std::uint32_t>(header.owner.name.size()));
  std::memcpy(at + kOwnerAt, header.owner.name.data(), header.owner.name.size());
  std::memcpy(at + kDigestAt, header.spec_digest.data(), kSpecDigestBytes);
  Put(at + kHeaderCrcAt, Crc32c(0, at, kHeaderCrcAt));
}

absl::StatusOr<RowFileHeader> ParseHeader(std::span<const std::byte> bytes) {
  ENGRAM_CHECK(bytes.size() == kHeaderBytes);
  const std::byte* const at = bytes.data();
  if (std::memcmp(at, kRowFileMagic, sizeof kRowFileMagic) != 0) {
    return absl::DataLossError("it does not start as a row file does");
  }
  RowFileHeader header;
  header.version = Get<std::uint32_t>(at + kVersionAt);
  if (header.version != kRowFileVersion) return header;
  const auto owner_bytes = Get<std::uint32_t>(at + kOwnerBytesAt);
  if (Get<std::uint32_t>(at + kHeaderCrcAt) != Crc32c(0, at, kHeaderCrcAt) ||
      owner_bytes > kMostOwnerBytes) {
    return absl::DataLossError("its header does not match its checksum");
  }
  header.block_bytes = Get<std::uint32_t>(at + kBlockBytesAt);
  header.file_id = Get<std::uint64_t>(at + kFileIdAt);
  std::memcpy(header.shard.table.bytes.data(), at + kUidAt, header.shard.table.bytes.size());
  header.shard.shard = ShardIndex(Get<std::uint32_t>(at + kShardAt));
  header.stride = Get<std::uint32_t>(at + kStrideAt);
  header.rows = Get<std::uint64_t>(at + kRowsAt);
  header.owner.name.assign(reinterpret_cast<const char*>(at + kOwnerAt), owner_bytes);
  header.spec_digest.assign(reinterpret_cast<const char*>(at + kDigestAt), kSpecDigestBytes);
  return header;
}

BlockSeal::BlockSeal(std::uint64_t file_id, const ShardKey& shard) {
  std::byte salt[28];
  Put(salt, file_id);
  std::memcpy(salt + 8, shard.table.bytes.data(), 16);
  Put(salt + 24, shard.shard.value());
  file_crc_ = Crc32c(0, salt, sizeof salt);
}

void BlockSeal::Seal(std::uint32_t block, std::span<std::byte> bytes) const {
  Put(bytes.data() + bytes.size() - 8, block);
  Put(bytes.data() + bytes.size() - 4, Crc32c(file_crc_, bytes.data(), bytes.size() - 4));
}

bool BlockSeal::Check(std::uint32_t block, std::span<const std::byte> bytes) const {
  return Get<std::uint32_t>(bytes.data() + bytes.size() - 8) == block &&
         Get<std::uint32_t>(bytes.data() + bytes.size() - 4) ==
             Crc32c(file_crc_, bytes.data(), bytes.size() - 4);
}

std::string RowFileName(const ShardKey& shard) {
  char number[16];
  std::snprintf(number, sizeof number, "%010u", shard.shard.value());
  return absl::StrCat(shard.table.Hex(), "-", number, ".rows");
}

bool ParseRowFileName(std::string_view name, std::string_view suffix, ShardKey* shard) {
  constexpr std::size_t kUidDigits = 32, kShardDigits = 10;
  constexpr std::string_view kExtension = ".rows";
  if (name.size() != kUidDigits + 1 + kShardDigits + kExtension.size() + suffix.size())
    return false;
  if (!TableUid::Parse(name.substr(0, kUidDigits), &shard->table) || name[kUidDigits] != '-')
    return false;
  const std::string_view digits = name.substr(kUidDigits + 1, kShardDigits);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kShardDigits, number);
  if (error != std::errc() || end != digits.data() + kShardDigits) return false;
  shard->shard = ShardIndex(number);
  const std::string_view rest = name.substr(kUidDigits + 1 + kShardDigits);
  return rest.starts_with(kExtension) && rest.substr(kExtension.size()) == suffix;
}

}  // namespace engram::poolserver::nvme
