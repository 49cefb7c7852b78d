#include "client/prefetcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engram/addressing.h"
#include "tests/client/held_pool.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PrefetcherTest : public HeldPool, public testing::Test {
 protected:
  explicit PrefetcherTest(const TableSpec& spec = SmallSpec()) : HeldPool(SealKind::kCrc32c, spec) {
    reader_options_.max_rows = 64;
    reader_options_.max_parts = 4;
    reader_options_.slots = 4;
    options_.tickets = 4;
    options_.max_layers = 4;
    options_.max_step_rows = 1000;
    options_.prefill_slots = 1;
  }
  ~PrefetcherTest() override { prefetcher_.reset(); }

  Prefetcher& Steps() {
    if (prefetcher_ == nullptr) {
      auto reader = RowReader::Open(reader_options_);
      EXPECT_TRUE(reader.ok()) << reader.status();
      auto opened = Prefetcher::Open(*std::move(reader), options_);
      EXPECT_TRUE(opened.ok()) << opened.status();
      prefetcher_ = *std::move(opened);
    }
    return *prefetcher_;
  }

  // A layer and what it is read into; alive as long as the test wants.
  struct Rows {
    std::vector<RowId> ids;
    std::vector<std::byte> out;
    std::vector<ReadStatus> status;
    StepLayer layer;
  };
  Rows Layer(std::vector<RowId> ids, Duration needed_in = seconds(10)) {
    Rows rows;
    rows.ids = std::move(ids);
    rows.out.assign(rows.ids.size() * kRowBytes, std::byte{0xee});
    rows.status.assign(rows.ids.size(), ReadStatus::kInvalid);
    ReadPart& part = rows.layer.rows;
    part.ids = rows.ids.data();
    part.run_rows = static_cast<std::uint32_t>(rows.ids.size());
    part.row_limit = table_->layout.rows();
    part.out = rows.out.data();
    part.row_stride = kRowBytes;
    part.row_status = rows.status.data();
    rows.layer.needed_by = clock_.Now() + needed_in;
    return rows;
  }
  Rows Layer(std::uint64_t first, std::size_t count, Duration needed_in = seconds(10)) {
    std::vector<RowId> ids;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(RowId(first + i));
    return Layer(std::move(ids), needed_in);
  }

  SubmitStatus Try(std::initializer_list<const Rows*> layers, StepKind kind, Ticket* ticket,
                   Duration deadline = seconds(20)) {
    std::vector<StepLayer> all;
    for (const Rows* rows : layers) all.push_back(rows->layer);
    return Steps().Submit(Step{kind, all, clock_.Now() + deadline, nullptr}, ticket);
  }
  Ticket Submit(std::initializer_list<const Rows*> layers, StepKind kind = StepKind::kDecode,
                Duration deadline = seconds(20)) {
    Ticket ticket;
    EXPECT_EQ(Try(layers, kind, &ticket, deadline), SubmitStatus::kStarted);
    return ticket;
  }
  void Run(int rounds = 50) {
    for (int i = 0; i < rounds; ++i) Steps().Progress();
  }
  bool AllGolden(const Rows& rows) {
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      if (!IsGolden(&rows.out[i * kRowBytes], rows.ids[i])) return false;
    }
    return true;
  }
  bool AllPoison(const Rows& rows) {
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      if (!IsPoison(&rows.out[i * kRowBytes])) return false;
    }
    return true;
  }
  RowId HeldRow(std::size_t at) {
    const fabric::ReadOp& op = fabric_.queue->held_op(at);
    for (const auto& holder : holders_) {
      for (std::uint32_t shard = 0; shard < holder->shards.size(); ++shard) {
        if (holder->peer == op.region.peer && holder->shards[shard].key == op.region.key)
          return RowId(table_->layout.Range(ShardIndex(shard)).first.value() +
                       op.offset / table_->layout.stride());
      }
    }
    return RowId(~std::uint64_t{0});
  }
  // One node, whose reads complete when the test lets them.
  void HoldReads() {
    AddHolder("a");
    Publish({"a"});
    Steps();
    fabric_.queue->hold = true;
  }
  const ReadCounters& Counters() { return Steps().reader().counters(); }

  RowReader::Options reader_options_ = ReaderOptions(64);
  Prefetcher::Options options_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

