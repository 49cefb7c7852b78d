// Rows that were read from the device lately, in memory: a bounded cache of single rows, of tables
// of any width together. Rows are hashed, so the neighbours of a row in its block are of no use to
// anybody; blocks are therefore not kept.
//
// Replacement is S3-FIFO. A row that was read for the first time is on probation in a queue of a
// part of the cache; if it was hit there it goes to the main queue, where a hit buys another round,
// else it is put out and remembered by hash; a row that comes back while it is remembered goes to
// the main queue at once. So what is read once passes by what is read again. A queue is a ring of
// bytes: rows are written at its head and put out at its tail.
//
// The cache is cut into partitions by the hash of the key, each with a lock of its own. All of it
// (rows, index, memory of what was put out) stays within the bytes that were asked for; nothing is
// allocated once it is warm. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/ghosts.h"
#include "engram/mutex.h"
#include "fabric/memory.h"

namespace engram::poolserver::nvme {

class RowCache {
 public:
  // Names a row of a file: numbers of files are never used again, so a row never changes.
  using Key = std::uint64_t;
  static constexpr Key KeyOf(std::uint32_t file, std::uint64_t slot) {
    return std::uint64_t{file} << 32 | slot;
  }

  struct Options {
    std::uint64_t bytes = 0;
    // The index is made for rows of about this size; smaller ones fill it before the memory.
    std::uint32_t row_bytes = 272;
    // Of the memory of rows. What is used again keeps the rest against any scan. On text a small
    // probation loses to the least recently used rows, this one does not (engram-bench tiers).
    double probation_share = 0.6;
  };
  struct Counters {
    std::uint64_t hits = 0, misses = 0, evictions = 0;
  };

  // InvalidArgument: too small; ResourceExhausted: not so much memory.
  static absl::StatusOr<std::unique_ptr<RowCache>> Open(const Options& options);
  ~RowCache();

  // Asks the processor for the cell of a key that is read soon.
  void Prefetch(Key key) const;
  // If the row is there, calls visit(const std::byte* row) under a lock and returns true.
  template <class Visit>
  bool Read(Key key, Visit visit);
  // Takes a copy; nothing happens when the row is there already.
  void Fill(Key key, std::span<const std::byte> row);

  Counters counters() const;
  // Rows of options.row_bytes that it holds at once, about.
  std::uint64_t rows() const;

 private:
  class Partition;
  static constexpr std::size_t kMostPartitions = 16;

  explicit RowCache(fabric::HostBuffer memory) : memory_(std::move(memory)) {}
  static std::uint64_t HashOf(Key key) {
    key = (key ^ key >> 32) * 0xd6e8feb86659fd93u;
    key = (key ^ key >> 29) * 0xbf58476d1ce4e5b9u;
    return key ^ key >> 32;
  }
  Partition& PartitionOf(std::uint64_t hash) const {
    return *partitions_[hash % partitions_.size()];
  }

  fabric::HostBuffer memory_;
  std::vector<std::unique_ptr<Partition>> partitions_;
};

class RowCache::Partition {
 public:
  // How `bytes` are used.
  struct Sizes {
    static Sizes For(const Options& options, std::uint64_t bytes);
    std::uint32_t cells = 0, ghosts = 0;
    std::uint64_t probation = 0, main = 0;  // bytes
  };
  // `memory` is zeroed, aligned to 64 bytes.
  Partition(const Sizes& sizes, std::byte* memory);

  void Prefetch(std::uint64_t hash) const { __builtin_prefetch(&cells_[HomeOf(hash)]); }
  // The row, or null. A use.
  const std::byte* Find(Key key, std::uint64_t hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Fill(Key key, std::uint64_t hash, std::span<const std::byte> row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Counters counters() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return counters_; }
  std::uint32_t cells() const { return cell_count_; }

  mutable Mutex mutex;

 private:
  struct Entry {  // the row follows
    Key key;
    std::uint16_t row_bytes;  // of a gap, which has no row: 0
    std::uint8_t uses;        // since it was last looked at: up to 3
    std::uint8_t queue;
    std::uint32_t bytes;  // of the whole, to the next entry
  };
  static_assert(sizeof(Entry) == 16);
  struct Cell {  // of the index; open addressing
    std::uint32_t tag;
    std::uint32_t place_and_one;  // in units, from the start of rows_; 0: empty
  };
  struct Queue {  // in units
    std::uint32_t begin = 0, units = 0;
    std::uint32_t head = 0, tail = 0, used = 0;
  };
  static constexpr std::uint64_t kUnit = 16;

  std::uint32_t HomeOf(std::uint64_t hash) const {
    return static_cast<std::uint32_t>((hash >> 32) * cell_count_ >> 32);
  }
  Entry* At(std::uint32_t place) const { return reinterpret_cast<Entry*>(rows_ + place * kUnit); }
  Cell* CellOf(Key key, std::uint64_t hash) const;
  void Index(Key key, std::uint32_t place);
  void Unindex(Key key);
  void Push(std::uint8_t queue, Key key, std::span<const std::byte> row, std::uint8_t uses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool MakeRoom(std::uint8_t queue, std::uint32_t units) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void PutOut(std::uint8_t queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const std::uint32_t cell_count_;
  Cell* const cells_;
  Ghosts ghosts_;
  std::byte* const rows_;
  Queue queues_[2];  // probation, main
  std::uint32_t indexed_ = 0;
  std::uint32_t looks_ = 0;
  std::vector<std::byte> moving_;
  Counters counters_;
};

template <class Visit>
bool RowCache::Read(Key key, Visit visit) {
  const std::uint64_t hash = HashOf(key);
  Partition& partition = PartitionOf(hash);
  MutexLock lock(&partition.mutex);
  const std::byte* const row = partition.Find(key, hash);
  if (row == nullptr) return false;
  visit(row);
  return true;
}

}  // namespace engram::poolserver::nvme
