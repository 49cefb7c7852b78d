#include "engram/shard_layout.h"

#include <gtest/gtest.h>

#include "engram/random.h"

namespace engram {
namespace {

TableSpec SpecOf(std::vector<std::uint64_t> heights, std::uint32_t row_bytes) {
  TableSpec spec;
  spec.planes = {{"weight", DType::kBytes, row_bytes}};
  spec.addressing.layers = {0};
  for (std::size_t i = 0; i < heights.size(); ++i) {
    spec.columns.push_back({0, 2, static_cast<std::uint32_t>(i), heights[i]});
  }
  return spec;
}

// Every row, in order, must lie where the ranges say, and the ranges must tile the table.
void ExpectRowByRowAgreement(const TableSpec& spec, const TableOptions& options) {
  ASSERT_TRUE(spec.Validate().ok());
  ASSERT_TRUE(options.Validate().ok());
  const ShardLayout layout(spec, options);
  std::uint64_t row = 0;
  std::uint32_t shard = 0;
  for (std::uint32_t column = 0; column < spec.columns.size(); ++column) {
    std::uint64_t in_column = 0;
    while (in_column < spec.columns[column].rows) {
      ASSERT_LT(shard, layout.shards());
      const ShardRange range = layout.Range(ShardIndex(shard));
      ASSERT_EQ(range.first, RowId(row));
      ASSERT_EQ(range.column, column);
      ASSERT_EQ(range.row_in_column, in_column);
      ASSERT_EQ(range.row_in_column % kBlockRows, 0u);
      ASSERT_EQ(layout.StoredBytes(ShardIndex(shard)), range.rows * layout.stride());
      const bool last = in_column + range.rows == spec.columns[column].rows;
      ASSERT_TRUE(last || range.rows % kBlockRows == 0);
      ASSERT_TRUE(layout.StoredBytes(ShardIndex(shard)) <= options.shard_bytes ||
                  range.rows <= kBlockRows);
      for (std::uint64_t slot = 0; slot < range.rows; ++slot, ++row) {
        const ShardSlot at = layout.Locate(RowId(row));
        ASSERT_EQ(at.shard, ShardIndex(shard)) << row;
        ASSERT_EQ(at.slot, slot) << row;
      }
      in_column += range.rows;
      ++shard;
    }
    ASSERT_EQ(in_column, spec.columns[column].rows);
  }
  EXPECT_EQ(layout.shards(), shard);
  EXPECT_EQ(layout.rows(), row);
}

TEST(ShardLayoutTest, LocateAndRangeAgreeRowByRowForRandomGeometries) {
  SeededRandom random(20);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::uint64_t> heights(1 + random.Below(60));
    for (auto& height : heights) height = 1 + random.Below(1ull << (1 + random.Below(12)));
    TableOptions options;
    options.shard_bytes = kMinShardBytes + random.Below(4 * kMinShardBytes);
    options.seal = random.Below(2) == 0 ? SealKind::kNone : SealKind::kCrc32c;
    const auto row_bytes = static_cast<std::uint32_t>(1 + random.Below(6000));
    SCOPED_TRACE(round);
    ExpectRowByRowAgreement(SpecOf(heights, row_bytes), options);
  }
}

TEST(ShardLayoutTest, OneRowColumnsAndRowsLargerThanAShardWork) {
  ExpectRowByRowAgreement(SpecOf({1, 1, 255, 256, 257, 1}, 1), {});
  TableOptions smallest;
  smallest.shard_bytes = kMinShardBytes;
  ExpectRowByRowAgreement(SpecOf({1000, 3}, 1 << 20), smallest);
}

TEST(ShardLayoutTest, LargestColumnIsExactAtItsEnds) {
  for (std::uint64_t shard_bytes : {kMinShardBytes, kDefaultShardBytes, kMaxShardBytes}) {
    TableOptions options;
    options.shard_bytes = shard_bytes;
    options.seal = SealKind::kNone;
    const ShardLayout layout(SpecOf({kMaxColumnRows, 5}, 264), options);
    SeededRandom random(5);
    for (int i = 0; i < 20'000; ++i) {
      const ShardIndex shard(static_cast<std::uint32_t>(random.Below(layout.shards())));
      const ShardRange range = layout.Range(shard);
      for (std::uint64_t slot : {std::uint64_t{0}, range.rows - 1}) {
        const ShardSlot at = layout.Locate(RowId(range.first.value() + slot));
        ASSERT_EQ(at.shard, shard);
        ASSERT_EQ(at.slot, slot);
      }
    }
  }
}

TEST(ShardLayoutTest, SealWidensTheStride) {
  TableOptions options;
  EXPECT_EQ(ShardLayout(SpecOf({10}, 264), options).stride(), 272u);
  options.seal = SealKind::kNone;
  EXPECT_EQ(ShardLayout(SpecOf({10}, 264), options).stride(), 264u);
}

}  // namespace
}  // namespace engram
