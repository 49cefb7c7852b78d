// RowId <-> (shard, slot): how a table is cut into shards. Pure arithmetic over the table's spec
// and options, so every program computes the same layout and none of it is stored.
//
// A shard is a run of whole blocks (256 rows, counted from the column's start) of one column, as
// many as fit in `shard_bytes` of stored rows (seals included), at least one block. Only the last
// shard of a column may be shorter. Immutable after Make: Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "engram/ids.h"
#include "engram/table_spec.h"

namespace engram {

struct ShardSlot {
  ShardIndex shard;
  std::uint32_t slot = 0;  // row number inside the shard
};

struct ShardRange {
  RowId first;
  std::uint64_t rows = 0;
  std::uint32_t column = 0;         // index into spec.columns
  std::uint64_t row_in_column = 0;  // of `first`; a multiple of kBlockRows
};

class ShardLayout {
 public:
  // REQUIRES: spec.Validate() and options.Validate() are OK.
  ShardLayout(const TableSpec& spec, const TableOptions& options);

  std::uint32_t shards() const { return static_cast<std::uint32_t>(shard_first_row_.size() - 1); }
  std::uint64_t rows() const { return rows_; }
  std::uint32_t row_bytes() const { return row_bytes_; }
  // Bytes from one stored row to the next: the row and its seal.
  std::uint32_t stride() const { return stride_; }
  SealKind seal() const { return seal_; }

  // REQUIRES: row < rows(). On every row's path: no branch that a table's columns make likely, no
  // division.
  ShardSlot Locate(RowId row) const {
    const std::uint32_t column = ColumnOf(row.value());
    const std::uint64_t in_column = row.value() - column_first_row_[column];
    const std::uint64_t shard_in_column = DivideBy(in_column, reciprocal_);
    return {ShardIndex(column_first_shard_[column] + static_cast<std::uint32_t>(shard_in_column)),
            static_cast<std::uint32_t>(in_column - shard_in_column * rows_per_shard_)};
  }
  // REQUIRES: shard < shards().
  ShardRange Range(ShardIndex shard) const;
  std::uint64_t StoredBytes(ShardIndex shard) const;

 private:
  std::uint32_t ColumnOf(std::uint64_t row) const {
    std::uint32_t column = guess_[row >> guess_shift_];
    while (column_first_row_[column + 1] <= row) ++column;
    return column;
  }
  // floor(n / d) with reciprocal = floor((2^64 - 1) / d) + 1. The rounded-up reciprocal errs by
  // less than n * d / 2^64 of 1 / d, so the quotient is exact while n * d <= 2^64: n <=
  // kMaxColumnRows = 2^33, d <= 2^30.
  static std::uint64_t DivideBy(std::uint64_t n, std::uint64_t reciprocal) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(n) * reciprocal) >> 64);
  }

  std::uint64_t rows_ = 0;
  std::uint64_t rows_per_shard_ = 0;
  std::uint64_t reciprocal_ = 0;  // ceil(2^64 / rows_per_shard_): division by multiplication
  std::uint32_t row_bytes_ = 0;
  std::uint32_t stride_ = 0;
  SealKind seal_;
  std::vector<std::uint64_t> column_first_row_;    // one more entry than columns
  std::vector<std::uint32_t> column_first_shard_;  // one more entry than columns
  std::vector<std::uint64_t> shard_first_row_;     // one more entry than shards
  // guess_[row >> guess_shift_] is the column of the first row of that cell; a row is in it or a
  // later one.
  std::vector<std::uint32_t> guess_;
  std::uint32_t guess_shift_ = 0;
};

}  // namespace engram