TEST_F(PrefetcherTest, StartsEveryLayerAndReportsEachByItself) {
  HoldReads();
  Rows one = Layer(0, 8), two = Layer(2000, 8);
  const Ticket ticket = Submit({&one, &two});
  Run(2);
  EXPECT_EQ(fabric_.queue->held(), 16u);
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kPending);
  fabric_.queue->ReleaseSome(8);
  Run();
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kReady);
  EXPECT_EQ(Steps().State(ticket, 1), LayerState::kPending);
  EXPECT_TRUE(AllGolden(one));
  fabric_.queue->Release();
  EXPECT_TRUE(Steps().WaitAll(ticket, clock_.Now() + seconds(1)));
  EXPECT_TRUE(AllGolden(two));
  EXPECT_EQ(Steps().State(ticket, 2), LayerState::kUnknown);
  EXPECT_EQ(Counters().layers_ready.value(), 2u);
  EXPECT_EQ(Counters().layers_late.value(), 0u);
  EXPECT_FALSE(Steps().busy());
}

TEST_F(PrefetcherTest, ReadsTheLayerThatIsNeededFirstFirst) {
  HoldReads();
  Rows late = Layer(2000, 4, milliseconds(20)), soon = Layer(0, 4, milliseconds(10));
  Submit({&late, &soon});
  Run(2);
  ASSERT_EQ(fabric_.queue->held(), 8u);
  EXPECT_EQ(HeldRow(0), RowId(0));
  EXPECT_EQ(HeldRow(4), RowId(2000));
  prefetcher_.reset();
}

TEST_F(PrefetcherTest, TakesStridedIdsOfBothWidthsAndSkipsNegativeOnes) {
  AddHolder("a");
  Publish({"a"});
  const std::int32_t narrow[] = {3, 99, -1, 99, 5, 99};
  const std::int64_t wide[] = {-1, 7};
  std::vector<std::byte> out(5 * kRowBytes, std::byte{0xee});
  StepLayer layers[2];
  ReadPart& strided = layers[0].rows;
  strided.ids = narrow;
  strided.id_kind = ReadPart::IdKind::kInt32;
  strided.runs = 3;
  strided.run_rows = 1;
  strided.run_id_stride = 2;
  strided.first_row = spec_.columns[0].rows + spec_.columns[1].rows;
  strided.row_limit = spec_.columns[2].rows + spec_.columns[3].rows;
  strided.out = out.data();
  strided.row_stride = strided.run_stride = kRowBytes;
  ReadPart& packed = layers[1].rows;
  packed.ids = wide;
  packed.id_kind = ReadPart::IdKind::kInt64;
  packed.run_rows = 2;
  packed.row_limit = table_->layout.rows();
  packed.out = out.data() + 3 * kRowBytes;
  packed.row_stride = kRowBytes;
  Ticket ticket;
  ASSERT_EQ(Steps().Submit(Step{StepKind::kDecode, layers, clock_.Now() + seconds(1)}, &ticket),
            SubmitStatus::kStarted);
  Run();
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kReady);
  EXPECT_EQ(Steps().State(ticket, 1), LayerState::kReady);
  const auto zeros = [&](std::size_t row) {
    return std::all_of(&out[row * kRowBytes], &out[row * kRowBytes] + kRowBytes,
                       [](std::byte b) { return b == std::byte{}; });
  };
  EXPECT_TRUE(IsGolden(&out[0], RowId(strided.first_row + 3)));
  EXPECT_TRUE(zeros(1));
  EXPECT_TRUE(IsGolden(&out[2 * kRowBytes], RowId(strided.first_row + 5)));
  EXPECT_TRUE(zeros(3));
  EXPECT_TRUE(IsGolden(&out[4 * kRowBytes], RowId(7)));
}

