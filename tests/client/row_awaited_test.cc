// Rows that another process of the host reads are waited for, a moment (client/row_cached.cc). Two
// readers with a host cache each, as two processes have them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "client/cache/host_cache.h"
#include "client/row_reader.h"
#include "tests/client/held_pool.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class RowAwaitedTest : public HeldPool, public testing::Test {
 protected:
  RowAwaitedTest()
      : HeldPool(SealKind::kCrc32c),
        folder_("/dev/shm/engram_row_awaited_test." + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
    AddHolder("a");
    Publish({"a"}, FabricKind::kStream);
    for (Process* process : {&one_, &other_, &third_}) Open(*process);
  }
  ~RowAwaitedTest() override {
    for (Process* process : {&one_, &other_, &third_}) process->reader.reset();
    std::filesystem::remove_all(folder_);
  }

  struct Process {
    std::unique_ptr<RowReader> reader;
    HeldQueue* queue = nullptr;
    const ReadCounters& counters() const { return reader->counters(); }
  };
  struct Read {
    std::vector<RowId> ids;
    std::vector<std::byte> out;
    RowReader::Slot slot = RowReader::kNoSlot;
    fabric::Lane lane = fabric::Lane::kUrgent;
    Instant needed_by = Instant::max();
  };

  void Open(Process& process) {
    HostCache::Options cache;
    cache.bytes = 256 << 10;
    cache.tenant = "t";
    cache.table = table_->uid;
    cache.row_bytes = kRowBytes;
    cache.unit_rows = 4;
    cache.clock = &clock_;
    cache.folder = folder_;
    auto opened = HostCache::Open(cache);
    ASSERT_TRUE(opened.ok()) << opened.status();
    RowReader::Options options = ReaderOptions(8);
    options.cache = *std::move(opened);
    process.reader = *RowReader::Open(options);
    process.queue = fabric_.queue;
    process.queue->hold = true;
  }
  void Start(Process& process, Read& read) {
    read.out.assign(read.ids.size() * kRowBytes, std::byte{0xee});
    ReadPart part;
    part.ids = read.ids.data();
    part.run_rows = static_cast<std::uint32_t>(read.ids.size());
    part.row_limit = table_->layout.rows();
    part.ngram_rows = 4;
    part.out = read.out.data();
    part.row_stride = kRowBytes;
    ReadRequest request;
    request.parts = {&part, 1};
    request.deadline = clock_.Now() + seconds(1);
    request.needed_by = read.needed_by;
    request.lane = read.lane;
    read.slot = process.reader->Start(request);
  }
  Read Started(Process& process, std::uint64_t first, std::size_t count,
               fabric::Lane lane = fabric::Lane::kUrgent) {
    Read read;
    for (std::size_t i = 0; i < count; ++i) read.ids.push_back(RowId(first + i));
    read.lane = lane;
    Start(process, read);
    return read;
  }
  void Release(Process& process) {
    process.queue->hold = false;
    process.queue->Release();
    process.reader->Progress();
  }
  // Until it is done or so long; returns whether it is.
  bool Runs(Process& process, const Read& read, Duration most) {
    for (Duration spent{}; !process.reader->Done(read.slot) && spent < most;
         spent += microseconds(50)) {
      clock_.Advance(microseconds(50));
      process.reader->Progress();
    }
    return process.reader->Done(read.slot);
  }
  // Failed rows; every other row is the golden one.
  std::uint32_t Finish(Process& process, const Read& read) {
    EXPECT_TRUE(Runs(process, read, seconds(2)));
    const std::uint32_t failed = process.reader->Collect(read.slot);
    for (std::size_t i = 0; failed == 0 && i < read.ids.size(); ++i)
      EXPECT_TRUE(IsGolden(&read.out[i * kRowBytes], read.ids[i])) << i;
    return failed;
  }

  const std::string folder_;
  Process one_, other_, third_;
};

