// Rows that are wanted several times and read once (client/row_share.cc).
#include <gtest/gtest.h>

#include "client/row_reader.h"
#include "tests/client/held_pool.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RowShareTest : public HeldPool, public testing::Test {
 protected:
  RowShareTest() : HeldPool(SealKind::kCrc32c) {}
  ~RowShareTest() override { reader_.reset(); }

  struct Read {
    std::vector<RowId> ids;
    std::vector<std::byte> out;
    RowReader::Slot slot = RowReader::kNoSlot;
  };

  void Open(FabricKind kind) {
    AddHolder("a");
    Publish({"a"}, kind);
    reader_ = *RowReader::Open(ReaderOptions(8));
    fabric_.queue->hold = true;
  }

  void Start(Read& read, fabric::Lane lane = fabric::Lane::kUrgent, std::uint32_t ngram_rows = 1) {
    read.out.assign(read.ids.size() * kRowBytes, std::byte{0xee});
    ReadPart part;
    part.ids = read.ids.data();
    part.run_rows = static_cast<std::uint32_t>(read.ids.size());
    part.row_limit = table_->layout.rows();
    part.ngram_rows = ngram_rows;
    part.out = read.out.data();
    part.row_stride = kRowBytes;
    ReadRequest request;
    request.parts = {&part, 1};
    request.deadline = clock_.Now() + seconds(1);
    request.lane = lane;
    read.slot = reader_->Start(request);
  }
  Read Started(std::vector<RowId> ids, fabric::Lane lane = fabric::Lane::kUrgent) {
    Read read;
    read.ids = std::move(ids);
    Start(read, lane);
    return read;
  }
  // Failed rows; every other row is the golden one.
  std::uint32_t Finish(Read& read) {
    for (int i = 0; i < 100 && !reader_->Done(read.slot); ++i) {
      reader_->Progress();
      clock_.Advance(milliseconds(1));
    }
    const std::uint32_t failed = reader_->Collect(read.slot);
    for (std::size_t i = 0; failed == 0 && i < read.ids.size(); ++i)
      EXPECT_TRUE(IsGolden(&read.out[i * kRowBytes], read.ids[i])) << i;
    return failed;
  }
  std::vector<RowId> Ids(std::initializer_list<std::uint64_t> values) {
    std::vector<RowId> ids;
    for (std::uint64_t value : values) ids.push_back(RowId(value));
    return ids;
  }

  std::unique_ptr<RowReader> reader_;
};

TEST_F(RowShareTest, ASecondRequestJoinsTheReadsOfTheFirst) {
  Open(FabricKind::kStream);
  Read first = Started(Ids({1, 2, 3, 4})), second = Started(Ids({3, 4, 5}));
  EXPECT_EQ(fabric_.queue->held(), 5u);
  fabric_.queue->Release();
  reader_->Progress();
  EXPECT_EQ(Finish(second), 0u);
  EXPECT_EQ(Finish(first), 0u);
  EXPECT_EQ(reader_->counters().rows_joined.value(), 2u);
}

TEST_F(RowShareTest, ARequestThatIsOverIsNotJoined) {
  Open(FabricKind::kStream);
  fabric_.queue->hold = false;
  Read first = Started(Ids({1, 2}));
  EXPECT_EQ(Finish(first), 0u);
  Read second = Started(Ids({1, 2}));
  EXPECT_EQ(Finish(second), 0u);
  EXPECT_EQ(reader_->counters().rows_joined.value(), 0u);
}

TEST_F(RowShareTest, RowsOfACancelledRequestAreReadByThoseThatJoinedIt) {
  Open(FabricKind::kStream);
  Read first = Started(Ids({1, 2, 3})), second = Started(Ids({1, 2, 3}));
  fabric_.queue->hold = false;
  reader_->Cancel(first.slot);
  EXPECT_EQ(Finish(second), 0u);
  EXPECT_EQ(Finish(first), 3u);
  EXPECT_EQ(reader_->counters().rows_joined.value(), 0u);
}

TEST_F(RowShareTest, ACancelledRequestLeavesTheOneItJoined) {
  Open(FabricKind::kStream);
  Read first = Started(Ids({1, 2, 3})), second = Started(Ids({1, 2, 3}));
  reader_->Cancel(second.slot);
  EXPECT_EQ(Finish(second), 3u);
  EXPECT_TRUE(fabric_.queue->abandoned.empty());
  second.out.assign(second.out.size(), std::byte{0x77});
  fabric_.queue->Release();
  EXPECT_EQ(Finish(first), 0u);
  EXPECT_EQ(second.out[0], std::byte{0x77}) << "no late landing";
}

