#include "client/row_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/client/held_pool.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RowReaderTest : public HeldPool, public testing::TestWithParam<SealKind> {
 protected:
  RowReaderTest() : HeldPool(GetParam()) {}
  ~RowReaderTest() override { reader_.reset(); }

  RowReader& Reader() {
    if (reader_ == nullptr) {
      auto opened = RowReader::Open(ReaderOptions(64));
      EXPECT_TRUE(opened.ok()) << opened.status();
      reader_ = *std::move(opened);
    }
    return *reader_;
  }

  ReadPart PartOf(const std::vector<RowId>& ids) {
    out_.assign(ids.size() * kRowBytes, std::byte{0xee});
    status_.assign(ids.size(), ReadStatus::kInvalid);
    ReadPart part;
    part.ids = ids.data();
    part.run_rows = static_cast<std::uint32_t>(ids.size());
    part.row_limit = table_->layout.rows();
    part.out = out_.data();
    part.row_stride = kRowBytes;
    part.row_status = status_.data();
    return part;
  }

  RowReader::Slot Start(const ReadPart& part, Duration deadline = seconds(1)) {
    ReadRequest request;
    request.parts = {&part, 1};
    request.deadline = clock_.Now() + deadline;
    return Reader().Start(request);
  }

  // Steps the clock by a millisecond and makes progress until the slot is done.
  std::uint32_t Finish(RowReader::Slot slot) {
    for (int i = 0; i < 10'000 && !Reader().Done(slot); ++i) {
      Reader().Progress();
      clock_.Advance(milliseconds(1));
    }
    EXPECT_TRUE(Reader().Done(slot));
    failure_ = Reader().Failure(slot);
    return Reader().Collect(slot);
  }

  std::unique_ptr<RowReader> reader_;
  std::vector<std::byte> out_;
  std::vector<ReadStatus> status_;
  ReadFailure failure_;
};

TEST_P(RowReaderTest, LandsEveryRowInTheCallersMemory) {
  AddHolder("a");
  Publish({"a"});
  const auto ids = SomeRows(1000);
  ASSERT_EQ(Finish(Start(PartOf(ids))), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i])) << i;
    ASSERT_EQ(status_[i], ReadStatus::kOk);
  }
  EXPECT_EQ(Reader().counters().rows_delivered.value(), 1000u);
  EXPECT_EQ(failure_.status, ReadStatus::kOk);
}

TEST_P(RowReaderTest, TakesLayerLocalIdsInRunsAndWritesThemWithStrides) {
  AddHolder("a");
  Publish({"a"});
  // Two tokens, two columns each, out of ids laid out [token][3]; rows 8 bytes apart, tokens 100.
  const std::vector<std::int32_t> ids = {0, 1003, 77, 5, -1, 77};
  out_.assign(2 * (2 * (kRowBytes + 8) + 100), std::byte{0xee});
  ReadPart part;
  part.ids = ids.data();
  part.id_kind = ReadPart::IdKind::kInt32;
  part.runs = 2;
  part.run_rows = 2;
  part.run_id_stride = 3;
  part.first_row = spec_.columns[0].rows + spec_.columns[1].rows;  // the second layer
  part.row_limit = spec_.columns[2].rows + spec_.columns[3].rows;
  part.out = out_.data();
  part.row_stride = kRowBytes + 8;
  part.run_stride = 2 * (kRowBytes + 8) + 100;
  ASSERT_EQ(Finish(Start(part)), 0u);
  EXPECT_TRUE(IsGolden(&out_[0], RowId(part.first_row)));
  EXPECT_TRUE(IsGolden(&out_[kRowBytes + 8], RowId(part.first_row + 1003)));
  EXPECT_TRUE(IsGolden(&out_[part.run_stride], RowId(part.first_row + 5)));
  const std::byte* skipped = &out_[part.run_stride + kRowBytes + 8];
  EXPECT_TRUE(
      std::all_of(skipped, skipped + kRowBytes, [](std::byte b) { return b == std::byte{}; }));
  EXPECT_EQ(out_[kRowBytes], std::byte{0xee}) << "bytes between rows are the caller's";
  EXPECT_EQ(Reader().counters().rows_skipped.value(), 1u);
}

