#include "client/cache/host_readings.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "engram/random.h"

namespace engram::client {
namespace {

using std::chrono::milliseconds;

class HostReadingsTest : public testing::Test {
 protected:
  bool Begin(std::uint32_t tag, std::uint32_t owner, CacheUse use = CacheUse::kStep) {
    return readings_->Begin(tag, {owner, use, now_});
  }

  std::unique_ptr<HostReadings> readings_ = std::make_unique<HostReadings>();
  Instant now_{std::chrono::seconds(1'000)};
};

TEST_F(HostReadingsTest, OneReadsAndTheOthersHearOfItUntilItEnds) {
  EXPECT_TRUE(Begin(5, 1));
  EXPECT_TRUE(Begin(5, 1)) << "it is its own";
  EXPECT_FALSE(Begin(5, 2));
  EXPECT_TRUE(Begin(7, 2)) << "another unit";
  readings_->End(5, 2);
  EXPECT_FALSE(Begin(5, 2)) << "not the other's to end";
  readings_->End(5, 1);
  EXPECT_TRUE(Begin(5, 2));
}

TEST_F(HostReadingsTest, AReaderThatDoesNotComeBackIsForgotten) {
  EXPECT_TRUE(Begin(5, 1));
  now_ += milliseconds(99);
  EXPECT_FALSE(Begin(5, 2));
  now_ += milliseconds(1);
  EXPECT_TRUE(Begin(5, 2));
  EXPECT_FALSE(Begin(5, 3));
  readings_->End(5, 1);
  EXPECT_FALSE(Begin(5, 3)) << "it is no longer the first one's";
  now_ -= milliseconds(500);
  EXPECT_TRUE(Begin(5, 3)) << "a time that is yet to come is of another boot";
}

TEST_F(HostReadingsTest, AStepDoesNotWaitForBulkReads) {
  EXPECT_TRUE(Begin(5, 1, CacheUse::kBulk));
  EXPECT_FALSE(Begin(5, 2, CacheUse::kBulk));
  EXPECT_TRUE(Begin(5, 2));
  EXPECT_FALSE(Begin(5, 1, CacheUse::kBulk)) << "but bulk reads for a step";
}

TEST_F(HostReadingsTest, WithoutRoomEverybodyReads) {
  for (std::uint32_t tag = 1; tag <= HostReadings::kMost; ++tag) EXPECT_TRUE(Begin(tag, 1));
  EXPECT_TRUE(Begin(100, 1));
  EXPECT_TRUE(Begin(100, 2));
  EXPECT_FALSE(Begin(1, 2));
  readings_->End(3, 1);
  EXPECT_TRUE(Begin(100, 1));
  EXPECT_FALSE(Begin(100, 2));
}

TEST_F(HostReadingsTest, WhatThreadsBeginAtOnceEnds) {
  constexpr std::uint32_t kThreads = 4, kTags = 3;
  std::array<std::atomic<int>, kTags> begun{};
  std::vector<std::thread> threads;
  for (std::uint32_t owner = 1; owner <= kThreads; ++owner) {
    threads.emplace_back([&, owner] {
      SeededRandom random(owner);
      for (int i = 0; i < 5'000; ++i) {
        const auto tag = static_cast<std::uint32_t>(random.Below(kTags));
        if (!Begin(tag + 1, owner)) continue;
        begun[tag].fetch_add(1, std::memory_order_relaxed);
        if (i % 100 == 0) std::this_thread::yield();
        readings_->End(tag + 1, owner);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t tag = 0; tag < kTags; ++tag) {
    EXPECT_GT(begun[tag].load(), 0);
    EXPECT_TRUE(Begin(tag + 1, kThreads + 1)) << "nobody reads it any more";
  }
}

}  // namespace
}  // namespace engram::client
