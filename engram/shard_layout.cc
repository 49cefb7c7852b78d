#include "engram/shard_layout.h"

#include <algorithm>
#include <bit>

namespace engram {
namespace {

// Few enough for the nearest cache, many more than a table has columns.
constexpr std::uint64_t kGuessCells = 1024;

std::uint64_t CeilDiv(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

ShardLayout::ShardLayout(const TableSpec& spec, const TableOptions& options)
    : rows_(spec.Rows()),
      row_bytes_(spec.RowBytes()),
      stride_(row_bytes_ + (options.seal == SealKind::kNone ? 0 : kSealBytes)),
      seal_(options.seal) {
  const std::uint64_t blocks = options.shard_bytes / (kBlockRows * stride_);
  rows_per_shard_ = kBlockRows * std::max<std::uint64_t>(1, blocks);
  reciprocal_ = ~std::uint64_t{0} / rows_per_shard_ + 1;

  std::uint64_t row = 0;
  for (const Column& column : spec.columns) {
    column_first_row_.push_back(row);
    column_first_shard_.push_back(static_cast<std::uint32_t>(shard_first_row_.size()));
    const std::uint64_t shards = CeilDiv(column.rows, rows_per_shard_);
    for (std::uint64_t i = 0; i < shards; ++i)
      shard_first_row_.push_back(row + i * rows_per_shard_);
    row += column.rows;
  }
  column_first_row_.push_back(row);
  column_first_shard_.push_back(static_cast<std::uint32_t>(shard_first_row_.size()));
  shard_first_row_.push_back(row);

  while ((rows_ >> guess_shift_) > kGuessCells) ++guess_shift_;
  std::uint32_t column = 0;
  for (std::uint64_t cell = 0; (cell << guess_shift_) < rows_; ++cell) {
    while (column_first_row_[column + 1] <= (cell << guess_shift_)) ++column;
    guess_.push_back(column);
  }
}

ShardRange ShardLayout::Range(ShardIndex shard) const {
  const std::uint64_t first = shard_first_row_[shard.value()];
  const std::uint32_t column = ColumnOf(first);
  return {RowId(first), shard_first_row_[shard.value() + 1] - first, column,
          first - column_first_row_[column]};
}

std::uint64_t ShardLayout::StoredBytes(ShardIndex shard) const {
  return Range(shard).rows * stride_;
}

}  // namespace engram