TEST_P(RowReaderTest, PoisonsRowsThatDoNotExistAndReadsTheOthers) {
  AddHolder("a");
  Publish({"a"});
  const std::vector<RowId> ids = {RowId(1), RowId(spec_.Rows()), RowId(~std::uint64_t{0}),
                                  RowId(2)};
  ASSERT_EQ(Finish(Start(PartOf(ids))), 2u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
  EXPECT_TRUE(IsPoison(&out_[kRowBytes]));
  EXPECT_TRUE(IsPoison(&out_[2 * kRowBytes]));
  EXPECT_TRUE(IsGolden(&out_[3 * kRowBytes], ids[3]));
  EXPECT_EQ(status_, (std::vector<ReadStatus>{ReadStatus::kOk, ReadStatus::kInvalid,
                                              ReadStatus::kInvalid, ReadStatus::kOk}));
  EXPECT_EQ(failure_.status, ReadStatus::kInvalid);
  EXPECT_EQ(failure_.row, ids[1]);
}

TEST_P(RowReaderTest, RefusesRequestsThatAreTooLargeAndWaitsForAFreeSlot) {
  AddHolder("a");
  Publish({"a"});
  const auto ids = SomeRows(5000);
  EXPECT_EQ(Start(PartOf(ids)), RowReader::kTooLarge);
  const auto few = SomeRows(3);
  std::vector<RowReader::Slot> slots;
  for (int i = 0; i < 4; ++i) slots.push_back(Start(PartOf(few)));
  EXPECT_EQ(Start(PartOf(few)), RowReader::kNoSlot);
  EXPECT_EQ(Finish(slots[2]), 0u);
  EXPECT_EQ(Start(PartOf(few)), slots[2]);
}

TEST_P(RowReaderTest, AnEmptyRequestIsDoneAtOnce) {
  const auto slot = Reader().Start({});
  ASSERT_GE(slot, 0);
  EXPECT_TRUE(Reader().Done(slot));
  EXPECT_EQ(Reader().Collect(slot), 0u);
}

TEST_P(RowReaderTest, ReadsFromAnotherReplicaWhenANodeIsGone) {
  AddHolder("a").target->Stop();
  AddHolder("b");
  Publish({"a", "b"});
  const auto ids = SomeRows(500);
  ASSERT_EQ(Finish(Start(PartOf(ids))), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i])) << i;
  EXPECT_GT(Reader().counters().retries.value(), 0u);
  EXPECT_EQ(failure_.node.name, "a");
  EXPECT_EQ(failure_.status, ReadStatus::kUnreachable);
}

// One node, two NICs: a path by each, both to the same session.
TEST_P(RowReaderTest, SpreadsOverThePathsOfANodeAndGoesOnWhenOneIsGone) {
  const Holder& first = AddHolder("a");
  const Holder& second = AddHolder("by another NIC");
  const std::uint32_t shards = table_->layout.shards();
  Routes::Builder::Options options;
  options.shards = shards;
  Routes::Builder builder(options);
  const auto session = builder.AddSession({{"a"}, Incarnation(1), GrantRevision(1), first.lease});
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    builder.Add(ShardIndex(shard), session, 0, PathAddress(), first.shards[shard]);
    builder.Add(ShardIndex(shard), session, 0, PathAddress(), second.shards[shard]);
  }
  const auto routes = builder.Build();
  std::uint32_t by_first = 0;
  for (std::uint32_t shard = 0; shard < shards; ++shard)
    by_first += routes->Best(ShardIndex(shard))->region.peer == first.peer ? 1 : 0;
  EXPECT_EQ(by_first, shards / 2);
  board_.Publish(routes);
  second.target->Stop();
  const auto ids = SomeRows(500);
  ASSERT_EQ(Finish(Start(PartOf(ids))), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i])) << i;
  EXPECT_GT(Reader().counters().retries.value(), 0u);
}

TEST_P(RowReaderTest, NamesNodeAndCauseWhenEveryReplicaIsGone) {
  AddHolder("a").target->Stop();
  Publish({"a"});
  const auto ids = SomeRows(20);
  ASSERT_EQ(Finish(Start(PartOf(ids))), 20u);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(IsPoison(&out_[i * kRowBytes]));
    ASSERT_EQ(status_[i], ReadStatus::kUnreachable);
  }
  EXPECT_EQ(failure_.node.name, "a");
}

TEST_P(RowReaderTest, FailsAtOnceWhenNobodyServesTheShard) {
  Publish({});
  const auto ids = SomeRows(2);
  const auto slot = Start(PartOf(ids));
  EXPECT_TRUE(Reader().Done(slot));
  EXPECT_EQ(Reader().State(slot, 0), PartState::kFailed);
  EXPECT_EQ(Reader().Collect(slot), 2u);
  EXPECT_EQ(status_[0], ReadStatus::kNoReplica);
}

