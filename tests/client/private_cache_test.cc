#include "client/cache/private_cache.h"

#include <gtest/gtest.h>

#include "engram/random.h"
#include "tests/client/cached_units.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

PrivateCache::Options Small(std::uint64_t bytes = 64 << 10) {
  PrivateCache::Options options;
  options.bytes = bytes;
  options.row_bytes = kCachedRowBytes;
  options.unit_rows = 4;
  return options;
}

std::unique_ptr<PrivateCache> Open(const PrivateCache::Options& options = Small()) {
  auto cache = PrivateCache::Open(options);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return *std::move(cache);
}

std::uint32_t Held(PrivateCache& cache, std::uint64_t begin, std::uint64_t end) {
  std::uint32_t held = 0;
  for (std::uint64_t n = begin; n < end; ++n) held += cache.Has(Unit(n).ids) ? 1 : 0;
  return held;
}

TEST(PrivateCache, GivesBackTheBytesThatItWasGiven) {
  auto cache = Open();
  for (std::uint64_t n = 0; n < 50; ++n) EXPECT_FALSE(Unit(n).Want(*cache));
  for (std::uint64_t n = 0; n < 50; ++n) {
    Unit unit(n);
    EXPECT_TRUE(unit.Read(*cache)) << n;
    EXPECT_FALSE(unit.wrong) << n;
  }
  EXPECT_EQ(cache->bytes(), 50u * 4 * kCachedRowBytes);
  EXPECT_EQ(cache->evictions(), 0u);
}

TEST(PrivateCache, AHitComparesEveryRowId) {
  auto cache = Open();
  Unit unit(7);
  cache->Fill(unit.fill(), CacheUse::kStep);
  for (std::size_t i = 0; i < unit.ids.size(); ++i) {
    Unit other(7);
    other.ids[i] = RowId(other.ids[i].value() + 1000);
    CacheProbe probe = other.probe();
    probe.hash = unit.fill().hash;  // as if the hashes were equal
    cache->Read({&probe, 1}, CacheUse::kStep);
    EXPECT_FALSE(probe.hit) << i;
  }
  Unit shorter(7);
  shorter.ids.pop_back();
  CacheProbe probe = shorter.probe();
  probe.hash = unit.fill().hash;
  cache->Read({&probe, 1}, CacheUse::kStep);
  EXPECT_FALSE(probe.hit);
}

TEST(PrivateCache, UnitsOfFewerRowsHaveRoomToo) {
  auto cache = Open();
  Unit one(3, 1), four(3, 4);
  one.Want(*cache);
  four.Want(*cache);
  EXPECT_TRUE(one.Read(*cache));
  EXPECT_TRUE(four.Read(*cache));
  EXPECT_FALSE(one.wrong || four.wrong);
}