TEST_F(PrefetcherTest, SaysBusyBeyondItsTicketsAndForgetsReleasedOnes) {
  AddHolder("a");
  Publish({"a"});
  Rows rows = Layer(0, 4);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(Submit({&rows}));
  Ticket none;
  EXPECT_EQ(Try({&rows}, StepKind::kDecode, &none), SubmitStatus::kBusy);
  EXPECT_EQ(Steps().refusal().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(none);
  Run();
  Steps().Release(tickets[1]);
  EXPECT_EQ(Steps().State(tickets[1], 0), LayerState::kUnknown);
  EXPECT_TRUE(Steps().Wait(tickets[1], 0, clock_.Now()));
  const Ticket next = Submit({&rows});
  EXPECT_EQ(next.index, tickets[1].index);
  EXPECT_NE(next, tickets[1]);
  Steps().Release(tickets[1]);
  Run();
  EXPECT_EQ(Steps().State(next, 0), LayerState::kReady);
}

TEST_F(PrefetcherTest, RefusesWhatIsTooLarge) {
  AddHolder("a");
  Publish({"a"});
  Ticket ticket;
  Rows rows = Layer(0, 1001), small = Layer(0, 1);
  EXPECT_EQ(Try({&rows}, StepKind::kPrefill, &ticket), SubmitStatus::kTooLarge);
  EXPECT_EQ(Try({&small, &small, &small, &small, &small}, StepKind::kDecode, &ticket),
            SubmitStatus::kTooLarge);
  EXPECT_EQ(Steps().Submit(TokenStep(), &ticket), SubmitStatus::kNoAddressing);
}

TEST_F(PrefetcherTest, ALargeStepIsReadInSlicesAndLetsDecodePass) {
  HoldReads();
  Rows one = Layer(0, 300, milliseconds(20)), two = Layer(2000, 200, milliseconds(40));
  const Ticket prefill = Submit({&one, &two}, StepKind::kPrefill);
  EXPECT_EQ(fabric_.queue->held(), 64u) << "one slice: prefill has one slot";
  one.ids.assign(one.ids.size(), RowId(9));  // ids are the prefetcher's own by now
  Rows urgent = Layer(1000, 8, milliseconds(100));
  const Ticket decode = Submit({&urgent}, StepKind::kDecode);
  EXPECT_EQ(fabric_.queue->held(), 72u);
  EXPECT_EQ(fabric_.queue->held_op(71).lane, fabric::Lane::kUrgent);
  EXPECT_EQ(fabric_.queue->held_op(0).lane, fabric::Lane::kBulk);
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  Run();
  EXPECT_EQ(Steps().State(decode, 0), LayerState::kReady);
  EXPECT_EQ(Steps().State(prefill, 0), LayerState::kReady);
  EXPECT_EQ(Steps().State(prefill, 1), LayerState::kReady);
  for (std::size_t i = 0; i < 300; ++i) ASSERT_TRUE(IsGolden(&one.out[i * kRowBytes], RowId(i)));
  EXPECT_TRUE(AllGolden(two));
  EXPECT_TRUE(AllGolden(urgent));
}

TEST_F(PrefetcherTest, ServesWaitingLayersByTheirDeadlineAcrossTickets) {
  HoldReads();
  Rows first = Layer(0, 64), later = Layer(2000, 64, seconds(9)), soon = Layer(500, 64, seconds(2));
  Submit({&first}, StepKind::kPrefill);
  Submit({&later}, StepKind::kPrefill);
  Submit({&soon}, StepKind::kPrefill);
  ASSERT_EQ(fabric_.queue->held(), 64u);
  fabric_.queue->Release();
  Run(3);
  ASSERT_EQ(fabric_.queue->held(), 64u);
  EXPECT_EQ(HeldRow(0), RowId(500));
  prefetcher_.reset();
}

TEST_F(PrefetcherTest, ALateLayerIsCountedAndReadFromAnotherReplica) {
  Holder& slow = AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"});
  Steps();
  fabric_.queue->hold = true;
  fabric_.queue->hold_only = slow.peer;
  Rows rows = Layer(SomeRows(30), milliseconds(5));
  const Ticket ticket = Submit({&rows});
  const std::size_t held = fabric_.queue->held();
  ASSERT_GT(held, 0u);
  Run();
  EXPECT_EQ(Counters().layers_late.value(), 0u);
  clock_.Advance(milliseconds(5));
  Run();
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kReady);
  EXPECT_TRUE(Steps().Late(ticket, 0));
  EXPECT_TRUE(AllGolden(rows));
  EXPECT_EQ(fabric_.queue->held(), 0u) << "the late reads were flushed first";
  EXPECT_EQ(Counters().layers_late.value(), 1u);
  EXPECT_EQ(Counters().rows_late.value(), held);
  EXPECT_EQ(Counters().hedges_started.value(), held);
  EXPECT_EQ(Counters().hedges_won.value(), held);
}

