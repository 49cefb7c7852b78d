// Sealed rows (ARCHITECTURE section 3): each stored row is followed by 8 bytes, little-endian:
//   u32 CRC32C over table_uid (16 B), row id (8 B little-endian), row bytes
//   u32 low 32 bits of the row id
// so a reader can prove by itself that it holds this row of this table, unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engram/ids.h"

namespace engram {

// CRC32C (Castagnoli), continuing from `crc` (0 to start). Uses SSE4.2 or Arm CRC where present.
std::uint32_t Crc32c(std::uint32_t crc, const void* data, std::size_t bytes);
// The same by table, without special instructions: what Crc32c falls back to.
std::uint32_t Crc32cPortable(std::uint32_t crc, const void* data, std::size_t bytes);

// Seals and checks rows of one table. Immutable: Thread-safe.
class RowSealer {
 public:
  RowSealer(const TableUid& table, std::uint32_t row_bytes);

  // The 8 seal bytes of `row`, as a little-endian word (CRC low, row id high).
  std::uint64_t Seal(RowId row, const std::byte* row_bytes) const;
  bool Check(RowId row, const std::byte* row_bytes, std::uint64_t seal) const {
    return Seal(row, row_bytes) == seal;
  }
  // How many of ids.size() rows fail, with interleaved CRC chains (FABRIC 1e); Check says which.
  // rows[i] points at row i's bytes. REQUIRES: all spans have the same size.
  std::size_t CheckBatch(std::span<const RowId> ids, std::span<const std::byte* const> rows,
                         std::span<const std::uint64_t> seals) const;

 private:
  std::uint32_t table_crc_;  // CRC state after table_uid
  std::uint32_t row_bytes_;
};

}  // namespace engram