TEST_P(RowReaderTest, WaitsForSessionsThatAreBeingOpened) {
  AddHolder("a");
  Publish({}, FabricKind::kLoopback, /*incomplete=*/true);
  const auto ids = SomeRows(20);
  const auto slot = Start(PartOf(ids));
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(milliseconds(1));
    Reader().Progress();
  }
  EXPECT_FALSE(Reader().Done(slot));
  Publish({"a"});
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
}

TEST_P(RowReaderTest, TriesANodeThatCannotBeReachedUntilTheDeadlineWhileItsSessionIsOpenedAgain) {
  AddHolder("a").target->Stop();
  AddHolder("b");
  Publish({"a"}, FabricKind::kLoopback, /*incomplete=*/true);
  const auto ids = SomeRows(20);
  const auto slot = Start(PartOf(ids), seconds(10));
  for (int i = 0; i < 2'000; ++i) {  // more than eight attempts
    clock_.Advance(milliseconds(1));
    Reader().Progress();
  }
  ASSERT_FALSE(Reader().Done(slot));
  Publish({"b"});
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
}

TEST_P(RowReaderTest, DoesNotReportBeforeTheReadsOfALateNodeAreFlushed) {
  Holder& holder = AddHolder("a");
  Publish({"a"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids), milliseconds(10));
  clock_.Advance(milliseconds(9));
  Reader().Progress();
  EXPECT_FALSE(Reader().Done(slot));
  EXPECT_TRUE(fabric_.queue->abandoned.empty());
  clock_.Advance(milliseconds(1));
  Reader().Progress();
  ASSERT_TRUE(Reader().Done(slot));
  EXPECT_EQ(fabric_.queue->abandoned, std::vector<fabric::PeerId>{holder.peer});
  EXPECT_EQ(fabric_.queue->held(), 0u);
  EXPECT_EQ(Reader().Failure(slot).node.name, "a");
  EXPECT_EQ(Reader().Failure(slot).status, ReadStatus::kTimedOut);
  EXPECT_EQ(Reader().Collect(slot), 20u);
  EXPECT_EQ(status_[0], ReadStatus::kTimedOut);
  EXPECT_TRUE(IsPoison(&out_[0]));
}

TEST_P(RowReaderTest, LeavesALateNodeForAnotherReplicaAtHalfTheDeadline) {
  AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids), milliseconds(100));
  clock_.Advance(milliseconds(50));
  fabric_.queue->hold = false;
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
}

TEST_P(RowReaderTest, CancelFlushesAndMarksTheRows) {
  AddHolder("a");
  Publish({"a"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids));
  Reader().Cancel(slot);
  ASSERT_TRUE(Reader().Done(slot));
  EXPECT_EQ(fabric_.queue->held(), 0u);
  EXPECT_EQ(Reader().Collect(slot), 20u);
  EXPECT_EQ(status_[7], ReadStatus::kFlushed);
}

TEST_P(RowReaderTest, DiscardsRowsWhoseLeaseRanOutAndReadsThemAgain) {
  Holder& holder = AddHolder("a");
  Publish({"a"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids), seconds(1000));
  clock_.Advance(seconds(101));  // past the lease; the memory may be another table's by now
  std::memset(holder.slab->data(), 0x55, holder.slab->bytes());
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  if (GetParam() == SealKind::kNone) {
    Reader().Progress();
    EXPECT_FALSE(Reader().Done(slot));
    EXPECT_GE(Reader().counters().leases_expired.value(), 1u);
  }
  for (std::uint64_t row = 0; row < spec_.Rows(); ++row) Store(holder, RowId(row));
  holder.lease->Extend(clock_.Now() + seconds(1000));
  ASSERT_EQ(Finish(slot), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i]));
}

TEST_P(RowReaderTest, KeepsItsPassOpenUntilTheLastReadIsOver) {
  AddHolder("a");
  Publish({"a"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids));
  Publish({});
  const RouteVersion version = quiescence_.current();
  EXPECT_FALSE(quiescence_.Past(version));
  fabric_.queue->Release();
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_TRUE(quiescence_.Past(version));
}

TEST_P(RowReaderTest, FollowsNewRoutesWhenAReadIsRefused) {
  Holder& old_holder = AddHolder("a");
  AddHolder("b");
  Publish({"a"});
  for (const auto& region : old_holder.shards) old_holder.target->Hide(region.key);
  const auto ids = SomeRows(20);
  const auto slot = Start(PartOf(ids));
  EXPECT_FALSE(Reader().Done(slot));
  Publish({"b"});
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
}

