#include "poolserver/nvme/nvme_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "poolserver/nvme/faulty_disk.h"
#include "tests/poolserver/nvme/shard_on_disk.h"

namespace engram::poolserver::nvme {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

class NvmeStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Without io_uring or direct I/O the tier is refused, with this message, and so is the test.
    auto store = NvmeStore::Open(OptionsOf());
    if (absl::IsFailedPrecondition(store.status())) GTEST_SKIP() << store.status().message();
  }

  NvmeStore::Options OptionsOf(Disk* disk = &Disk::System()) {
    NvmeStore::Options options;
    options.owner = {"node-a"};
    options.directory = folder_.path();
    options.capacity_bytes = 64 * kMiB;
    options.depth = 32;
    options.disk = disk;
    options.say = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      said_ += line + "\n";
    };
    return options;
  }
  std::unique_ptr<NvmeStore> OpenStore(NvmeStore::Options options) {
    auto store = NvmeStore::Open(std::move(options));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // A store with the first shard of `table` in it.
  std::unique_ptr<NvmeStore> Loaded(const TableRecord& table, NvmeStore::Options options) {
    auto store = OpenStore(std::move(options));
    const ShardKey key{table.uid, ShardIndex(0)};
    EXPECT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
    EXPECT_TRUE(Put(*store, key, StoredShard(table, key.shard)).ok());
    return store;
  }
  std::string PathOf(const ShardKey& key) const { return folder_.path() + "/" + RowFileName(key); }

  DiskFolder folder_;
  std::mutex mutex_;
  std::string said_;
};

std::vector<std::uint64_t> SomeOffsets(const StoredShard& shard, std::size_t count,
                                       std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < count; ++i)
    offsets.push_back(random.Below(shard.range.rows) * shard.layout.stride());
  return offsets;
}

void ExpectRight(const StoredShard& shard, const std::vector<std::uint64_t>& offsets,
                 const std::vector<GatheredRow>& rows) {
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    ASSERT_EQ(rows[i].status, ReadStatus::kOk);
    ASSERT_EQ(
        std::memcmp(rows[i].bytes.data(), shard.bytes.data() + offsets[i], rows[i].bytes.size()), 0)
        << offsets[i];
  }
}

TEST_F(NvmeStoreTest, ServesTheRowsThatWereWritten) {
  for (const std::uint32_t row_bytes : {80u, 264u, 512u, 6000u}) {
    const TableRecord table = SmallTable(2000, row_bytes);
    const ShardKey key{table.uid, ShardIndex(0)};
    const StoredShard shard(table, key.shard);
    auto store = Loaded(table, OptionsOf());
    auto source = store->Source(key);
    ASSERT_NE(source, nullptr);
    const auto offsets = SomeOffsets(shard, 700, row_bytes);
    ExpectRight(shard, offsets, Gather(*source, offsets, shard.layout.stride()));
    source.reset();
    store->Free(key);
    EXPECT_EQ(store->capacity().allocated_bytes, 0u);
  }
}

TEST_F(NvmeStoreTest, MeasuresItsReadRateUnlessItIsSetAndLeavesNothing) {
  NvmeStore::Options options = OptionsOf();
  EXPECT_EQ(OpenStore(options)->capacity().read_bytes_per_second, 0u);
  options.measure = true;
  std::ofstream(folder_.path() + "/PROBE.rows.partial") << "of a node that was killed";
  EXPECT_GT(OpenStore(options)->capacity().read_bytes_per_second, 0u);
  options.read_bytes_per_second = 12'345;
  EXPECT_EQ(OpenStore(options)->capacity().read_bytes_per_second, 12'345u);
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(file.path().filename(), "LOCK");
  }
  EXPECT_EQ(said_, "");
}

TEST_F(NvmeStoreTest, ARangeMaySpanRowsAndBlocks) {
  const TableRecord table = SmallTable(2000);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  NvmeStore::Options options = OptionsOf();
  options.cache_bytes = 4 * kMiB;
  auto store = Loaded(table, options);
  auto source = store->Source(key);
  const std::vector<std::uint64_t> offsets{0, 13, 100 * 272, 1984 * 272, 777 * 272 + 5};
  ExpectRight(shard, offsets, Gather(*source, offsets, 16 * 272));
  EXPECT_EQ(store->counters().cache.hits + store->counters().cache.misses, 0u)
      << "pulls go past the cache";
  ExpectRight(shard, {13}, Gather(*source, {13}, 100));
}