TEST_F(PrefetcherTest, ALateLayerWithoutAReplicaGoesOnUntilTheDeadline) {
  HoldReads();
  Rows rows = Layer(0, 10, milliseconds(5)), other = Layer(2000, 200, milliseconds(5));
  const Ticket one = Submit({&rows}, StepKind::kDecode, milliseconds(50));
  const Ticket large = Submit({&other}, StepKind::kPrefill, milliseconds(50));
  clock_.Advance(milliseconds(49));
  Run();
  EXPECT_EQ(Steps().State(one, 0), LayerState::kPending);
  EXPECT_EQ(Counters().rows_late.value(), 210u);
  clock_.Advance(milliseconds(1));
  Run();
  EXPECT_EQ(Steps().State(one, 0), LayerState::kFailed);
  EXPECT_EQ(Steps().State(large, 0), LayerState::kFailed);
  EXPECT_TRUE(AllPoison(rows));
  EXPECT_TRUE(AllPoison(other));
  EXPECT_EQ(Steps().Worst(one, 0).status, ReadStatus::kTimedOut);
  EXPECT_EQ(other.status[199], ReadStatus::kTimedOut);
  EXPECT_EQ(Steps().Failure(one).node.name, "a");
  EXPECT_EQ(fabric_.queue->held(), 0u);
  EXPECT_EQ(Counters().layers_failed.value(), 2u);
}

TEST_F(PrefetcherTest, CancelsOneLayerAndLeavesTheOthers) {
  HoldReads();
  Rows one = Layer(0, 8), two = Layer(2000, 8);
  const Ticket ticket = Submit({&one, &two});
  Run(2);
  fabric_.queue->hold = false;
  Steps().Cancel(ticket, 0);
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kCancelled);
  EXPECT_TRUE(AllPoison(one));
  for (int i = 0; i < 50; ++i) {
    Steps().Progress();
    clock_.Advance(milliseconds(1));
  }
  EXPECT_EQ(Steps().State(ticket, 1), LayerState::kReady);
  EXPECT_TRUE(AllGolden(two));
  Steps().Cancel(ticket, 1);
  EXPECT_EQ(Steps().State(ticket, 1), LayerState::kReady) << "too late to cancel";
  EXPECT_EQ(Counters().layers_cancelled.value(), 1u);
}

TEST_F(PrefetcherTest, ReleaseCancelsWhatIsLandingAndWhatWasNotStarted) {
  HoldReads();
  Rows rows = Layer(0, 300);
  const Ticket ticket = Submit({&rows}, StepKind::kPrefill);
  Steps().Release(ticket);
  EXPECT_EQ(fabric_.queue->held(), 0u);
  EXPECT_TRUE(AllPoison(rows));
  EXPECT_EQ(rows.status[299], ReadStatus::kFlushed);
  EXPECT_FALSE(Steps().busy());
  fabric_.queue->hold = false;
  const Ticket next = Submit({&rows}, StepKind::kPrefill);
  Run();
  EXPECT_EQ(Steps().State(next, 0), LayerState::kReady);
}

TEST_F(PrefetcherTest, NamesTheWorstRowOfAFailedLayer) {
  AddHolder("a");
  Publish({"a"});
  Rows rows = Layer({RowId(1), RowId(spec_.Rows() + 5), RowId(2)});
  rows.layer.rows.row_status = nullptr;
  Rows none = Layer({});
  const Ticket ticket = Submit({&rows, &none});
  Run();
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kFailed);
  EXPECT_EQ(Steps().State(ticket, 1), LayerState::kReady) << "a layer without rows";
  EXPECT_EQ(Steps().Worst(ticket, 0).status, ReadStatus::kInvalid);
  EXPECT_EQ(Steps().Worst(ticket, 0).row, RowId(spec_.Rows() + 5));
  EXPECT_TRUE(IsGolden(&rows.out[0], RowId(1)));
  EXPECT_TRUE(IsPoison(&rows.out[kRowBytes]));
}

TEST_F(PrefetcherTest, AllocatesNothingAfterOpen) {
  Holder& slow = AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"}, FabricKind::kStream);
  Rows one = Layer(SomeRows(40), milliseconds(5)), large = Layer(SomeRows(400), milliseconds(5));
  const StepLayer layers[] = {one.layer, one.layer};
  const auto round = [&] {
    const Instant deadline = clock_.Now() + seconds(1);
    Ticket small, big, none;
    Steps().Submit(Step{StepKind::kDecode, layers, deadline}, &small);
    Steps().Submit(Step{StepKind::kPrefill, {&large.layer, 1}, deadline}, &big);
    for (int i = 0; i < 3; ++i) Steps().Submit(Step{StepKind::kDecode, layers, deadline}, &none);
    clock_.Advance(milliseconds(6));
    Run();
    for (std::uint32_t i = 0; i < 4; ++i) {
      for (std::uint32_t generation = 1; generation < 4; ++generation)
        Steps().Release({i, generation});
    }
  };
  round();
  const CountAllocations allocations;
  round();
  EXPECT_EQ(allocations.count(), 0);
  EXPECT_EQ(slow.name, "a");
}

