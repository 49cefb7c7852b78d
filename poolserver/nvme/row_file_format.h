// The bytes of a row file: one shard of one table on an NVMe device (docs/nvme-format.md). Pure
// arithmetic, encoding and checking; no file is opened here. Thread-compatible.
//
// A file is a sequence of blocks of `block_bytes`: 4096 where a row and a trailer fit, else the
// next multiple of 4096. No row straddles a block, so one read of one block gives a row.
//
//   block 0                  header, see RowFileHeader
//   then data_blocks         rows_per_block rows, `stride` apart; zeros; trailer
//   then checksum_blocks     CRC32C of each run of 256 rows, u32 each; zeros; trailer
//
//   trailer, last 8 bytes    block number u32; CRC32C u32 over (file id, table uid, shard) and all
//                            bytes of the block before it
//
// So a torn, stale or misplaced block, also one of another file, is found by whoever reads it. All
// integers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"

namespace engram::poolserver::nvme {

inline constexpr std::uint32_t kRowFileVersion = 1;
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint32_t kTrailerBytes = 8;
inline constexpr std::size_t kSpecDigestBytes = 64;  // hexadecimal digits
// What one registered buffer of the ring holds.
inline constexpr std::uint32_t kMostBlockBytes = 32768;

// Where the rows of a shard lie.
class RowFileLayout {
 public:
  // FailedPrecondition: a row of `stride` bytes does not fit into kMostBlockBytes.
  static absl::Status Check(std::uint32_t stride);
  // REQUIRES: Check(stride) is OK, rows > 0.
  RowFileLayout(std::uint32_t stride, std::uint64_t rows);

  std::uint32_t stride() const { return stride_; }
  std::uint64_t rows() const { return rows_; }
  std::uint32_t block_bytes() const { return block_bytes_; }
  std::uint32_t rows_per_block() const { return rows_per_block_; }
  std::uint32_t data_blocks() const { return data_blocks_; }
  std::uint32_t checksums() const { return checksums_; }  // one per 256 rows
  std::uint32_t checksums_per_block() const { return (block_bytes_ - kTrailerBytes) / 4; }
  std::uint32_t checksum_blocks() const { return checksum_blocks_; }
  std::uint32_t blocks() const { return 1 + data_blocks_ + checksum_blocks_; }
  std::uint64_t file_bytes() const { return std::uint64_t{blocks()} * block_bytes_; }

  // The block of a row, and where in it the row lies. REQUIRES: slot < rows().
  std::uint32_t BlockOf(std::uint64_t slot) const {
    return 1 + static_cast<std::uint32_t>(slot) / rows_per_block_;
  }
  std::uint32_t OffsetInBlock(std::uint64_t slot) const {
    return static_cast<std::uint32_t>(slot) % rows_per_block_ * stride_;
  }
  std::uint64_t FirstRowOf(std::uint32_t block) const {
    return std::uint64_t{block - 1} * rows_per_block_;
  }
  // Rows that a data block holds; fewer in the last one.
  std::uint32_t RowsIn(std::uint32_t block) const;

  friend bool operator==(const RowFileLayout&, const RowFileLayout&) = default;

 private:
  std::uint32_t stride_, block_bytes_, rows_per_block_, data_blocks_, checksums_, checksum_blocks_;
  std::uint64_t rows_;
};

// What a file says of itself. Offsets in the header block:
//   0 magic "ENGRROWS"; 8 version u32; 12 block bytes u32; 16 file id u64; 24 table uid 16 B;
//   40 shard u32; 44 stride u32; 48 rows u64; 56 owner's length u32; 60 owner, up to 253 B;
//   316 spec digest, 64 hexadecimal digits; zeros; 4092 CRC32C u32 of the bytes before it
struct RowFileHeader {
  std::uint32_t version = kRowFileVersion;
  std::uint32_t block_bytes = 0;
  std::uint64_t file_id = 0;  // random, of this writing of the file
  ShardKey shard;
  std::uint32_t stride = 0;
  std::uint64_t rows = 0;
  NodeId owner;
  std::string spec_digest;

  friend bool operator==(const RowFileHeader&, const RowFileHeader&) = default;
};

// REQUIRES: out.size() == kHeaderBytes; the owner has at most 253 bytes, the digest 64.
void WriteHeader(const RowFileHeader& header, std::span<std::byte> out);
// DataLoss: not a row file, or damaged. Of another version only `version` is filled.
// REQUIRES: bytes.size() == kHeaderBytes.
absl::StatusOr<RowFileHeader> ParseHeader(std::span<const std::byte> bytes);

// Writes and checks the trailers of one file's blocks. Immutable: Thread-safe.
class BlockSeal {
 public:
  BlockSeal(std::uint64_t file_id, const ShardKey& shard);
  void Seal(std::uint32_t block, std::span<std::byte> bytes) const;
  bool Check(std::uint32_t block, std::span<const std::byte> bytes) const;

 private:
  std::uint32_t file_crc_;
};

// "TABLE_UID-SHARD.rows": 32 hexadecimal digits, 10 decimal ones.
std::string RowFileName(const ShardKey& shard);
// False unless `name` is a RowFileName followed by `suffix`.
bool ParseRowFileName(std::string_view name, std::string_view suffix, ShardKey* shard);
// Of a file that is being written; one that is found at the start was left by a crash.
inline constexpr char kPartialSuffix[] = ".partial";

}  // namespace engram::poolserver::nvme
