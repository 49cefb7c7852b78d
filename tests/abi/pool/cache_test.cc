// The row cache through the C ABI and C++ against a real pool: hints, what is hot, what is pinned.
#include <unistd.h>

#include <cstdio>
#include <engram/engram.hpp>

#include "tests/abi/pool/opened.h"

namespace engram::abi_test {
namespace {

const std::vector<std::int64_t> kTokens = {22898, 19737, 270, 9327, 1494, 19737, 270};

class CacheTest : public testing::Test {
 protected:
  CacheTest() : file_("/tmp/engram_hot_" + std::to_string(getpid())) {}
  ~CacheTest() override { std::remove(file_.c_str()); }

  void Open(Opened& opened, const char* pinned_file = nullptr) {
    auto options = Sized<engram_prefetcher_options>();
    options.poller = 1;
    options.cache_bytes = 8 << 20;
    options.pinned_file = pinned_file;
    ExpectOk(engram_prefetcher_open(opened.table, &options, &opened.prefetcher));
  }
  void OpenHostCache(Opened& opened, std::uint64_t bytes) {
    auto options = Sized<engram_prefetcher_options>();
    options.cache_bytes = bytes;
    options.host_cache = 1;
    ExpectOk(engram_prefetcher_open(opened.table, &options, &opened.prefetcher));
  }
  void Read(Opened& opened) {
    PackedStep step(kTokens);
    const engram_ticket ticket = opened.Submit(step.step);
    ExpectOk(engram_prefetcher_wait(opened.prefetcher, ticket, -1, 60 * kSecond));
    EXPECT_TRUE(step.IsGolden(opened));
    ExpectOk(engram_prefetcher_release(opened.prefetcher, ticket));
  }
  // Until so many rows were read over the stream.
  bool Await(Opened& opened, std::uint64_t rows) {
    for (int i = 0; i < 6000 && opened.Stats().rows_stream < rows; ++i) usleep(10'000);
    return opened.Stats().rows_stream == rows;
  }

  const std::string file_;
};

TEST_F(CacheTest, TheSecondStepReadsNothing) {
  Opened opened("stream");
  Open(opened);
  Read(opened);
  const std::uint64_t rows = opened.Stats().rows_stream;
  EXPECT_GT(rows, 0u);
  Read(opened);
  EXPECT_EQ(opened.Stats().rows_stream, rows);
  EXPECT_EQ(opened.Stats().cache_hits, rows);
  EXPECT_EQ(opened.Stats().cache_bytes, rows * kRowBytes);
}

TEST_F(CacheTest, MappedRowsAreNotCached) {
  Opened opened("mapped");
  Open(opened);
  Read(opened);
  Read(opened);
  EXPECT_EQ(opened.Stats().cache_hits + opened.Stats().cache_misses, 0u);
  const engram_tokens tokens = Opened::Tokens(kTokens);
  std::uint64_t taken = 7;
  ExpectOk(engram_prefetcher_hint_tokens(opened.prefetcher, &tokens, &taken));
  EXPECT_EQ(taken, 0u);
}

TEST_F(CacheTest, AStepFindsWhatWasHinted) {
  Opened opened("stream");
  Open(opened);
  const std::vector<std::int64_t> unknown = {1, 1 << 30};
  const engram_tokens bad = Opened::Tokens(unknown);
  ExpectFails(engram_prefetcher_hint_tokens(opened.prefetcher, &bad, nullptr),
              ENGRAM_INVALID_ARGUMENT, "");
  const engram_tokens tokens = Opened::Tokens(kTokens);
  std::uint64_t taken = 0;
  ExpectOk(engram_prefetcher_hint_tokens(opened.prefetcher, &tokens, &taken));
  EXPECT_EQ(taken, kTokens.size() * kLayers * kColumns);
  const std::uint64_t distinct = taken - 2 * 8;  // "19737 270" stands there twice: one bigram twice
  ASSERT_TRUE(Await(opened, distinct)) << opened.Stats().rows_stream;
  Read(opened);
  EXPECT_EQ(opened.Stats().rows_stream, distinct);
  const std::int64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7};
  auto wanted = Sized<engram_rows>();
  wanted.ids = rows;
  wanted.count = 8;
  wanted.id_type = ENGRAM_ID_INT64;
  wanted.layer_index = 1;
  ExpectOk(engram_prefetcher_hint(opened.prefetcher, &wanted, nullptr));
  EXPECT_TRUE(Await(opened, distinct + 8));
  EXPECT_EQ(opened.Stats().rows_hinted, taken + 8);
}

TEST_F(CacheTest, WhatWasHotCanBePinned) {
  Opened opened("stream");
  Open(opened);
  Read(opened);
  Read(opened);
  ExpectOk(engram_dump_hot(opened.prefetcher, file_.c_str(), 5));
  Opened later("stream");
  Open(later, file_.c_str());
  ASSERT_TRUE(Await(later, 5 * 8)) << later.Stats().rows_stream;
  const std::uint64_t before = later.Stats().cache_hits;
  Read(later);
  EXPECT_GE(later.Stats().cache_hits - before, 5u * 8);
}

TEST_F(CacheTest, ProcessesOfAHostShareTheirReads) {
  Opened one("stream"), other("stream");
  OpenHostCache(one, 8 << 20);
  OpenHostCache(other, 8 << 20);
  Read(one);
  EXPECT_GT(one.Stats().rows_stream, 0u);
  Read(other);
  EXPECT_EQ(other.Stats().rows_stream, 0u);
  EXPECT_EQ(other.Stats().cache_hits, one.Stats().cache_misses);
}

// As with a segment of another build, or one that is no cache.
TEST_F(CacheTest, AHostCacheThatCannotBeHadIsDoneWithoutAndTheLogSaysWhy) {
  Log log;
  Opened one("stream"), other("stream");
  OpenHostCache(one, 8 << 20);
  Read(one);
  EXPECT_EQ(log.text().find("host cache"), std::string::npos) << log.text();
  OpenHostCache(other, 16 << 20);
  EXPECT_THAT(log.text(), testing::ContainsRegex("1 host cache /dev/shm/[^ ]+: its size is "));
  EXPECT_THAT(log.text(), testing::HasSubstr("; this process reads without a cache"));
  Read(other);
  EXPECT_EQ(other.Stats().rows_stream, one.Stats().rows_stream);
  EXPECT_EQ(other.Stats().cache_hits + other.Stats().cache_misses, 0u);
}

TEST_F(CacheTest, MistakesAreNamed) {
  Opened opened("stream");
  ExpectFails(engram_dump_hot(opened.Steps(), file_.c_str(), 0), ENGRAM_FAILED_PRECONDITION,
              "cache_bytes");
  const engram_tokens tokens = Opened::Tokens(kTokens);
  std::uint64_t taken = 7;
  ExpectOk(engram_prefetcher_hint_tokens(opened.prefetcher, &tokens, &taken));
  EXPECT_EQ(taken, 0u);
  auto options = Sized<engram_prefetcher_options>();
  engram_prefetcher* none = nullptr;
  options.cache_bytes = 1000;
  ExpectFails(engram_prefetcher_open(opened.table, &options, &none), ENGRAM_INVALID_ARGUMENT,
              "too small");
  options.cache_bytes = 8 << 20;
  options.pinned_file = "/nowhere/hot";
  ExpectFails(engram_prefetcher_open(opened.table, &options, &none), ENGRAM_NOT_FOUND,
              "/nowhere/hot");
  options.cache_bytes = 0;
  ExpectFails(engram_prefetcher_open(opened.table, &options, &none), ENGRAM_INVALID_ARGUMENT,
              "cache_bytes is 0");
  ExpectFails(engram_prefetcher_hint(opened.prefetcher, nullptr, nullptr), ENGRAM_INVALID_ARGUMENT,
              "rows is NULL");
  ExpectFails(engram_dump_hot(nullptr, file_.c_str(), 0), ENGRAM_INVALID_ARGUMENT,
              "prefetcher is NULL");
}

TEST_F(CacheTest, FromCxx) {
  engram::Pool::Options pool_options;
  pool_options.fabric = "stream";
  engram::Pool pool = engram::Pool::Open(pool_options);
  engram::Table table = pool.OpenTable("small@1", {});
  engram::Prefetcher::Options options;
  options.poller = true;
  options.cache_bytes = 8 << 20;
  engram::Prefetcher steps(table, options);
  const auto await = [&](std::uint64_t rows) {
    for (int i = 0; i < 6000 && table.stats().rows_stream < rows; ++i) usleep(10'000);
    EXPECT_EQ(table.stats().rows_stream, rows);
  };
  const std::uint64_t taken = steps.Hint(Opened::Tokens(kTokens));
  EXPECT_EQ(taken, kTokens.size() * kLayers * kColumns);
  const std::uint64_t distinct = taken - 2 * 8;  // as above
  await(distinct);
  PackedStep step(kTokens);
  step.step.timeout_ns = 60 * kSecond;
  for (int i = 0; i < 2; ++i) {
    const engram_ticket ticket = steps.Submit(step.step);
    steps.Wait(ticket, -1, std::chrono::seconds(60));
    steps.Release(ticket);
  }
  EXPECT_EQ(table.stats().rows_stream, distinct);
  steps.DumpHot(file_, 5);
  options.pinned_file = file_;
  options.host_cache = true;
  const engram::Prefetcher pins(table, options);
  await(distinct + 5 * 8);
  options.host_cache = false;
  options.pinned_file = "/nowhere/hot";
  EXPECT_THROW(engram::Prefetcher(table, options), engram::Error);
}

}  // namespace
}  // namespace engram::abi_test