class TokenPrefetcherTest : public PrefetcherTest {
 protected:
  TokenPrefetcherTest() : PrefetcherTest(TokenSpec()), addressing_(*Addressing::Make(spec_, {})) {
    options_.addressing = addressing_.get();
    options_.layers = static_cast<std::uint32_t>(spec_.addressing.layers.size());
  }
  ~TokenPrefetcherTest() override { prefetcher_.reset(); }

  std::unique_ptr<Addressing> addressing_;
};

TEST_F(TokenPrefetcherTest, ReadsTheRowsOfTokensWithLookbackAndDeadMarks) {
  AddHolder("a");
  Publish({"a"});
  const std::vector<std::int64_t> tokens = {7, 8, 9, 8}, lookback = {3, 4};
  const std::vector<std::uint8_t> dead = {0, 1, 0, 0};
  const std::uint32_t columns = addressing_->columns(), per_layer = columns / 2;
  TokenStep step;
  step.tokens = {tokens, dead, lookback, {}};
  step.deadline = clock_.Now() + seconds(1);
  std::vector<std::byte> out(tokens.size() * columns * kRowBytes);
  step.out = out.data();
  step.row_stride = kRowBytes;
  step.layer_stride = per_layer * kRowBytes;
  step.token_stride = columns * kRowBytes;
  Ticket ticket;
  ASSERT_EQ(Steps().Submit(step, &ticket), SubmitStatus::kStarted);
  Run();
  EXPECT_EQ(Steps().State(ticket, 0), LayerState::kReady);
  EXPECT_EQ(Steps().State(ticket, 1), LayerState::kReady);
  std::vector<RowId> ids(tokens.size() * columns);
  ASSERT_TRUE(addressing_->Rows(step.tokens, ids).ok());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_TRUE(IsGolden(&out[i * kRowBytes], ids[i])) << i;
}

TEST_F(TokenPrefetcherTest, ReadsAColumnSubset) {
  AddHolder("a");
  Publish({"a"});
  const std::vector<std::int64_t> tokens = {7, 8, 9};
  const std::uint32_t columns = addressing_->columns(), per_layer = columns / 2;
  TokenStep step;
  step.tokens.tokens = tokens;
  step.deadline = clock_.Now() + seconds(1);
  step.first_column = 1;
  step.columns = 2;
  std::vector<std::byte> out(2 * 3 * 2 * kRowBytes);
  step.out = out.data();
  step.row_stride = kRowBytes;
  step.token_stride = 2 * kRowBytes;
  step.layer_stride = 3 * 2 * kRowBytes;
  Ticket ticket;
  ASSERT_EQ(Steps().Submit(step, &ticket), SubmitStatus::kStarted);
  Run();
  ASSERT_TRUE(Steps().Done(ticket));
  std::vector<RowId> ids(tokens.size() * columns);
  ASSERT_TRUE(addressing_->Rows(step.tokens, ids).ok());
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (std::size_t token = 0; token < 3; ++token) {
      for (std::size_t column = 0; column < 2; ++column) {
        const std::byte* row = &out[((layer * 3 + token) * 2 + column) * kRowBytes];
        ASSERT_TRUE(IsGolden(row, ids[token * columns + layer * per_layer + 1 + column]));
      }
    }
  }
  step.first_column = per_layer - 1;
  EXPECT_EQ(Steps().Submit(step, &ticket), SubmitStatus::kBadStep);
}

TEST_F(TokenPrefetcherTest, RefusesATokenOutsideTheVocabularyAndHoldsNoTicket) {
  AddHolder("a");
  Publish({"a"});
  const std::vector<std::int64_t> tokens = {7, 50};
  TokenStep step;
  step.tokens.tokens = tokens;
  Ticket ticket;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Steps().Submit(step, &ticket), SubmitStatus::kBadTokens);
  EXPECT_EQ(Steps().refusal().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Steps().refusal().message().find("50"), absl::string_view::npos);
}

}  // namespace
}  // namespace engram::client
