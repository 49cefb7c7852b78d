// Steps whose rows do not land packed: strided columns, any order of tokens and columns, and rows
// split into their planes at delivery. Every byte of the destination is looked at.
#include <gtest/gtest.h>

#include <cstring>

#include "client/prefetcher.h"
#include "engram/addressing.h"
#include "tests/client/held_pool.h"

namespace engram::client {
namespace {

constexpr std::uint32_t kValues = 32, kScales = 8;
constexpr std::byte kUntouched{0xee};

class SplitRowsTest : public HeldPool, public testing::Test {
 protected:
  SplitRowsTest() : HeldPool(SealKind::kCrc32c, TokenSpec()) {
    AddHolder("a");
    Publish({"a"});
    Open(true);
  }
  void Open(bool split_rows) {
    RowReader::Options options = ReaderOptions(16);
    options.max_rows = 16;
    options.max_parts = 4;
    options.split_rows = split_rows;
    Prefetcher::Options steps;
    steps.max_step_rows = 1000;
    steps.prefill_slots = 1;
    steps.max_layers = 4;
    addressing_ = *Addressing::Make(spec_, {});
    steps.addressing = addressing_.get();
    steps.layers = static_cast<std::uint32_t>(spec_.addressing.layers.size());
    steps.ngram_rows = spec_.addressing.heads;
    prefetcher_.reset();
    prefetcher_ = *Prefetcher::Open(*RowReader::Open(options), steps);
  }
  void Run() {
    for (int i = 0; i < 50; ++i) prefetcher_->Progress();
  }
  std::vector<RowId> RowsOf(std::span<const std::int64_t> tokens) {
    std::vector<RowId> rows(tokens.size() * addressing_->columns());
    TokenSpan span;
    span.tokens = tokens;
    EXPECT_TRUE(addressing_->Rows(span, rows).ok());
    return rows;
  }
  // `values` and `scales` hold the planes of the row.
  bool IsSplit(RowId row, const std::byte* values, const std::byte* scales) {
    std::byte packed[kRowBytes];
    std::memcpy(packed, values, kValues);
    std::memcpy(packed + kValues, scales, kScales);
    return IsGolden(packed, row);
  }