TEST_F(NvmeStoreTest, ABlockIsReadOnceForAllRowsOfABatch) {
  const TableRecord table = SmallTable(2000);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  auto store = Loaded(table, OptionsOf());
  auto source = store->Source(key);
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t slot = 0; slot < 30; ++slot) offsets.push_back(slot * 272);
  offsets.insert(offsets.end(), offsets.begin(), offsets.end());
  ExpectRight(shard, offsets, Gather(*source, offsets, 272));
  EXPECT_EQ(store->counters().ring.blocks, 2u);
}

TEST_F(NvmeStoreTest, RowsThatWereReadAreInTheCache) {
  const TableRecord table = SmallTable(2000);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  NvmeStore::Options options = OptionsOf();
  options.cache_bytes = 4 * kMiB;
  auto store = Loaded(table, options);
  auto source = store->Source(key);
  const std::vector<std::uint64_t> offsets{0, 500 * 272, 1999 * 272};
  ExpectRight(shard, offsets, Gather(*source, offsets, 272));
  ExpectRight(shard, offsets, Gather(*source, offsets, 272));
  EXPECT_EQ(store->counters().ring.blocks, 3u);
  EXPECT_EQ(store->counters().cache.hits, 3u);
}

TEST_F(NvmeStoreTest, ManyCallersReadAtOnce) {
  const TableRecord table = SmallTable(3000);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  auto store = Loaded(table, OptionsOf());
  auto source = store->Source(key);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 20; ++i) {
        const auto offsets = SomeOffsets(shard, 1 + 37 * t, 100 * t + i);
        ExpectRight(shard, offsets, Gather(*source, offsets, 272));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NvmeStoreTest, ABlockThatCannotBeReadFailsItsRowsAndNoOthers) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  FaultyDisk disk(&Disk::System());
  auto store = Loaded(table, OptionsOf(&disk));
  auto source = store->Source(key);
  disk.FailReads(3 * 4096, -EIO, 1);
  const auto rows = Gather(*source, {0, 30 * 272, 44 * 272, 45 * 272}, 272);
  EXPECT_EQ(rows[0].status, ReadStatus::kOk);
  EXPECT_EQ(rows[1].status, ReadStatus::kCorrupt);
  EXPECT_EQ(rows[2].status, ReadStatus::kCorrupt);
  EXPECT_EQ(rows[3].status, ReadStatus::kOk);
  EXPECT_EQ(store->counters().ring.failed, 1u);
  EXPECT_EQ(store->counters().failed_rows, 2u);
  ExpectRight(shard, {30 * 272}, Gather(*source, {30 * 272}, 272));
}

TEST_F(NvmeStoreTest, AShortReadAndOneThatWouldBlockAreTriedAgain) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  FaultyDisk disk(&Disk::System());
  auto store = Loaded(table, OptionsOf(&disk));
  auto source = store->Source(key);
  disk.FailReads(3 * 4096, 512, 2);
  disk.FailReads(4 * 4096, -EAGAIN, 3);
  disk.FailReads(5 * 4096, 512, 100);
  ExpectRight(shard, {30 * 272, 45 * 272}, Gather(*source, {30 * 272, 45 * 272}, 272));
  EXPECT_EQ(store->counters().ring.retried, 5u);
  EXPECT_EQ(Gather(*source, {60 * 272}, 272)[0].status, ReadStatus::kCorrupt);
}

TEST_F(NvmeStoreTest, AFlippedBitAndATruncatedFileAreFound) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  auto store = Loaded(table, OptionsOf());
  auto source = store->Source(key);
  const int fd = open(PathOf(key).c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, "x", 1, 4096 + 100), 1);
  ASSERT_EQ(ftruncate(fd, 20 * 4096), 0);
  close(fd);
  const auto rows = Gather(*source, {0, 15 * 272, 590 * 272}, 272);
  EXPECT_EQ(rows[0].status, ReadStatus::kCorrupt);
  EXPECT_EQ(rows[1].status, ReadStatus::kOk);
  EXPECT_EQ(rows[2].status, ReadStatus::kCorrupt);
  std::vector<std::byte> some(272);
  EXPECT_EQ(store->Read(key, 0, 1, some.data()).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store->Read(key, 15, 1, some.data()).ok());
}

