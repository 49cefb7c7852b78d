// Rows as a checkpoint has them (one array a plane) -> rows as a replica holds them: planes side by
// side, each row followed by its seal, a CRC32C per block computed on the way. Pure: it reads and
// writes memory that the caller owns. Immutable after construction: Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engram/ids.h"
#include "engram/sealed_row.h"
#include "engram/shard_layout.h"
#include "engram/table_spec.h"

namespace engram::poolserver {

// Consecutive rows of one shard that start at a block boundary.
struct RowRun {
  RowId first;
  std::uint64_t rows = 0;
  std::byte* out = nullptr;             // of `first`; rows lie layout.stride() apart
  std::uint32_t* block_crcs = nullptr;  // of the block of `first`; ceil(rows / kBlockRows) values
};

// The same, to be read only.
struct StoredRun {
  RowId first;
  std::uint64_t rows = 0;
  const std::byte* data = nullptr;
  std::uint32_t* block_crcs = nullptr;
};

class RowPacker {
 public:
  explicit RowPacker(const TableRecord& table);

  // `planes[i]` points at the first row's bytes of plane i, rows packed without gaps.
  // REQUIRES: planes.size() == spec.planes.size().
  void Pack(std::span<const std::byte* const> planes, const RowRun& run) const;
  // The rows are already in place: adds seals and block checksums.
  void Seal(const RowRun& run) const;
  // The rows and their seals are already in place: computes the block checksums. DataLoss names the
  // first row whose seal is wrong.
  absl::Status Verify(const StoredRun& run) const;

  std::uint32_t stride() const { return stride_; }
  std::uint32_t row_bytes() const { return row_bytes_; }

 private:
  RowSealer sealer_;
  std::vector<std::uint32_t> plane_bytes_;
  std::uint32_t row_bytes_;
  std::uint32_t stride_;
  bool seals_;
};

}  // namespace engram::poolserver
