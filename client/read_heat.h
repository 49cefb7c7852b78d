// What one RowReader reads, by shard and by n-gram, so that the pool can be told: one-sided reads
// are invisible to its nodes. One request in kSampleEvery is counted, and counts that often; which
// one is random, since requests take turns (layer by layer). A counted request costs some
// nanoseconds a row, the others nothing.
//
// Shards: plain counters, one writer. N-grams: a bounded sketch in sets of kWays; one that has no
// place takes that of the least read of its set and inherits its count (space saving), so no count
// is too low, and `error` says by how much it may be too high. After construction nothing
// allocates, and the reader never waits: a request that meets Take is not counted by n-gram.
// Count: called by the reader's thread only. Take: by any one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engram/ids.h"

namespace engram::client {

class ReadHeat {
 public:
  static constexpr std::uint32_t kSampleEvery = 8;
  static constexpr std::size_t kSets = 128, kWays = 8;
  static constexpr std::size_t kMostRows = 16;  // of an n-gram; longer ones are not kept

  explicit ReadHeat(std::uint32_t shards) : shards_(shards) {}

  // Whether the next request is one to count.
  bool Sampled() {
    if (--left_ > 0) return false;
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    left_ = 1 + static_cast<std::uint32_t>((random_ >> 33) % (2 * kSampleEvery - 1));
    return true;
  }
  void CountRow(ShardIndex shard) {
    std::atomic<std::uint32_t>& count = shards_[shard.value()];
    count.store(count.load(std::memory_order_relaxed) + kSampleEvery, std::memory_order_relaxed);
  }
  // False while Take runs; otherwise CountNgram may be called until End.
  bool BeginNgrams() { return !busy_.test_and_set(std::memory_order_acquire); }
  void CountNgram(std::span<const RowId> rows);
  void EndNgrams() { busy_.clear(std::memory_order_release); }

  struct Ngram {
    std::vector<RowId> rows;
    std::uint64_t reads = 0, error = 0;
  };
  // Adds what was read since the last Take to `shards` (one a shard) and `ngrams`.
  void Take(std::vector<std::uint64_t>* shards, std::vector<Ngram>* ngrams);

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t reads = 0, error = 0;
    std::uint32_t count = 0;  // rows
    std::array<RowId, kMostRows> rows;
  };

  std::vector<std::atomic<std::uint32_t>> shards_;
  std::vector<std::uint32_t> taken_;  // of shards_, by earlier Takes
  std::uint32_t left_ = kSampleEvery;
  std::uint64_t random_ = 1;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  std::array<std::array<Entry, kWays>, kSets> sets_;  // while busy_ is held
};

}  // namespace engram::client