TEST_F(NvmeStoreTest, AReservationIsForAllOrNoneAndSaysWhatIsMissing) {
  const TableRecord table = SmallTable(3000, 264, 3);
  NvmeStore::Options options = OptionsOf();
  options.capacity_bytes = 2 * kMiB;
  auto store = OpenStore(options);
  const std::vector<ShardIndex> all{ShardIndex(0), ShardIndex(1), ShardIndex(2)};
  const absl::Status status = ReserveShards(*store, table, all);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("small@1"), HasSubstr(folder_.path()), HasSubstr("--nvme")));
  EXPECT_EQ(store->capacity().allocated_bytes, 0u);
  EXPECT_TRUE(ReserveShards(*store, table, {all[0]}).ok());
  EXPECT_EQ(ReserveShards(*store, table, {all[0]}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_GT(store->capacity().allocated_bytes, 3000u * 272);
}

TEST_F(NvmeStoreTest, ADiskThatFillsIsNamedAndLeavesNothing) {
  const TableRecord table = SmallTable(3000);
  const ShardKey key{table.uid, ShardIndex(0)};
  FaultyDisk disk(&Disk::System());
  auto store = OpenStore(OptionsOf(&disk));
  ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
  disk.FillUpAfter(100'000);
  const absl::Status status = Put(*store, key, StoredShard(table, key.shard));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder_.path()), HasSubstr("bytes"), HasSubstr("--nvme")));
  EXPECT_EQ(store->Source(key), nullptr);
  store->Free(key);
  EXPECT_THAT(folder_.Names(), ElementsAre("LOCK"));
  EXPECT_EQ(store->capacity().allocated_bytes, 0u);
  EXPECT_THAT(store->capacity().trouble, HasSubstr("--nvme")) << "the device is full as before";
  disk.FillUpAfter(OptionsOf().capacity_bytes);
  EXPECT_EQ(store->capacity().trouble, "") << "somebody made room";
}

TEST_F(NvmeStoreTest, ADeviceThatWritesAgainTakesNewShards) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  FaultyDisk disk(&Disk::System());
  auto store = OpenStore(OptionsOf(&disk));
  ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
  disk.CutPowerAfter(3);
  ASSERT_FALSE(Put(*store, key, StoredShard(table, key.shard)).ok());
  EXPECT_NE(store->capacity().trouble, "");
  disk.CutPowerAfter(std::uint64_t{1} << 40);
  EXPECT_NE(store->capacity().trouble, "") << "nobody has tried it";
  store->Free(key);
  EXPECT_EQ(store->capacity().trouble, "");
}

TEST_F(NvmeStoreTest, ADeviceThatWritesNothingMoreStaysInTrouble) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  FaultyDisk disk(&Disk::System());
  auto store = OpenStore(OptionsOf(&disk));
  ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
  disk.CutPowerAfter(3);
  ASSERT_FALSE(Put(*store, key, StoredShard(table, key.shard)).ok());
  store->Free(key);
  EXPECT_NE(store->capacity().trouble, "");
}

TEST_F(NvmeStoreTest, NoMoreReadsAreInFlightThanTheDepth) {
  const TableRecord table = SmallTable(6000);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  FaultyDisk disk(&Disk::System());
  NvmeStore::Options options = OptionsOf(&disk);
  options.depth = 4;
  auto store = Loaded(table, options);
  auto source = store->Source(key);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto offsets = SomeOffsets(shard, 200, t);
      ExpectRight(shard, offsets, Gather(*source, offsets, 272));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(disk.most_in_flight(), 4u);
}