TEST_P(RowReaderTest, ReadsEqualRowsOnceWhereMessagesAreSent) {
  AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"}, FabricKind::kStream);
  std::vector<RowId> ids = SomeRows(300);
  const auto once = ids;
  ids.insert(ids.end(), once.begin(), once.end());
  ASSERT_EQ(Finish(Start(PartOf(ids))), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i])) << i;
  EXPECT_GE(Reader().counters().duplicates.value(), 300u);
}

TEST_P(RowReaderTest, ReportsEachPartByItself) {
  Holder& holder = AddHolder("a");
  AddHolder("b");
  Publish({"a"});
  Reader();
  const std::vector<RowId> ids = {RowId(1), RowId(2)};
  std::vector<std::byte> out(2 * kRowBytes);
  ReadPart parts[2];
  for (int i = 0; i < 2; ++i) {
    parts[i].ids = &ids[i];
    parts[i].run_rows = 1;
    parts[i].row_limit = i == 0 ? spec_.Rows() : 0;  // nothing exists in the second part
    parts[i].out = out.data() + i * kRowBytes;
    parts[i].row_stride = kRowBytes;
  }
  fabric_.queue->hold = true;
  ReadRequest request;
  request.parts = parts;
  request.deadline = clock_.Now() + seconds(1);
  const auto slot = Reader().Start(request);
  EXPECT_EQ(Reader().State(slot, 0), PartState::kPending);
  EXPECT_EQ(Reader().State(slot, 1), PartState::kFailed);
  fabric_.queue->Release();
  EXPECT_EQ(Finish(slot), 1u);
  EXPECT_TRUE(IsGolden(out.data(), ids[0]));
  EXPECT_TRUE(IsPoison(out.data() + kRowBytes));
  EXPECT_EQ(holder.name, "a");
}

TEST_P(RowReaderTest, AHedgeReplacesALateRowOnlyAfterTheFirstReadIsFlushed) {
  Holder& late = AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  fabric_.queue->hold_only = late.peer;
  const auto slot = Start(PartOf(ids));
  const std::size_t held = fabric_.queue->held();
  ASSERT_GT(held, 0u);
  EXPECT_EQ(Reader().Hedge(slot, 0), held);
  EXPECT_EQ(Reader().Hedge(slot, 0), 0u) << "a part is hedged once";
  EXPECT_TRUE(fabric_.queue->abandoned.empty());
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_EQ(fabric_.queue->abandoned, std::vector<fabric::PeerId>{late.peer});
  EXPECT_EQ(fabric_.queue->held(), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i]));
  EXPECT_EQ(Reader().counters().hedges_started.value(), held);
  EXPECT_EQ(Reader().counters().hedges_won.value(), held);
  EXPECT_EQ(Reader().counters().retries.value(), 0u);
}

TEST_P(RowReaderTest, AFirstReadThatCompletesIsTakenInsteadOfItsHedge) {
  AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"});
  const auto ids = SomeRows(20);
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids));
  ASSERT_EQ(Reader().Hedge(slot, 0), 20u);
  fabric_.queue->Release();
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
  EXPECT_EQ(Reader().counters().hedges_won.value(), 0u);
  EXPECT_TRUE(fabric_.queue->abandoned.empty());
  EXPECT_FALSE(Reader().hedging());
}

TEST_P(RowReaderTest, AHedgeThatHangsKeepsItsPassOpenUntilItIsFlushedAtTheDeadline) {
  AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"});
  const std::vector<RowId> ids = {RowId(1)};
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids), milliseconds(100));
  const fabric::PeerId first = fabric_.queue->held_op(0).region.peer;
  ASSERT_EQ(Reader().Hedge(slot, 0), 1u);
  fabric_.queue->ReleaseFrom(first);
  Reader().Progress();
  ASSERT_TRUE(Reader().Done(slot));
  Reader().Collect(slot);
  Publish({});
  EXPECT_TRUE(Reader().hedging());
  EXPECT_FALSE(quiescence_.Past(quiescence_.current()));
  clock_.Advance(milliseconds(100));
  Reader().Progress();
  EXPECT_FALSE(Reader().hedging());
  EXPECT_TRUE(quiescence_.Past(quiescence_.current()));
  EXPECT_EQ(fabric_.queue->held(), 0u);
}

