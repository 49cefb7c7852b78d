// Hints and pinned n-grams: rows that nobody waits for (client/prefetcher_hint.cc).
#include <gtest/gtest.h>

#include "client/cache/private_cache.h"
#include "client/prefetcher.h"
#include "tests/client/held_pool.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::seconds;

class PrefetcherHintTest : public HeldPool, public testing::Test {
 protected:
  PrefetcherHintTest() : HeldPool(SealKind::kCrc32c, TokenSpec()) {
    options_.max_layers = 4;
    options_.max_step_rows = 1000;
    options_.prefill_slots = 1;
    options_.ngram_rows = 2;
    addressing_ = *Addressing::Make(spec_, {});
    options_.addressing = addressing_.get();
    options_.layers = 2;
  }
  ~PrefetcherHintTest() override { prefetcher_.reset(); }

  Prefetcher& Open(FabricKind kind = FabricKind::kStream, std::uint64_t cache_bytes = 128 << 10) {
    AddHolder("a");
    Publish({"a"}, kind);
    RowReader::Options reader = ReaderOptions(8);
    reader.max_rows = 128;
    reader.max_parts = 4;
    if (cache_bytes > 0) {
      PrivateCache::Options cache;
      cache.bytes = cache_bytes;
      cache.row_bytes = kRowBytes;
      cache.unit_rows = 2;
      reader.cache = *PrivateCache::Open(cache);
    }
    auto opened = Prefetcher::Open(*RowReader::Open(reader), options_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    prefetcher_ = *std::move(opened);
    return *prefetcher_;
  }
  ReadPart Rows(const std::vector<std::int64_t>& ids) {
    ReadPart part;
    part.ids = ids.data();
    part.id_kind = ReadPart::IdKind::kInt64;
    part.run_rows = static_cast<std::uint32_t>(ids.size());
    part.row_limit = table_->layout.rows();
    return part;
  }
  std::vector<std::int64_t> Ids(std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(first + i);
    return ids;
  }
  // Reads the rows as a step; true: all of them golden.
  bool Read(const std::vector<std::int64_t>& ids) {
    std::vector<std::byte> out(ids.size() * kRowBytes);
    StepLayer layer;
    layer.rows = Rows(ids);
    layer.rows.out = out.data();
    layer.rows.row_stride = kRowBytes;
    Ticket ticket;
    const Step step{StepKind::kDecode, {&layer, 1}, clock_.Now() + seconds(1), nullptr};
    if (prefetcher_->Submit(step, &ticket) != SubmitStatus::kStarted) return false;
    Run();
    bool golden = prefetcher_->State(ticket, 0) == LayerState::kReady;
    for (std::size_t i = 0; i < ids.size(); ++i)
      golden &= IsGolden(&out[i * kRowBytes], RowId(static_cast<std::uint64_t>(ids[i])));
    prefetcher_->Release(ticket);
    return golden;
  }
  void Run(int rounds = 50) {
    for (int i = 0; i < rounds; ++i) prefetcher_->Progress();
  }
  std::uint64_t Received() { return Counters().bytes_received.value() / 48; }
  const ReadCounters& Counters() { return prefetcher_->reader().counters(); }

  Prefetcher::Options options_;
  std::unique_ptr<Addressing> addressing_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

TEST_F(PrefetcherHintTest, AStepFindsWhatWasHinted) {
  Prefetcher& steps = Open();
  EXPECT_EQ(steps.Hint(Rows(Ids(0, 20))), 20u);
  EXPECT_TRUE(steps.busy());
  Run();
  EXPECT_FALSE(steps.busy());
  EXPECT_EQ(Received(), 20u);
  EXPECT_TRUE(Read(Ids(0, 20)));
  EXPECT_EQ(Received(), 20u);
  EXPECT_EQ(Counters().cache_hits.value(), 20u);
  EXPECT_EQ(Counters().rows_hinted.value(), 20u);
}

TEST_F(PrefetcherHintTest, ManyHintsAreReadAFewAtATime) {
  Prefetcher& steps = Open();
  steps.Hint(Rows(Ids(0, 400)));
  fabric_.queue->hold = true;
  Run();
  EXPECT_EQ(fabric_.queue->held(), 96u);
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  Run();
  EXPECT_EQ(Received(), 400u);
}

TEST_F(PrefetcherHintTest, NothingIsReadWhileAStepIsUnderWay) {
  Prefetcher& steps = Open();
  fabric_.queue->hold = true;
  const std::vector<std::int64_t> ids = Ids(0, 8);
  std::vector<std::byte> out(ids.size() * kRowBytes);
  StepLayer layer;
  layer.rows = Rows(ids);
  layer.rows.out = out.data();
  layer.rows.row_stride = kRowBytes;
  Ticket ticket;
  steps.Submit(Step{StepKind::kDecode, {&layer, 1}, clock_.Now() + seconds(1), nullptr}, &ticket);
  steps.Hint(Rows(Ids(100, 10)));
  Run();
  EXPECT_EQ(fabric_.queue->held(), 8u);
  fabric_.queue->Release();
  Run();
  EXPECT_EQ(steps.State(ticket, 0), LayerState::kReady);
  EXPECT_EQ(fabric_.queue->held(), 10u);
}

TEST_F(PrefetcherHintTest, AStepStartsBesideAHintAndEverySlotIsItsOwn) {
  Prefetcher& steps = Open();
  fabric_.queue->hold = true;
  steps.Hint(Rows(Ids(1000, 10)));
  Run(1);
  EXPECT_EQ(fabric_.queue->held(), 10u);
  // Three slots are left for steps; a fourth step waits for one of them, not for the hint's.
  const std::vector<std::int64_t> ids = Ids(0, 32);
  std::vector<std::byte> out(4 * ids.size() * kRowBytes);
  for (std::int64_t i = 0; i < 4; ++i) {
    StepLayer layer;
    layer.rows = Rows(ids);
    layer.rows.ids = ids.data() + i * 8;
    layer.rows.run_rows = 8;
    layer.rows.out = out.data() + i * 8 * kRowBytes;
    layer.rows.row_stride = kRowBytes;
    Ticket ticket;
    const Step step{StepKind::kDecode, {&layer, 1}, clock_.Now() + seconds(1), nullptr};
    ASSERT_EQ(steps.Submit(step, &ticket), SubmitStatus::kStarted);
  }
  EXPECT_EQ(fabric_.queue->held(), 10u + 3 * 8u);
  prefetcher_.reset();  // before the memory that its steps read into
}

TEST_F(PrefetcherHintTest, WhatDoesNotFitIsDropped) {
  options_.hint_rows = 8;
  Prefetcher& steps = Open();
  EXPECT_EQ(steps.Hint(Rows(Ids(0, 20))), 8u);
  EXPECT_EQ(steps.Hint(Rows(Ids(40, 20))), 0u);
  Run();
  EXPECT_EQ(Received(), 8u);
  EXPECT_EQ(steps.Hint(Rows(Ids(40, 4))), 4u);
}

TEST_F(PrefetcherHintTest, RowsThatDoNotExistAreLeftOut) {
  Prefetcher& steps = Open();
  const auto rows = static_cast<std::int64_t>(table_->layout.rows());
  EXPECT_EQ(steps.Hint(Rows({0, 1, -1, 2, rows, 3, 6, 7})), 4u);
  Run();
  EXPECT_EQ(Received(), 4u);
  EXPECT_FALSE(steps.busy());
}

TEST_F(PrefetcherHintTest, WhatIsThereIsNotReadAgain) {
  Prefetcher& steps = Open();
  EXPECT_TRUE(Read(Ids(0, 8)));
  steps.Hint(Rows(Ids(0, 8)));
  Run();
  EXPECT_EQ(Received(), 8u);
  EXPECT_FALSE(steps.busy());
}

TEST_F(PrefetcherHintTest, WithoutACacheOrWhereRowsAreMappedNothingIsTaken) {
  Prefetcher& steps = Open(FabricKind::kStream, 0);
  EXPECT_EQ(steps.Hint(Rows(Ids(0, 8))), 0u);
  EXPECT_FALSE(steps.busy());
  EXPECT_TRUE(steps.Hottest(10).empty());
  prefetcher_.reset();
  EXPECT_EQ(Open(FabricKind::kMapped).Hint(Rows(Ids(0, 8))), 0u);
}

TEST_F(PrefetcherHintTest, TokensAreHintedWithTheirLookback) {
  Prefetcher& steps = Open();
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < 40; ++i) tokens.push_back(i * 7 % 50);
  const std::vector<std::int64_t> lookback = {3, 4};
  std::uint64_t taken = 0;
  ASSERT_EQ(steps.Hint({tokens, {}, lookback, {}}, &taken), SubmitStatus::kStarted);
  EXPECT_EQ(taken, 40u * addressing_->columns());
  Run();
  std::vector<RowId> rows(taken);
  ASSERT_TRUE(addressing_->Rows({tokens, {}, lookback, {}}, rows).ok());
  std::vector<std::int64_t> ids;
  for (const RowId row : rows) ids.push_back(static_cast<std::int64_t>(row.value()));
  const std::uint64_t received = Received();
  for (std::size_t at = 0; at + 64 <= ids.size(); at += 64)
    EXPECT_TRUE(Read({ids.begin() + static_cast<std::ptrdiff_t>(at),
                      ids.begin() + static_cast<std::ptrdiff_t>(at) + 64}));
  EXPECT_EQ(Received(), received);
}

TEST_F(PrefetcherHintTest, TokensOutsideTheVocabularyAreRefused) {
  Prefetcher& steps = Open();
  const std::vector<std::int64_t> tokens = {1, 50};
  std::uint64_t taken = 7;
  EXPECT_EQ(steps.Hint({tokens, {}, {}, {}}, &taken), SubmitStatus::kBadTokens);
  EXPECT_EQ(taken, 0u);
  EXPECT_NE(steps.refusal().message().find("50"), absl::string_view::npos);
}

TEST_F(PrefetcherHintTest, PinnedNgramsAreReadAtTheStartAndStay) {
  for (std::uint64_t i = 0; i < 60; ++i)
    options_.pinned.push_back({0, {RowId(2 * i), RowId(2 * i + 1)}});
  options_.pinned.push_back({0, {RowId(777)}});
  Prefetcher& steps = Open();
  EXPECT_TRUE(steps.busy());
  Run();
  EXPECT_FALSE(steps.busy());
  EXPECT_EQ(Received(), 121u);
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_TRUE(Read(Ids(200 + i * 64, 64)));
  const std::uint64_t received = Received();
  EXPECT_TRUE(Read(Ids(0, 120)));
  EXPECT_TRUE(Read({777}));
  EXPECT_EQ(Received(), received);
}

TEST_F(PrefetcherHintTest, APinnedNgramThatIsTooLargeIsRefused) {
  options_.pinned.push_back({0, {RowId(0), RowId(1), RowId(2)}});
  AddHolder("a");
  Publish({"a"}, FabricKind::kStream);
  const auto opened = Prefetcher::Open(*RowReader::Open(ReaderOptions(8)), options_);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrefetcherHintTest, TellsWhatIsHot) {
  Prefetcher& steps = Open();
  EXPECT_TRUE(Read(Ids(0, 8)));
  EXPECT_TRUE(Read(Ids(4, 2)));
  const auto hot = steps.Hottest(1);
  ASSERT_EQ(hot.size(), 1u);
  EXPECT_EQ(hot[0].ids, (std::vector<RowId>{RowId(4), RowId(5)}));
}

TEST_F(PrefetcherHintTest, HintingAllocatesNothing) {
  Prefetcher& steps = Open();
  const std::vector<std::int64_t> ids = Ids(0, 300);
  const ReadPart part = Rows(ids);
  std::vector<std::int64_t> tokens(30, 4);
  std::uint64_t taken = 0;
  steps.Hint(part);
  Run();
  const CountAllocations allocations;
  steps.Hint(part);
  steps.Hint({tokens, {}, {}, {}}, &taken);
  Run();
  EXPECT_EQ(allocations.count(), 0);
}

}  // namespace
}  // namespace engram::client