TEST_F(NvmeStoreTest, ADirectoryBelongsToOneProcessAndMustExist) {
  auto store = OpenStore(OptionsOf());
  auto second = NvmeStore::Open(OptionsOf());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
  NvmeStore::Options nowhere = OptionsOf();
  nowhere.directory += "/nowhere";
  EXPECT_EQ(NvmeStore::Open(nowhere).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(NvmeStoreTest, WhatTheMachineCannotDoIsRefusedAtTheStart) {
  FaultyDisk disk(&Disk::System());
  disk.RefuseDirectIo();
  auto plain = NvmeStore::Open(OptionsOf(&disk));
  EXPECT_EQ(plain.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plain.status().message()), HasSubstr("no direct I/O"));
  NvmeStore::Options large = OptionsOf();
  large.capacity_bytes = std::uint64_t{1} << 50;
  EXPECT_EQ(NvmeStore::Open(large).status().code(), absl::StatusCode::kResourceExhausted);
  NvmeStore::Options deep = OptionsOf();
  deep.depth = 5000;
  EXPECT_EQ(NvmeStore::Open(deep).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NvmeStoreTest, AWholeFileIsTakenUpAgain) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  Loaded(table, OptionsOf()).reset();
  auto store = OpenStore(OptionsOf());
  EXPECT_GT(store->capacity().allocated_bytes, 600u * 272);
  EXPECT_EQ(store->Source(key), nullptr) << "nothing serves before it is loaded";
  ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
  auto crcs = store->TakeUp(key);
  ASSERT_TRUE(crcs.ok()) << crcs.status();
  EXPECT_EQ(*crcs, shard.crcs);
  auto source = store->Source(key);
  ExpectRight(shard, {272}, Gather(*source, {272}, 272));
}

TEST_F(NvmeStoreTest, ADamagedFileIsNotTakenUpAndIsWrittenAnew) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  Loaded(table, OptionsOf()).reset();
  const int fd = open(PathOf(key).c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, "x", 1, 8 * 4096), 1);
  close(fd);
  auto store = OpenStore(OptionsOf());
  ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
  EXPECT_EQ(store->TakeUp(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(said_, HasSubstr("written anew"));
  EXPECT_TRUE(Put(*store, key, StoredShard(table, key.shard)).ok());
}

TEST_F(NvmeStoreTest, AStrangersFileIsNamedAndNeverTouched) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  NvmeStore::Options other = OptionsOf();
  other.owner = {"node-b"};
  Loaded(table, other).reset();
  auto store = OpenStore(OptionsOf());
  EXPECT_THAT(said_, AllOf(HasSubstr("left alone"), HasSubstr("node-b")));
  const absl::Status status = ReserveShards(*store, table, {key.shard});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(PathOf(key)), HasSubstr("node-b"), HasSubstr("never overwritten")));
  EXPECT_TRUE(std::filesystem::exists(PathOf(key)));
}

TEST_F(NvmeStoreTest, WhatNobodyTookUpMakesRoom) {
  const TableRecord table = SmallTable(3000);
  Loaded(table, OptionsOf()).reset();
  NvmeStore::Options options = OptionsOf();
  options.capacity_bytes = kMiB;
  auto store = OpenStore(options);
  TableRecord other = SmallTable(3000);
  other.uid.bytes.fill(9);
  ASSERT_TRUE(ReserveShards(*store, other, {ShardIndex(0)}).ok());
  EXPECT_THAT(said_, HasSubstr("to make room"));
  EXPECT_THAT(folder_.Names(), ElementsAre("LOCK"));
}

// A loss of power at every block, sync and rename of a load: what serves afterwards is whole.
TEST_F(NvmeStoreTest, ALossOfPowerAtAnyStepLeavesNothingThatServes) {
  const TableRecord table = SmallTable(600);
  const ShardKey key{table.uid, ShardIndex(0)};
  const StoredShard shard(table, key.shard);
  std::uint64_t kept = 0, steps = 0;
  for (std::uint64_t cut = 0;; ++cut) {
    FaultyDisk disk(&Disk::System());
    bool done = false;
    {
      auto store = OpenStore(OptionsOf(&disk));
      const std::uint64_t before = disk.steps();
      ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
      disk.CutPowerAfter(cut);
      done = Put(*store, key, shard).ok();
      steps = disk.steps() - before;
    }
    SeededRandom random(cut);
    disk.LoseWhatWasNotSynced(&random);
    auto store = OpenStore(OptionsOf());
    EXPECT_EQ(store->Source(key), nullptr);
    ASSERT_TRUE(ReserveShards(*store, table, {key.shard}).ok());
    auto crcs = store->TakeUp(key);
    if (crcs.ok()) {
      ++kept;
      EXPECT_EQ(*crcs, shard.crcs);
      std::vector<std::byte> rows(shard.bytes.size());
      ASSERT_TRUE(store->Read(key, 0, 600, rows.data()).ok());
      ASSERT_EQ(rows, shard.bytes) << "cut after " << cut;
    } else {
      EXPECT_FALSE(done) << "a commit that was said to be durable was lost, cut after " << cut;
      EXPECT_THAT(folder_.Names(), ElementsAre("LOCK"));
    }
    store->Free(key);
    if (done) break;
  }
  EXPECT_GT(steps, 42u);  // 40 blocks of rows, one of checksums, the header, and the syncs
  EXPECT_GE(kept, 1u);
}

}  // namespace
}  // namespace engram::poolserver::nvme