TEST_F(RowAwaitedTest, WhatOneReadsTheOtherTakes) {
  Read first = Started(one_, 0, 16), second = Started(other_, 8, 16);
  EXPECT_EQ(one_.queue->held(), 16u);
  EXPECT_EQ(other_.queue->held(), 8u) << "two n-grams of four are the first one's";
  Release(other_);
  EXPECT_FALSE(other_.reader->Done(second.slot));
  Release(one_);
  EXPECT_EQ(Finish(one_, first), 0u);
  EXPECT_EQ(Finish(other_, second), 0u);
  EXPECT_EQ(other_.counters().cache_hits.value(), 8u);
  EXPECT_EQ(other_.counters().cache_misses.value(), 8u);
  EXPECT_EQ(other_.counters().bytes_received.value(), 8u * table_->layout.stride());
}

TEST_F(RowAwaitedTest, OneThatDoesNotComeBackIsWaitedForAMomentOnly) {
  Read first = Started(one_, 0, 8), second = Started(other_, 0, 8);
  other_.queue->hold = false;
  EXPECT_FALSE(Runs(other_, second, milliseconds(19)));
  EXPECT_TRUE(Runs(other_, second, milliseconds(5)));
  EXPECT_EQ(Finish(other_, second), 0u);
  EXPECT_EQ(other_.counters().cache_misses.value(), 8u);
  // What it read is the first one's, too, if that ever goes on.
  Read third = Started(other_, 0, 8);
  EXPECT_EQ(Finish(other_, third), 0u);
  EXPECT_EQ(other_.counters().cache_hits.value(), 8u);
  Release(one_);
  EXPECT_EQ(Finish(one_, first), 0u);
}

TEST_F(RowAwaitedTest, HalfTheTimeUntilTheRowsAreNeededIsForReadingThem) {
  Read first = Started(one_, 0, 8), second, third;
  other_.queue->hold = false;
  second.ids = third.ids = first.ids;
  second.needed_by = clock_.Now() + microseconds(600);
  Start(other_, second);
  EXPECT_FALSE(Runs(other_, second, microseconds(250)));
  EXPECT_TRUE(Runs(other_, second, microseconds(250)));
  EXPECT_EQ(Finish(other_, second), 0u);
  Read fourth = Started(one_, 100, 8);
  third.ids = fourth.ids;
  third.needed_by = clock_.Now() - microseconds(1);
  Start(other_, third);
  other_.reader->Progress();
  EXPECT_TRUE(other_.reader->Done(third.slot)) << "it is late already";
  EXPECT_EQ(Finish(other_, third), 0u);
  Release(one_);
  EXPECT_EQ(Finish(one_, first) + Finish(one_, fourth), 0u);
}

TEST_F(RowAwaitedTest, WhatIsCancelledThereIsReadHere) {
  Read first = Started(one_, 0, 8), second = Started(other_, 0, 8);
  other_.queue->hold = false;
  one_.reader->Cancel(first.slot);
  EXPECT_EQ(Finish(one_, first), 8u);
  EXPECT_TRUE(Runs(other_, second, microseconds(100)));
  EXPECT_EQ(Finish(other_, second), 0u);
}

TEST_F(RowAwaitedTest, TwoThatWaitForEachOtherGiveWhatTheyHave) {
  Read gone = Started(third_, 0, 4);
  Read first = Started(one_, 0, 8);
  third_.reader->Cancel(gone.slot);
  EXPECT_EQ(Finish(third_, gone), 4u);
  Read second = Started(other_, 0, 8);
  EXPECT_EQ(one_.queue->held(), 4u) << "the second n-gram";
  EXPECT_EQ(other_.queue->held(), 4u) << "the first";
  Release(one_);
  Release(other_);
  for (int i = 0; i < 10; ++i) {
    Runs(one_, first, microseconds(50));
    Runs(other_, second, microseconds(50));
  }
  EXPECT_TRUE(one_.reader->Done(first.slot) && other_.reader->Done(second.slot));
  EXPECT_EQ(Finish(one_, first) + Finish(other_, second), 0u);
  EXPECT_EQ(one_.counters().cache_hits.value(), 4u);
  EXPECT_EQ(other_.counters().cache_hits.value(), 4u);
}