TEST(PrivateCache, StaysInsideItsBytes) {
  auto cache = Open();
  const std::uint64_t each = 4 * (kCachedRowBytes + sizeof(RowId));
  EXPECT_LT(cache->slots() * each, 64u << 10);
  EXPECT_GT(cache->slots() * each, (64u << 10) * 6 / 10) << "most of it is rows";
  for (std::uint64_t n = 0; n < 10'000; ++n) Unit(n).Want(*cache);
  EXPECT_EQ(cache->bytes(), std::uint64_t{cache->slots()} * 4 * kCachedRowBytes);
  EXPECT_EQ(cache->evictions(), 10'000u - cache->slots());
  EXPECT_EQ(Held(*cache, 0, 10'000), cache->slots());
}

TEST(PrivateCache, RefusesSizesThatMakeNoSense) {
  EXPECT_EQ(PrivateCache::Open(Small(100)).status().code(), absl::StatusCode::kInvalidArgument);
  PrivateCache::Options options = Small();
  options.unit_rows = 0;
  EXPECT_EQ(PrivateCache::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Small();
  options.pinned_share = 0.9;
  EXPECT_EQ(PrivateCache::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PrivateCache, AScanDoesNotPutOutWhatIsUsed) {
  auto cache = Open();
  const std::uint64_t used = cache->slots() / 2;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t n = 0; n < used; ++n) Unit(n).Want(*cache);
  }
  for (std::uint64_t n = 0; n < 20u * cache->slots(); ++n) Unit(100'000 + n).Want(*cache);
  // Each was used several times, so each survives a few rounds of the main queue; the scan passes
  // through probation.
  EXPECT_GT(Held(*cache, 0, used), used * 9 / 10);
}

TEST(PrivateCache, WhatComesBackSoonIsKept) {
  auto cache = Open();
  const std::uint64_t slots = cache->slots();
  for (std::uint64_t n = 0; n < slots * 3 / 2; ++n) Unit(n).Want(*cache);
  EXPECT_FALSE(cache->Has(Unit(0).ids)) << "put out, and remembered";
  Unit(0).Want(*cache);
  for (std::uint64_t n = 0; n < 2 * slots; ++n) Unit(100'000 + n).Want(*cache);
  EXPECT_TRUE(cache->Has(Unit(0).ids)) << "in the main queue";
  EXPECT_FALSE(cache->Has(Unit(100'000).ids)) << "as young, but new";
}

TEST(PrivateCache, BulkUnitsTakeASmallPartOnly) {
  auto cache = Open();
  const std::uint64_t slots = cache->slots();
  for (std::uint64_t n = 0; n < slots; ++n) Unit(n).Want(*cache);
  for (std::uint64_t n = 0; n < 10 * slots; ++n) Unit(100'000 + n).Want(*cache, CacheUse::kBulk);
  EXPECT_GE(Held(*cache, 0, slots), slots * 85 / 100);
  EXPECT_GT(Held(*cache, 100'000, 100'000 + 10 * slots), 0u);
}

TEST(PrivateCache, AnEmptyCacheHoldsBulkUnitsToo) {
  auto cache = Open();
  for (std::uint64_t n = 0; n < cache->slots(); ++n) Unit(n).Want(*cache, CacheUse::kBulk);
  EXPECT_EQ(Held(*cache, 0, cache->slots()), cache->slots());
}

TEST(PrivateCache, PinnedUnitsStayAndAreBounded) {
  PrivateCache::Options options = Small();
  options.pinned_share = 0.1;
  auto cache = Open(options);
  std::uint64_t pinned = 0;
  while (cache->Pin(Unit(pinned).fill())) ++pinned;
  EXPECT_EQ(pinned, cache->slots() / 10);
  EXPECT_TRUE(cache->Pin(Unit(0).fill())) << "pinned already";
  for (std::uint64_t n = 0; n < 20u * cache->slots(); ++n) Unit(100'000 + n).Want(*cache);
  EXPECT_EQ(Held(*cache, 0, pinned), pinned);
  EXPECT_EQ(cache->pinned(), pinned);
}

TEST(PrivateCache, AUnitThatIsThereCanBePinned) {
  auto cache = Open();
  for (std::uint64_t n = 0; n < 10; ++n) Unit(n).Want(*cache);
  EXPECT_TRUE(cache->Pin(Unit(4).fill()));
  for (std::uint64_t n = 0; n < 20u * cache->slots(); ++n) Unit(100'000 + n).Want(*cache);
  EXPECT_EQ(Held(*cache, 0, 10), 1u);
  EXPECT_TRUE(cache->Has(Unit(4).ids));
}

TEST(PrivateCache, TellsTheHottest) {
  auto cache = Open();
  for (std::uint64_t n = 0; n < 20; ++n) Unit(n).Want(*cache);
  for (int i = 0; i < 5; ++i) Unit(11).Read(*cache);
  for (int i = 0; i < 3; ++i) Unit(2).Read(*cache, CacheUse::kBulk);
  const auto hot = cache->Hottest(3);
  ASSERT_EQ(hot.size(), 3u);
  EXPECT_EQ(hot[0].ids, Unit(11).ids);
  EXPECT_EQ(hot[0].hits, 5u);
  EXPECT_EQ(hot[1].ids, Unit(2).ids);
  EXPECT_EQ(hot[2].hits, 0u);
  EXPECT_EQ(cache->Hottest(1000).size(), 20u);
}

TEST(PrivateCache, ManyProbesAtOnceAreJudgedOneByOne) {
  auto cache = Open();
  std::vector<Unit> units;
  for (std::uint64_t n = 0; n < 100; ++n) units.emplace_back(n);
  for (std::uint64_t n = 0; n < 100; n += 3) units[n].Want(*cache);
  std::vector<CacheProbe> probes;
  for (Unit& unit : units) probes.push_back(unit.probe());
  cache->Read(probes, CacheUse::kStep);
  for (std::uint64_t n = 0; n < 100; ++n) {
    EXPECT_EQ(probes[n].hit, n % 3 == 0) << n;
    if (n % 3 == 0) {
      EXPECT_EQ(units[n].out, units[n].bytes) << n;
    }
  }
}

// Whatever comes in whatever order, the index, the queues and the bytes agree.
TEST(PrivateCache, RandomUseNeverGivesWrongBytes) {
  auto cache = Open(Small(16 << 10));
  SeededRandom random(5);
  std::uint64_t hits = 0;
  for (int i = 0; i < 100'000; ++i) {
    Unit unit(random.Below(3) == 0 ? random.Below(50) : random.Below(1000),
              random.Below(10) == 0 ? 1 : 4);
    const CacheUse use = random.Below(4) == 0 ? CacheUse::kBulk : CacheUse::kStep;
    if (random.Below(200) == 0) {
      cache->Pin(unit.fill());
      ASSERT_TRUE(cache->Has(unit.ids) || cache->pinned() == cache->slots() / 4);
    } else {
      hits += unit.Want(*cache, use) ? 1 : 0;
      ASSERT_FALSE(unit.wrong);
      ASSERT_TRUE(cache->Has(unit.ids));
    }
  }
  EXPECT_GT(hits, 1000u);
}

TEST(PrivateCache, UseAllocatesNothing) {
  auto cache = Open();
  std::vector<Unit> units;
  for (std::uint64_t n = 0; n < 2000; ++n) units.emplace_back(n);
  const CountAllocations allocations;
  for (int round = 0; round < 2; ++round) {
    for (Unit& unit : units) unit.Want(*cache);
  }
  cache->Pin(units[0].fill());
  EXPECT_EQ(allocations.count(), 0);
}

}  // namespace
}  // namespace engram::client