TEST_F(RowShareTest, UrgentRowsDoNotWaitForBulkOnes) {
  Open(FabricKind::kStream);
  Read bulk = Started(Ids({1, 2}), fabric::Lane::kBulk);
  Read urgent = Started(Ids({1, 2}), fabric::Lane::kUrgent);
  EXPECT_EQ(fabric_.queue->held(), 4u);
  Read more = Started(Ids({1, 2}), fabric::Lane::kBulk);
  EXPECT_EQ(fabric_.queue->held(), 4u) << "bulk rows may wait for urgent ones";
  fabric_.queue->Release();
  EXPECT_EQ(Finish(urgent), 0u);
  EXPECT_EQ(Finish(more), 0u);
  EXPECT_EQ(Finish(bulk), 0u);
}

TEST_F(RowShareTest, ALatePartReadsItsRowsByItself) {
  Open(FabricKind::kStream);
  Read first = Started(Ids({1, 2})), second = Started(Ids({1, 2}));
  EXPECT_EQ(fabric_.queue->held(), 2u);
  reader_->Hedge(second.slot, 0);
  fabric_.queue->hold = false;
  EXPECT_EQ(Finish(second), 0u);
  EXPECT_FALSE(reader_->Done(first.slot));
  fabric_.queue->Release();
  EXPECT_EQ(Finish(first), 0u);
}

TEST_F(RowShareTest, NgramsAreComparedWhole) {
  Open(FabricKind::kStream);
  fabric_.queue->hold = false;
  Read read;
  read.ids = Ids({1, 2, 1, 3, 1, 2, 4, 2});
  Start(read, fabric::Lane::kUrgent, 2);
  EXPECT_EQ(Finish(read), 0u);
  EXPECT_EQ(reader_->counters().duplicates.value(), 2u) << "the third pair repeats the first";
}

TEST_F(RowShareTest, AnNgramWithASkippedOrUnknownRowIsComparedRowByRow) {
  Open(FabricKind::kStream);
  fabric_.queue->hold = false;
  Read read;
  read.ids = Ids({1, 1u << 30, 2, 1u << 30, 1, 2});
  Start(read, fabric::Lane::kUrgent, 2);
  for (int i = 0; i < 5; ++i) reader_->Progress();
  EXPECT_EQ(reader_->Collect(read.slot), 2u);
  for (std::size_t i : {0u, 2u, 4u, 5u})
    EXPECT_TRUE(IsGolden(&read.out[i * kRowBytes], read.ids[i])) << i;
}

TEST_F(RowShareTest, MappedRowsAreReadAgainInstead) {
  Open(FabricKind::kMapped);
  Read first = Started(Ids({1, 1, 2})), second = Started(Ids({1, 2}));
  EXPECT_EQ(fabric_.queue->held(), 5u);
  fabric_.queue->Release();
  EXPECT_EQ(Finish(first), 0u);
  EXPECT_EQ(Finish(second), 0u);
}

// The first messages of a request of many rows are under way before its last row is looked up.
TEST_F(RowShareTest, RowsOfAnEarlierMessageAreNotReadAgain) {
  Open(FabricKind::kStream);
  std::vector<RowId> ids;
  for (std::uint64_t i = 0; i < 700; ++i) ids.push_back(RowId(i * 3));
  for (std::uint64_t i = 0; i < 100; ++i) ids.push_back(ids[i * 7]);
  Read read = Started(ids);
  EXPECT_EQ(fabric_.queue->held(), 700u);
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  EXPECT_EQ(Finish(read), 0u);
  EXPECT_EQ(reader_->counters().duplicates.value(), 100u);
}

TEST_F(RowShareTest, JoiningAllocatesNothing) {
  Open(FabricKind::kStream);
  Read reads[4];
  for (Read& read : reads) read.ids = SomeRows(500);
  const auto round = [&] {
    std::uint32_t failed = 0;
    fabric_.queue->hold = false;
    for (Read& read : reads) Start(read, fabric::Lane::kUrgent, 4);
    for (Read& read : reads) failed += Finish(read);
    return failed;
  };
  round();
  const CountAllocations allocations;
  EXPECT_EQ(round(), 0u);
  EXPECT_EQ(allocations.count(), 0);
}

}  // namespace
}  // namespace engram::client