TEST_P(RowReaderTest, AHedgeUnderALeaseThatRanOutDoesNotWin) {
  Holder& late = AddHolder("a");
  Holder& other = AddHolder("b");
  other.lease = std::make_shared<ReadLease>(clock_.Now() + milliseconds(10));
  Publish({"a", "b"});
  std::vector<RowId> ids;
  for (RowId id : SomeRows(40)) {
    if (board_.Shared()->Best(table_->layout.Locate(id).shard)->region.peer == late.peer)
      ids.push_back(id);
  }
  Reader();
  fabric_.queue->hold = true;
  const auto slot = Start(PartOf(ids));
  ASSERT_EQ(Reader().Hedge(slot, 0), ids.size());
  clock_.Advance(milliseconds(20));
  fabric_.queue->ReleaseFrom(other.peer);
  Reader().Progress();
  EXPECT_FALSE(Reader().Done(slot));
  EXPECT_TRUE(fabric_.queue->abandoned.empty());
  fabric_.queue->Release();
  EXPECT_EQ(Finish(slot), 0u);
  EXPECT_EQ(Reader().counters().hedges_won.value(), 0u);
}

TEST_P(RowReaderTest, CancellingAPartLeavesTheOthers) {
  AddHolder("a");
  Publish({"a"});
  Reader();
  const auto ids = SomeRows(20);
  const ReadPart whole = PartOf(ids);
  ReadPart parts[2] = {whole, whole};
  parts[0].run_rows = parts[1].run_rows = 10;
  parts[1].ids = ids.data() + 10;
  parts[1].out += 10 * kRowBytes;
  parts[1].row_status += 10;
  ReadRequest request;
  request.parts = parts;
  request.deadline = clock_.Now() + seconds(1);
  fabric_.queue->hold = true;
  const auto slot = Reader().Start(request);
  Reader().Progress();
  Reader().CancelPart(slot, 0);
  EXPECT_EQ(Reader().State(slot, 0), PartState::kFailed);
  EXPECT_EQ(Reader().State(slot, 1), PartState::kPending);
  EXPECT_EQ(status_[3], ReadStatus::kFlushed);
  EXPECT_TRUE(IsPoison(&out_[0]));
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  EXPECT_EQ(Finish(slot), 10u);
  for (std::size_t i = 10; i < 20; ++i) ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i])) << i;
}

TEST_P(RowReaderTest, AllocatesNothingAfterOpen) {
  AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"}, FabricKind::kStream);
  const auto ids = SomeRows(700);
  const ReadPart part = PartOf(ids);
  ASSERT_EQ(Finish(Start(part)), 0u);
  const CountAllocations allocations;
  const auto slot = Start(part);
  const std::uint32_t failed = Finish(slot);
  EXPECT_EQ(allocations.count(), 0);
  EXPECT_EQ(failed, 0u);
}

class SealedReaderTest : public RowReaderTest {};

TEST_P(SealedReaderTest, AnotherReplicaReplacesARowThatFailsItsSeal) {
  Holder& bad = AddHolder("a");
  AddHolder("b");
  Publish({"a", "b"});
  const auto ids = SomeRows(200);
  for (RowId id : ids) Stored(bad, id)[5] ^= std::byte{1};
  ASSERT_EQ(Finish(Start(PartOf(ids))), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_TRUE(IsGolden(&out_[i * kRowBytes], ids[i])) << i;
  EXPECT_GT(Reader().counters().seal_failures.value(), 0u);
}

TEST_P(SealedReaderTest, PoisonsARowThatFailsItsSealEverywhere) {
  Holder& bad = AddHolder("a");
  Publish({"a"});
  const std::vector<RowId> ids = {RowId(10), RowId(11), RowId(12)};
  Stored(bad, ids[1])[39] ^= std::byte{0x80};
  ASSERT_EQ(Finish(Start(PartOf(ids))), 1u);
  EXPECT_TRUE(IsGolden(&out_[0], ids[0]));
  EXPECT_TRUE(IsPoison(&out_[kRowBytes]));
  EXPECT_TRUE(IsGolden(&out_[2 * kRowBytes], ids[2]));
  EXPECT_EQ(status_[1], ReadStatus::kCorrupt);
  EXPECT_EQ(failure_.row, ids[1]);
  EXPECT_EQ(failure_.node.name, "a");
}

INSTANTIATE_TEST_SUITE_P(Seals, RowReaderTest, testing::Values(SealKind::kNone, SealKind::kCrc32c));
INSTANTIATE_TEST_SUITE_P(Seals, SealedReaderTest, testing::Values(SealKind::kCrc32c));

}  // namespace
}  // namespace engram::client
