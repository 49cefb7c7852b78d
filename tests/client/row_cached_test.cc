// Rows that the cache has are not read, and what is read is kept (client/row_cached.cc).
#include <gtest/gtest.h>

#include "client/cache/private_cache.h"
#include "client/prefetcher.h"
#include "client/row_reader.h"
#include "tests/client/held_pool.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RowCachedTest : public HeldPool, public testing::Test {
 protected:
  RowCachedTest() : HeldPool(SealKind::kCrc32c) {}
  ~RowCachedTest() override { reader_.reset(); }

  struct Read {
    std::vector<RowId> ids;
    std::vector<std::byte> out;
    std::vector<ReadStatus> status;
    RowReader::Slot slot = RowReader::kNoSlot;
  };

  void Open(FabricKind kind, std::uint32_t unit_rows = 4) {
    AddHolder("a");
    Publish({"a"}, kind);
    PrivateCache::Options cache;
    cache.bytes = 256 << 10;
    cache.row_bytes = kRowBytes;
    cache.unit_rows = unit_rows;
    RowReader::Options options = ReaderOptions(8);
    options.cache = *PrivateCache::Open(cache);
    options.attempts = 2;
    reader_ = *RowReader::Open(options);
  }

  void Start(Read& read, fabric::Lane lane = fabric::Lane::kUrgent, std::uint32_t ngram_rows = 4) {
    read.out.assign(read.ids.size() * kRowBytes, std::byte{0xee});
    read.status.assign(read.ids.size(), ReadStatus::kInvalid);
    ReadPart part;
    part.ids = read.ids.data();
    part.run_rows = static_cast<std::uint32_t>(read.ids.size());
    part.row_limit = table_->layout.rows();
    part.ngram_rows = ngram_rows;
    part.out = read.out.data();
    part.row_stride = kRowBytes;
    part.row_status = read.status.data();
    ReadRequest request;
    request.parts = {&part, 1};
    request.deadline = clock_.Now() + seconds(1);
    request.lane = lane;
    read.slot = reader_->Start(request);
  }
  // Failed rows; every other row is the golden one.
  std::uint32_t Finish(Read& read) {
    for (int i = 0; i < 2000 && !reader_->Done(read.slot); ++i) {
      reader_->Progress();
      clock_.Advance(milliseconds(1));
    }
    const std::uint32_t failed = reader_->Collect(read.slot);
    for (std::size_t i = 0; i < read.ids.size(); ++i) {
      if (read.status[i] != ReadStatus::kOk) continue;
      EXPECT_TRUE(IsGolden(&read.out[i * kRowBytes], read.ids[i])) << i;
    }
    return failed;
  }
  std::uint32_t Run(std::vector<RowId> ids, std::uint32_t ngram_rows = 4) {
    Read read;
    read.ids = std::move(ids);
    Start(read, fabric::Lane::kUrgent, ngram_rows);
    return Finish(read);
  }
  std::vector<RowId> Ids(std::uint64_t first, std::size_t count) {
    std::vector<RowId> ids;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(RowId(first + i));
    return ids;
  }
  std::uint64_t ReadRows() {
    std::uint64_t rows = 0;
    for (const auto& fabric : reader_->counters().rows) {
      for (const Count& outcome : fabric) rows += outcome.value();
    }
    return rows;
  }
  const ReadCounters& Counters() { return reader_->counters(); }

  std::unique_ptr<RowReader> reader_;
};

TEST_F(RowCachedTest, TheSecondReadAsksNobody) {
  Open(FabricKind::kStream);
  EXPECT_EQ(Run(Ids(0, 40)), 0u);
  EXPECT_EQ(ReadRows(), 40u);
  EXPECT_EQ(Run(Ids(0, 40)), 0u);
  EXPECT_EQ(ReadRows(), 40u);
  EXPECT_EQ(Counters().cache_hits.value(), 40u);
  EXPECT_EQ(Counters().cache_misses.value(), 40u);
  EXPECT_EQ(Counters().cache_bytes.value(), 40u * kRowBytes);
  EXPECT_EQ(Counters().rows_delivered.value(), 80u);
}

TEST_F(RowCachedTest, ACachedPartIsReadyWhenStartReturns) {
  Open(FabricKind::kStream);
  Run(Ids(0, 8));
  fabric_.queue->hold = true;
  Read read;
  read.ids = Ids(0, 8);
  Start(read);
  EXPECT_TRUE(reader_->Done(read.slot));
  EXPECT_EQ(Finish(read), 0u);
}

TEST_F(RowCachedTest, OnlyMissesAreRead) {
  Open(FabricKind::kStream);
  Run(Ids(0, 8));
  std::vector<RowId> ids = Ids(4, 4);
  for (const RowId id : Ids(100, 4)) ids.push_back(id);
  for (const RowId id : Ids(0, 4)) ids.push_back(id);
  EXPECT_EQ(Run(ids), 0u);
  EXPECT_EQ(ReadRows(), 12u);
}

