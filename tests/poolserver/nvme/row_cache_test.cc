#include "poolserver/nvme/row_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "engram/random.h"

namespace engram::poolserver::nvme {
namespace {

constexpr std::uint32_t kCachedRow = 272;

std::unique_ptr<RowCache> OpenCache(std::uint64_t bytes) {
  RowCache::Options options;
  options.bytes = bytes;
  auto cache = RowCache::Open(options);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return *std::move(cache);
}

// Any row's bytes follow from its key and width.
std::vector<std::byte> BytesOf(RowCache::Key key, std::size_t bytes = kCachedRow) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(key * 31 + i);
  return out;
}

// True: it was there, with the right bytes.
bool Use(RowCache& cache, RowCache::Key key, std::size_t bytes = kCachedRow) {
  const bool hit = cache.Read(key, [&](const std::byte* row) {
    EXPECT_EQ(std::memcmp(row, BytesOf(key, bytes).data(), bytes), 0) << key;
  });
  if (!hit) cache.Fill(key, BytesOf(key, bytes));
  return hit;
}

TEST(NvmeRowCache, GivesBackWhatWasPutIn) {
  auto cache = OpenCache(4 << 20);
  for (RowCache::Key key = 0; key < 500; ++key) EXPECT_FALSE(Use(*cache, key));
  for (RowCache::Key key = 0; key < 500; ++key) EXPECT_TRUE(Use(*cache, key));
  EXPECT_EQ(cache->counters().hits, 500u);
  EXPECT_EQ(cache->counters().misses, 500u);
}

TEST(NvmeRowCache, HoldsAboutWhatItsBytesAllow) {
  auto cache = OpenCache(8 << 20);
  EXPECT_GT(cache->rows() * kCachedRow, (8u << 20) * 85 / 100);
  EXPECT_LT(cache->rows() * kCachedRow, 8u << 20);
}

TEST(NvmeRowCache, RowsOfManyWidthsShareItAndAreNeverMixedUp) {
  auto cache = OpenCache(2 << 20);
  const std::size_t widths[] = {8, 88, 168, 272, 520, 4088, 15368};
  SeededRandom random(3);
  std::uint64_t hits = 0;
  for (int i = 0; i < 60'000; ++i) {
    const RowCache::Key key = random.Below(random.Below(2) == 0 ? 300 : 20'000);
    hits += Use(*cache, key, widths[key % 7]);
  }
  EXPECT_GT(hits, 10'000u);
  EXPECT_GT(cache->counters().evictions, 10'000u);
}

TEST(NvmeRowCache, ManySmallRowsFillTheIndexAndNothingElse) {
  auto cache = OpenCache(1 << 20);
  for (RowCache::Key key = 0; key < 50'000; ++key) Use(*cache, key, 8);
  EXPECT_TRUE(Use(*cache, 49'999, 8));
}

// A scan of rows that are read once must not put out what is read again and again.
TEST(NvmeRowCache, AScanLeavesWhatIsUsed) {
  auto cache = OpenCache(2 << 20);
  const RowCache::Key used = cache->rows() / 3;
  for (int round = 0; round < 4; ++round)
    for (RowCache::Key key = 0; key < used; ++key) Use(*cache, key);
  for (RowCache::Key key = 1'000'000; key < 1'000'000 + 10 * cache->rows(); ++key) Use(*cache, key);
  std::uint64_t left = 0;
  for (RowCache::Key key = 0; key < used; ++key) left += cache->Read(key, [](const std::byte*) {});
  EXPECT_GT(left, used * 95 / 100);
}

TEST(NvmeRowCache, TooSmallIsRefused) {
  EXPECT_EQ(RowCache::Open({1000}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(NvmeRowCache, ThreadsShareIt) {
  auto cache = OpenCache(4 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&cache, t] {
      SeededRandom random(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 20'000; ++i) Use(*cache, random.Below(30'000));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RowCache::Counters counters = cache->counters();
  EXPECT_EQ(counters.hits + counters.misses, 60'000u);
}

}  // namespace
}  // namespace engram::poolserver::nvme
