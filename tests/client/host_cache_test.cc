#include "client/cache/host_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engram/random.h"
#include "tests/client/cached_units.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

using std::chrono::milliseconds;

class HostCacheTest : public testing::Test {
 protected:
  HostCacheTest() : folder_("/dev/shm/engram_host_cache_test." + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~HostCacheTest() override { std::filesystem::remove_all(folder_); }

  HostCache::Options Options(std::uint64_t bytes = 256 << 10) {
    HostCache::Options options;
    options.bytes = bytes;
    options.tenant = "t";
    options.table = TableUid{{1, 2, 3}};
    options.row_bytes = kCachedRowBytes;
    options.unit_rows = 4;
    options.clock = &clock_;
    options.folder = folder_;
    return options;
  }
  std::unique_ptr<HostCache> Open(const HostCache::Options& options) {
    auto cache = HostCache::Open(options);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  std::unique_ptr<HostCache> Open() { return Open(Options()); }
  absl::Status WhyNot(const HostCache::Options& options) {
    return HostCache::Open(options).status();
  }
  // Runs `body` in a process of its own, which then kills itself.
  template <class Body>
  void InKilledProcess(Body body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  std::size_t Files() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const std::string folder_;
  FakeClock clock_;
};

TEST_F(HostCacheTest, WhatOneKeepsTheOtherFinds) {
  auto one = Open(), other = Open();
  for (std::uint64_t n = 0; n < 100; ++n) one->Fill(Unit(n).fill(), CacheUse::kStep);
  for (std::uint64_t n = 0; n < 100; ++n) {
    Unit unit(n);
    EXPECT_TRUE(unit.Read(*other)) << n;
    EXPECT_FALSE(unit.wrong) << n;
  }
}

TEST_F(HostCacheTest, AnotherProcessFindsIt) {
  auto cache = Open();
  InKilledProcess([&] {
    auto own = Open();
    for (std::uint64_t n = 0; n < 50; ++n) own->Fill(Unit(n).fill(), CacheUse::kStep);
  });
  for (std::uint64_t n = 0; n < 50; ++n) EXPECT_TRUE(Unit(n).Read(*cache)) << n;
}

TEST_F(HostCacheTest, AHitComparesEveryRowId) {
  auto cache = Open();
  const Unit unit(7);
  cache->Fill(unit.fill(), CacheUse::kStep);
  for (std::size_t i = 0; i < unit.ids.size(); ++i) {
    Unit other(7);
    other.ids[i] = RowId(other.ids[i].value() + 1000);
    CacheProbe probe = other.probe();
    probe.hash = unit.fill().hash;
    cache->Read({&probe, 1}, CacheUse::kStep);
    EXPECT_FALSE(probe.hit) << i;
  }
}

TEST_F(HostCacheTest, RowsOfAnyLengthAndUnitsOfFewerRows) {
  auto cache = Open();
  Unit one(3, 1), four(3, 4);
  EXPECT_FALSE(one.Want(*cache));
  EXPECT_FALSE(four.Want(*cache));
  EXPECT_TRUE(one.Read(*cache));
  EXPECT_TRUE(four.Read(*cache));
  EXPECT_FALSE(one.wrong || four.wrong);
  HostCache::Options options = Options();
  options.row_bytes = 13;
  options.table = TableUid{{4}};
  auto odd = Open(options);
  odd->Fill(four.fill(), CacheUse::kStep);
  four.out.assign(four.out.size(), std::byte{0xee});
  EXPECT_TRUE([&] {
    CacheProbe probe = four.probe();
    odd->Read({&probe, 1}, CacheUse::kStep);
    return probe.hit;
  }());
  EXPECT_EQ(std::memcmp(four.to[1], four.from[1], 13), 0);
  EXPECT_EQ(four.to[1][13], std::byte{0xee});
}

// ---- writers that stop in the middle ----

// The steps of a writer; returns false when all are done.
bool WriteStep(HostSlot& slot, int step, const Unit& unit, const RowSealer& sealer,
               std::uint64_t owner, Instant now, std::uint64_t* sequence) {
  switch (step) {
    case 0: return slot.Claim(owner, now);
    case 1: *sequence = slot.Begin(); return true;
    case 2:
    case 3:
    case 4:
    case 5: {
      const auto i = static_cast<std::uint32_t>(step - 2);
      slot.WriteRow(i, unit.ids[i], unit.from[i], sealer.Seal(unit.ids[i], unit.from[i]));
      return true;
    }
    case 6: return slot.Publish(4, *sequence, owner);
    default: return false;
  }
}

class KilledWriterTest : public HostCacheTest, public testing::WithParamInterface<int> {};

TEST_P(KilledWriterTest, HarmsNobody) {
  auto cache = Open();
  const Unit old(1), fresh(2);
  cache->Fill(old.fill(), CacheUse::kStep);
  const std::uint64_t set = cache->SetOf(old.fill().hash);
  std::uint32_t way = 0;
  while (!cache->SlotOf(set, way).Holds(old.ids)) ++way;
  const RowSealer sealer(TableUid{{1, 2, 3}}, kCachedRowBytes);
  const Instant now = clock_.Now();
  InKilledProcess([&] {
    auto own = Open();
    HostSlot slot = own->SlotOf(set, way);
    std::uint64_t sequence = 0;
    for (int step = 0; step < GetParam(); ++step)
      WriteStep(slot, step, fresh, sealer, HostSlot::OwnerWord(own->segment().owner(), now), now,
                &sequence);
  });
  // What is read is right, whatever was written.
  Unit unit(1);
  const bool hit = unit.Read(*cache);
  EXPECT_FALSE(unit.wrong);
  EXPECT_EQ(hit, GetParam() <= 1);
  HostSlot slot = cache->SlotOf(set, way);
  const bool taken = GetParam() >= 1 && GetParam() <= 6;
  const std::uint64_t mine = HostSlot::OwnerWord(77, now);
  if (taken) {
    EXPECT_FALSE(slot.Claim(mine, now + milliseconds(999)));
  }
  const Instant later = now + milliseconds(1000);
  EXPECT_TRUE(slot.Claim(HostSlot::OwnerWord(77, later), later)) << "stolen after a second";
  slot.Release(HostSlot::OwnerWord(77, later));
  clock_.Set(later);
  for (std::uint64_t n = 100; n < 1000; ++n) {
    Unit one(n);
    one.Want(*cache);
    EXPECT_TRUE(one.Read(*cache)) << n;
    EXPECT_FALSE(one.wrong);
  }
}

INSTANTIATE_TEST_SUITE_P(AfterEachStep, KilledWriterTest, testing::Range(0, 8));

TEST_F(HostCacheTest, AWriterThatWakesAfterItWasRobbedPublishesNothing) {
  auto cache = Open();
  const RowSealer sealer(TableUid{{1, 2, 3}}, kCachedRowBytes);
  const Unit slow(1), thief(2);
  HostSlot slot = cache->SlotOf(0, 0);
  const Instant now = clock_.Now(), later = now + milliseconds(1000);
  const std::uint64_t first = HostSlot::OwnerWord(1, now), second = HostSlot::OwnerWord(2, later);
  std::uint64_t a = 0, b = 0;
  for (int step = 0; step < 3; ++step)
    ASSERT_TRUE(WriteStep(slot, step, slow, sealer, first, now, &a));
  for (int step = 0; step < 7; ++step)
    ASSERT_TRUE(WriteStep(slot, step, thief, sealer, second, later, &b));
  EXPECT_TRUE(slot.Holds(thief.ids));
  // It goes on where it was stopped: into the middle of what is the thief's.
  WriteStep(slot, 3, slow, sealer, first, now, &a);
  EXPECT_FALSE(WriteStep(slot, 6, slow, sealer, first, now, &a));
  Unit unit(2);
  EXPECT_NE(slot.Read(unit.ids, unit.to.data(), sealer), HostSlot::Found::kHit);
}

TEST_F(HostCacheTest, DamagedBytesAreNotAHitAndMakeRoom) {
  auto cache = Open();
  Unit unit(5);
  cache->Fill(unit.fill(), CacheUse::kStep);
  const std::uint64_t set = cache->SetOf(unit.fill().hash);
  std::uint32_t way = 0;
  while (!cache->SlotOf(set, way).Holds(unit.ids)) ++way;
  const RowSealer sealer(TableUid{{1, 2, 3}}, kCachedRowBytes);
  std::vector<std::byte> other(unit.from[1], unit.from[1] + kCachedRowBytes);
  other[3] ^= std::byte{1};
  cache->SlotOf(set, way).WriteRow(1, unit.ids[1], other.data(),
                                   sealer.Seal(unit.ids[1], unit.from[1]));
  EXPECT_FALSE(unit.Read(*cache));
  EXPECT_FALSE(unit.Want(*cache));
  EXPECT_TRUE(unit.Read(*cache));
  EXPECT_FALSE(unit.wrong);
}

TEST_F(HostCacheTest, ThreadsNeverReadWrongBytes) {
  constexpr int kThreads = 4;
  std::atomic<std::uint64_t> hits{0}, wrong{0};
  const HostCache::Options options = Options(24 << 10);  // a few sets: much is put out
  auto keep = Open(options);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto cache = *HostCache::Open(options);
      SeededRandom random(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < 5000; ++i) {
        Unit unit(random.Below(3) == 0 ? random.Below(8) : random.Below(300));
        const CacheUse use = random.Below(4) == 0 ? CacheUse::kBulk : CacheUse::kStep;
        if (unit.Want(*cache, use)) hits.fetch_add(1);
        if (unit.wrong) wrong.fetch_add(1);
        if (random.Below(50) == 0) cache->Pin(unit.fill());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(hits.load(), 500u);
}

// ---- policy ----

TEST_F(HostCacheTest, AScanDoesNotPutOutWhatIsUsed) {
  auto cache = Open();
  const std::uint64_t used = cache->places() / 4;
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t n = 0; n < used; ++n) Unit(n).Want(*cache);
  }
  for (std::uint64_t n = 0; n < 5 * cache->places(); ++n) Unit(100'000 + n).Want(*cache);
  std::uint64_t held = 0;
  for (std::uint64_t n = 0; n < used; ++n) held += cache->Has(Unit(n).ids) ? 1 : 0;
  EXPECT_GT(held, used * 3 / 4);
  EXPECT_GT(cache->evictions(), cache->places());
}

TEST_F(HostCacheTest, BulkUnitsTakeASmallPartOnlyAndPinnedOnesStay) {
  auto cache = Open();
  const std::uint64_t units = cache->places() / 2;
  for (std::uint64_t n = 0; n < units; ++n) Unit(n).Want(*cache);
  std::uint64_t pinned = 0;
  for (std::uint64_t n = 0; n < units / 4; ++n) pinned += cache->Pin(Unit(n).fill()) ? 1 : 0;
  EXPECT_GT(pinned, units / 5);
  for (std::uint64_t n = 0; n < 5 * cache->places(); ++n)
    Unit(100'000 + n).Want(*cache, CacheUse::kBulk);
  std::uint64_t held = 0;
  for (std::uint64_t n = 0; n < units; ++n) held += cache->Has(Unit(n).ids) ? 1 : 0;
  EXPECT_GT(held, units * 3 / 4);
  for (std::uint64_t n = 0; n < 5 * cache->places(); ++n) Unit(500'000 + n).Want(*cache);
  std::uint64_t still = 0;
  for (std::uint64_t n = 0; n < units / 4; ++n) still += cache->Has(Unit(n).ids) ? 1 : 0;
  EXPECT_GE(still, pinned);
}

TEST_F(HostCacheTest, TellsTheHottestOfAllProcesses) {
  auto one = Open(), other = Open();
  for (std::uint64_t n = 0; n < 50; ++n) one->Fill(Unit(n).fill(), CacheUse::kStep);
  for (int i = 0; i < 5; ++i) Unit(11).Read(*one);
  for (int i = 0; i < 3; ++i) Unit(22).Read(*other);
  const auto hot = other->Hottest(2);
  ASSERT_EQ(hot.size(), 2u);
  EXPECT_EQ(hot[0].ids, Unit(11).ids);
  EXPECT_EQ(hot[1].ids, Unit(22).ids);
  EXPECT_EQ(hot[1].hits, 3u);
}

TEST_F(HostCacheTest, UseAllocatesNothing) {
  auto cache = Open();
  std::vector<Unit> units;
  for (std::uint64_t n = 0; n < 3000; ++n) units.emplace_back(n);
  const CountAllocations allocations;
  for (Unit& unit : units) unit.Want(*cache);
  for (Unit& unit : units) unit.Want(*cache);
  EXPECT_EQ(allocations.count(), 0);
}

// ---- the segment ----

TEST_F(HostCacheTest, TheSegmentIsThisUsersAloneAndGoesWithTheLast) {
  auto one = Open();
  struct stat info;
  ASSERT_EQ(stat(one->segment().path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto other = Open();
  EXPECT_NE(one->segment().owner(), other->segment().owner());
  one.reset();
  EXPECT_EQ(Files(), 1u);
  other.reset();
  EXPECT_EQ(Files(), 0u);
}

TEST_F(HostCacheTest, TenantsAndTablesHaveSegmentsOfTheirOwn) {
  HostCache::Options tenant = Options(), table = Options();
  tenant.tenant = "u";
  table.table = TableUid{{9}};
  auto a = Open(), b = Open(tenant), c = Open(table);
  EXPECT_EQ(Files(), 3u);
  Unit(1).Want(*a);
  EXPECT_FALSE(b->Has(Unit(1).ids));
  EXPECT_FALSE(c->Has(Unit(1).ids));
}

TEST_F(HostCacheTest, UnsealedTablesAreRefused) {
  HostCache::Options options = Options();
  options.sealed = false;
  EXPECT_EQ(WhyNot(options).code(), absl::StatusCode::kFailedPrecondition);
  options = Options(1000);
  EXPECT_EQ(WhyNot(options).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Files(), 0u);
}

TEST_F(HostCacheTest, ASegmentInUseWithOtherSizesIsRefused) {
  auto cache = Open();
  const absl::Status status = WhyNot(Options(512 << 10));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("its size is"), absl::string_view::npos) << status;
  EXPECT_TRUE(Open() != nullptr);
}

TEST_F(HostCacheTest, ASegmentOfAnotherBuildIsRefusedWhileInUseAndReplacedAfterwards) {
  std::string path;
  {
    auto cache = Open();
    path = cache->segment().path();
    const int fd = open(path.c_str(), O_RDWR);
    const std::uint32_t build = 1;
    ASSERT_EQ(pwrite(fd, &build, sizeof build, 12), 4);
    close(fd);
    const absl::Status status = WhyNot(Options());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("another version"), absl::string_view::npos) << status;
    // The process that uses it goes on.
    Unit(1).Want(*cache);
    EXPECT_TRUE(Unit(1).Read(*cache));
    std::filesystem::copy_file(path, path + ".kept");
  }
  std::filesystem::rename(path + ".kept", path);  // as a killed process leaves it
  chmod(path.c_str(), 0600);
  auto cache = Open();
  EXPECT_FALSE(cache->Has(Unit(1).ids));
}

TEST_F(HostCacheTest, WhatAKilledProcessLeftIsTakenOver) {
  InKilledProcess([&] {
    auto own = Open();
    own->Fill(Unit(3).fill(), CacheUse::kStep);
    own.release();
  });
  EXPECT_EQ(Files(), 1u);
  EXPECT_TRUE(Unit(3).Read(*Open()));
}

TEST_F(HostCacheTest, ATruncatedSegmentIsReplacedAndOneThatIsNoCacheIsRefused) {
  HostSegmentOptions named;
  named.folder = folder_;
  named.tenant = "t";
  named.table = TableUid{{1, 2, 3}};
  const std::string path = HostSegment::PathOf(named);
  InKilledProcess([&] { Open().release(); });
  ASSERT_EQ(truncate(path.c_str(), 8192), 0);
  {
    auto cache = Open();
    EXPECT_FALSE(Unit(1).Want(*cache));
    EXPECT_TRUE(Unit(1).Read(*cache));
  }
  for (const std::string& content : {std::string("short"), std::string(10'000, 'x')}) {
    std::ofstream(path) << content;
    chmod(path.c_str(), 0600);
    const absl::Status status = WhyNot(Options());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find(path), absl::string_view::npos);
    std::filesystem::remove(path);
  }
}

TEST_F(HostCacheTest, AFileThatOthersMayReadIsRefused) {
  { auto cache = Open(); }
  HostSegmentOptions named;
  named.folder = folder_;
  named.tenant = "t";
  named.table = TableUid{{1, 2, 3}};
  const std::string path = HostSegment::PathOf(named);
  std::ofstream(path) << "";
  chmod(path.c_str(), 0644);
  EXPECT_EQ(WhyNot(Options()).code(), absl::StatusCode::kPermissionDenied);
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/null", path);
  EXPECT_FALSE(WhyNot(Options()).ok());
}

TEST_F(HostCacheTest, ManyOpenAndCloseAtOnce) {
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        auto cache = HostCache::Open(Options());
        if (!cache.ok()) {
          failed.fetch_add(1);
          continue;
        }
        Unit unit(static_cast<std::uint64_t>(i));
        unit.Want(**cache);
        if (unit.wrong) failed.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(Files(), 0u);
}

}  // namespace
}  // namespace engram::client