TEST_F(RowAwaitedTest, WhatDoesNotComePieceByPieceIsReadAtOnceEachTime) {
  std::vector<Read> reads;
  for (std::uint64_t i = 0; i < 4; ++i) reads.push_back(Started(one_, 4 * i, 4));
  Read all = Started(other_, 0, 16);
  other_.queue->hold = false;
  for (const Read& read : reads) {
    EXPECT_FALSE(other_.reader->Done(all.slot));
    one_.reader->Cancel(read.slot);
    EXPECT_EQ(Finish(one_, read), 4u);
    Runs(other_, all, microseconds(150));
  }
  EXPECT_TRUE(other_.reader->Done(all.slot)) << "no time passes between tries";
  EXPECT_EQ(Finish(other_, all), 0u);
}

TEST_F(RowAwaitedTest, ACancelledRequestWaitsNoMore) {
  Read first = Started(one_, 0, 8), second = Started(other_, 0, 8);
  other_.reader->Cancel(second.slot);
  EXPECT_EQ(Finish(other_, second), 8u);
  second.out.assign(second.out.size(), std::byte{0x77});
  Release(one_);
  EXPECT_EQ(Finish(one_, first), 0u);
  for (int i = 0; i < 100; ++i) {
    clock_.Advance(microseconds(50));
    other_.reader->Progress();
  }
  EXPECT_EQ(second.out[0], std::byte{0x77}) << "no late landing";
}

TEST_F(RowAwaitedTest, ALatePartReadsItsRowsByItself) {
  Read first = Started(one_, 0, 8), second = Started(other_, 0, 8);
  other_.queue->hold = false;
  other_.reader->Hedge(second.slot, 0);
  EXPECT_TRUE(Runs(other_, second, microseconds(100)));
  EXPECT_EQ(Finish(other_, second), 0u);
  Release(one_);
  EXPECT_EQ(Finish(one_, first), 0u);
}

TEST_F(RowAwaitedTest, AStepDoesNotWaitForBulkReads) {
  Read bulk = Started(one_, 0, 8, fabric::Lane::kBulk);
  Read step = Started(other_, 0, 8);
  EXPECT_EQ(other_.queue->held(), 8u);
  Read more = Started(one_, 0, 8, fabric::Lane::kBulk);
  EXPECT_EQ(one_.queue->held(), 8u) << "it joined its own";
  Release(other_);
  EXPECT_EQ(Finish(other_, step), 0u);
  Release(one_);
  EXPECT_EQ(Finish(one_, bulk) + Finish(one_, more), 0u);
}

TEST_F(RowAwaitedTest, ASleeperLooksInTime) {
  Read first = Started(one_, 0, 8), second = Started(other_, 0, 8);
  RowReader::Nap nap;
  nap.until = clock_.Now() + seconds(1);
  EXPECT_TRUE(other_.reader->Arm(clock_.Now(), &nap));
  EXPECT_LE(nap.until, clock_.Now() + microseconds(100));
  Release(one_);
  EXPECT_EQ(Finish(one_, first), 0u);
  EXPECT_EQ(Finish(other_, second), 0u);
}

TEST_F(RowAwaitedTest, AllocatesNothing) {
  one_.queue->hold = other_.queue->hold = false;
  Read first, second;
  first.ids = second.ids = SomeRows(400);
  const auto round = [&](fabric::Lane lane) {
    first.lane = second.lane = lane;
    one_.queue->hold = true;
    Start(one_, first);
    Start(other_, second);
    Release(one_);
    return Finish(one_, first) + Finish(other_, second);
  };
  round(fabric::Lane::kBulk);
  for (RowId& id : first.ids) id = RowId(id.value() ^ 1);
  second.ids = first.ids;
  const CountAllocations allocations;
  EXPECT_EQ(round(fabric::Lane::kUrgent), 0u);
  EXPECT_EQ(allocations.count(), 0);
  EXPECT_GT(other_.counters().cache_hits.value(), 400u);
}

}  // namespace
}  // namespace engram::client