  std::unique_ptr<Addressing> addressing_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

TEST_F(SplitRowsTest, ATokenStepOfStridedColumnsLandsColumnByColumnInTwoPlanes) {
  const std::int64_t tokens[] = {4, 7, 9};
  const std::vector<RowId> rows = RowsOf(tokens);
  const std::size_t layers = spec_.addressing.layers.size(), per_layer = spec_.ColumnsPerLayer();
  ASSERT_EQ(per_layer, 4u);
  constexpr std::size_t kTokens = 5, kColumns = 2;  // room for more tokens than there are
  const std::size_t layer_bytes = kTokens * kColumns * kRowBytes;
  std::vector<std::byte> out(layers * layer_bytes, kUntouched);
  TokenStep step;
  step.tokens.tokens = tokens;
  step.deadline = clock_.Now() + std::chrono::seconds(1);
  step.out = out.data();
  step.layer_stride = layer_bytes;
  step.token_stride = kValues;
  step.row_stride = kTokens * kValues;
  step.first_column = 1;
  step.columns = kColumns;
  step.column_step = 2;
  step.split_bytes = kValues;
  step.rest = out.data() + kTokens * kColumns * kValues;
  step.rest_token_stride = kScales;
  step.rest_row_stride = kTokens * kScales;
  Ticket ticket;
  ASSERT_EQ(prefetcher_->Submit(step, &ticket), SubmitStatus::kStarted);
  Run();
  ASSERT_TRUE(prefetcher_->Done(ticket));
  std::size_t untouched = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    EXPECT_EQ(prefetcher_->State(ticket, static_cast<std::uint32_t>(layer)), LayerState::kReady);
    for (std::size_t token = 0; token < 3; ++token) {
      for (std::size_t i = 0; i < kColumns; ++i) {
        const RowId row = rows[token * addressing_->columns() + layer * per_layer + 1 + 2 * i];
        const std::byte* values = step.out + layer * layer_bytes + (i * kTokens + token) * kValues;
        const std::byte* scales = step.rest + layer * layer_bytes + (i * kTokens + token) * kScales;
        EXPECT_TRUE(IsSplit(row, values, scales)) << layer << " " << token << " " << i;
      }
    }
  }
  for (const std::byte byte : out) untouched += byte == kUntouched;
  EXPECT_GE(untouched, layers * 2 * kColumns * kRowBytes) << "tokens that are not there";
}

TEST_F(SplitRowsTest, ColumnsThatTheLayerDoesNotHaveAreRefused) {
  const std::int64_t tokens[] = {4};
  std::vector<std::byte> out(1000);
  TokenStep step;
  step.tokens.tokens = tokens;
  step.deadline = clock_.Now() + std::chrono::seconds(1);
  step.out = out.data();
  step.row_stride = kRowBytes;
  const auto refused = [&](std::uint32_t first, std::uint32_t columns, std::uint32_t step_by) {
    step.first_column = first;
    step.columns = columns;
    step.column_step = step_by;
    Ticket ticket;
    const SubmitStatus status = prefetcher_->Submit(step, &ticket);
    prefetcher_->Release(ticket);
    return status == SubmitStatus::kBadStep;
  };
  EXPECT_FALSE(refused(0, 4, 1));
  EXPECT_FALSE(refused(1, 2, 2));
  EXPECT_TRUE(refused(2, 2, 2));
  EXPECT_TRUE(refused(0, 5, 1));
  EXPECT_TRUE(refused(4, 1, 1));
  EXPECT_TRUE(refused(0, 2, 0));
  EXPECT_TRUE(refused(1, ~std::uint32_t{0}, ~std::uint32_t{0}));
}

// Larger than one request, so that it is read in slices, with rows that are skipped.
TEST_F(SplitRowsTest, ASlicedStepOfStridedIdsIsSplitAndItsSkippedRowsAreZeros) {
  constexpr std::uint32_t kRuns = 20, kColumns = 2, kIdStride = 3, kRunIds = 7;
  std::vector<std::int32_t> ids(kRuns * kRunIds, 999'999'999);
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    ids[run * kRunIds] = static_cast<std::int32_t>(run * 3);
    ids[run * kRunIds + kIdStride] = run == 4 ? -1 : static_cast<std::int32_t>(run * 5 + 1);
  }
  std::vector<std::byte> values(kRuns * kColumns * kValues, kUntouched);
  std::vector<std::byte> scales(kRuns * kColumns * kScales, kUntouched);
  StepLayer layer;
  ReadPart& part = layer.rows;
  part.ids = ids.data();
  part.id_kind = ReadPart::IdKind::kInt32;
  part.runs = kRuns;
  part.run_rows = kColumns;
  part.run_id_stride = kRunIds;
  part.id_stride = kIdStride;
  part.row_limit = table_->layout.rows();
  part.out = values.data();
  part.row_stride = kValues;
  part.run_stride = kColumns * kValues;
  part.split_bytes = kValues;
  part.rest = scales.data();
  part.rest_row_stride = kScales;
  part.rest_run_stride = kColumns * kScales;
  Ticket ticket;
  ASSERT_EQ(prefetcher_->Submit(Step{StepKind::kPrefill, {&layer, 1}, Instant::max()}, &ticket),
            SubmitStatus::kStarted);
  std::fill(ids.begin(), ids.end(), -7);  // they were copied
  Run();
  ASSERT_EQ(prefetcher_->State(ticket, 0), LayerState::kReady);
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    const std::byte* value = &values[run * kColumns * kValues];
    const std::byte* scale = &scales[run * kColumns * kScales];
    EXPECT_TRUE(IsSplit(RowId(run * 3), value, scale)) << run;
    if (run == 4) {
      EXPECT_EQ(std::count(value + kValues, value + 2 * kValues, std::byte{}), kValues);
      EXPECT_EQ(std::count(scale + kScales, scale + 2 * kScales, std::byte{}), kScales);
    } else {
      EXPECT_TRUE(IsSplit(RowId(run * 5 + 1), value + kValues, scale + kScales)) << run;
    }
  }
}

TEST_F(SplitRowsTest, WhatIsCancelledIsPoisonInBothPlanes) {
  fabric_.queue->hold = true;
  const RowId ids[] = {RowId(1), RowId(2)};
  std::vector<std::byte> values(2 * kValues, kUntouched), scales(2 * kScales, kUntouched);
  StepLayer layer;
  ReadPart& part = layer.rows;
  part.ids = ids;
  part.run_rows = 2;
  part.row_limit = table_->layout.rows();
  part.out = values.data();
  part.row_stride = kValues;
  part.split_bytes = kValues;
  part.rest = scales.data();
  part.rest_row_stride = kScales;
  Ticket ticket;
  ASSERT_EQ(prefetcher_->Submit(Step{StepKind::kDecode, {&layer, 1}, Instant::max()}, &ticket),
            SubmitStatus::kStarted);
  prefetcher_->Cancel(ticket, 0);
  EXPECT_EQ(prefetcher_->State(ticket, 0), LayerState::kCancelled);
  EXPECT_EQ(std::count(values.begin(), values.end(), std::byte{0x7f}), 2 * kValues);
  EXPECT_EQ(std::count(scales.begin(), scales.end(), std::byte{0xff}), 2 * kScales);
  const ReadPart* rows = prefetcher_->Rows(ticket, 0);
  ASSERT_NE(rows, nullptr);
  EXPECT_EQ(rows->row_status[1], ReadStatus::kFlushed);
  EXPECT_EQ(prefetcher_->Rows(ticket, 1), nullptr);
  prefetcher_->Release(ticket);
  EXPECT_EQ(prefetcher_->Rows(ticket, 0), nullptr);
}

TEST_F(SplitRowsTest, AReaderThatWasOpenedWithoutRefusesSplitParts) {
  RowReader::Options options = ReaderOptions(0);
  const auto reader = *RowReader::Open(options);
  ReadPart part;
  part.split_bytes = kValues;
  EXPECT_EQ(reader->Start({{&part, 1}, Instant::max()}), RowReader::kTooLarge);
}

}  // namespace
}  // namespace engram::client