TEST_F(RowCachedTest, DuplicatesOfACachedNgramAreCopied) {
  Open(FabricKind::kStream);
  Run(Ids(0, 4));
  std::vector<RowId> ids = Ids(0, 4);
  for (const RowId id : Ids(0, 4)) ids.push_back(id);
  EXPECT_EQ(Run(ids), 0u);
  EXPECT_EQ(ReadRows(), 4u);
  EXPECT_EQ(Counters().duplicates.value(), 4u);
}

TEST_F(RowCachedTest, DuplicatesOfACachedNgramOfAnEarlierMessageAreCopied) {
  Open(FabricKind::kStream);
  Run(Ids(0, 400));
  std::vector<RowId> ids = Ids(0, 400);
  for (const RowId id : Ids(0, 8)) ids.push_back(id);
  EXPECT_EQ(Run(ids), 0u);
  EXPECT_EQ(Counters().cache_hits.value(), 400u);
  EXPECT_EQ(Counters().duplicates.value(), 8u);
}

TEST_F(RowCachedTest, SingleRowsAreUnitsOfTheirOwn) {
  Open(FabricKind::kStream);
  EXPECT_EQ(Run(Ids(0, 3), 1), 0u);
  EXPECT_EQ(Run(Ids(1, 3), 1), 0u);
  EXPECT_EQ(ReadRows(), 4u);
  EXPECT_EQ(Run(Ids(0, 4), 4), 0u);
  EXPECT_EQ(ReadRows(), 8u) << "a unit is found as it was asked for";
}

TEST_F(RowCachedTest, NgramsLargerThanTheCachesUnitAreKeptRowByRow) {
  Open(FabricKind::kStream, 2);
  EXPECT_EQ(Run(Ids(0, 8), 8), 0u);
  EXPECT_EQ(Run(Ids(0, 8), 8), 0u);
  EXPECT_EQ(ReadRows(), 8u);
}

TEST_F(RowCachedTest, MappedRowsAreReadAgain) {
  Open(FabricKind::kMapped);
  EXPECT_EQ(Run(Ids(0, 8)), 0u);
  EXPECT_EQ(Run(Ids(0, 8)), 0u);
  EXPECT_EQ(ReadRows(), 16u);
  EXPECT_EQ(Counters().cache_hits.value() + Counters().cache_misses.value(), 0u);
}

TEST_F(RowCachedTest, ARowThatFailedIsNotKept) {
  Open(FabricKind::kStream);
  *Stored(*holders_[0], RowId(2)) ^= std::byte{1};
  EXPECT_EQ(Run(Ids(0, 8)), 1u);
  EXPECT_EQ(Counters().cache_bytes.value(), 4u * kRowBytes) << "the other n-gram was delivered";
  Store(*holders_[0], RowId(2));
  EXPECT_EQ(Run(Ids(0, 8)), 0u);
  EXPECT_EQ(Counters().cache_hits.value(), 4u);
}

TEST_F(RowCachedTest, ACancelledReadKeepsNothing) {
  Open(FabricKind::kStream);
  fabric_.queue->hold = true;
  Read read;
  read.ids = Ids(0, 8);
  Start(read);
  fabric_.queue->ReleaseSome(4);
  reader_->Progress();
  reader_->Cancel(read.slot);
  EXPECT_EQ(Finish(read), 4u);
  EXPECT_EQ(Counters().cache_bytes.value(), 0u);
}

TEST_F(RowCachedTest, RowsReadUnderALeaseThatRanOutAreNotKept) {
  Open(FabricKind::kStream);
  holders_[0]->lease = std::make_shared<ReadLease>(clock_.Now() + milliseconds(1));
  Publish({"a"}, FabricKind::kStream);
  fabric_.queue->hold = true;
  Read read;
  read.ids = Ids(0, 8);
  Start(read);
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  clock_.Advance(milliseconds(2));
  reader_->Progress();
  EXPECT_GE(Counters().leases_expired.value(), 1u);
  EXPECT_EQ(Finish(read), 8u);
  EXPECT_EQ(Counters().cache_bytes.value(), 0u);
}

TEST_F(RowCachedTest, WhatJoinedAReadIsKeptOnce) {
  Open(FabricKind::kStream);
  fabric_.queue->hold = true;
  Read first, second;
  first.ids = second.ids = Ids(0, 8);
  Start(first);
  Start(second);
  EXPECT_EQ(fabric_.queue->held(), 8u);
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  EXPECT_EQ(Finish(first) + Finish(second), 0u);
  EXPECT_EQ(Counters().cache_bytes.value(), 8u * kRowBytes);
}

TEST_F(RowCachedTest, AllocatesNothing) {
  Open(FabricKind::kStream);
  Read read;
  read.ids = SomeRows(400);
  const auto round = [&] {
    Start(read);
    return Finish(read);
  };
  round();
  const CountAllocations allocations;
  EXPECT_EQ(round(), 0u);
  read.ids[0] = RowId(read.ids[0].value() ^ 1);
  EXPECT_EQ(round(), 0u);
  EXPECT_EQ(allocations.count(), 0);
  EXPECT_LE(ReadRows(), 404u);
}

}  // namespace
}  // namespace engram::client
