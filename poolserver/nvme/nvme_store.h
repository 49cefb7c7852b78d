// The NVMe tier of a pool node: shards as row files in one directory, read block by block through a
// ring, with a cache of rows in memory.
//
// The directory belongs to one process at a time (a lock on its file LOCK). What a crash left half
// written is removed when the store opens. Files that are whole and this node's are kept, count as
// used, and are taken up again when their shard is loaded; when room is needed those that were not
// taken up are removed, and that is said. A file of another version, node or table is never
// touched: a load that would need its name fails and names it.
//
// A shard is reserved, written in any order, committed, then read until it is freed. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/node_protocol.h"
#include "engram/random.h"
#include "fabric/stream/row_source.h"
#include "poolserver/nvme/disk.h"
#include "poolserver/nvme/gathered_rows.h"
#include "poolserver/nvme/ring.h"
#include "poolserver/nvme/row_cache.h"
#include "poolserver/nvme/row_file.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver::nvme {

class NvmeStore {
 public:
  struct Options {
    NodeId owner;
    std::string directory;             // --nvme-dir; exists
    std::uint64_t capacity_bytes = 0;  // --nvme
    std::uint64_t cache_bytes = 0;     // --nvme-cache; 0: none
    std::uint32_t depth = 128;         // --nvme-depth
    // --nvme-read-rate: what readers can have of it; 0: not known, or measured now.
    std::uint64_t read_bytes_per_second = 0;
    bool measure = false;
    Disk* disk = &Disk::System();
    // A line for people about something that happened; from any thread.
    std::function<void(const std::string&)> say = [](const std::string&) {};
  };
  struct Wanted {
    ShardIndex shard;
    std::uint64_t rows = 0;
  };
  struct Counters {
    std::uint64_t rows = 0;         // given to readers
    std::uint64_t failed_rows = 0;  // of blocks that could not be read
    Ring::Counters ring;
    RowCache::Counters cache;
    std::uint64_t written_bytes = 0;  // of rows
  };

  // FailedPrecondition: the directory is in use, its file system has no direct I/O, io_uring is
  // forbidden; ResourceExhausted: it has no room for capacity_bytes. Each says what to do.
  static absl::StatusOr<std::unique_ptr<NvmeStore>> Open(Options options);
  ~NvmeStore();  // = Stop()

  // Promises room for each shard, for all or none. ResourceExhausted names the directory, the bytes
  // wanted and free, and the setting. AlreadyExists: a shard has room. FailedPrecondition: a
  // stranger's file has its name, or the rows are too long.
  absl::Status Reserve(const StoredRows& table, std::span<const Wanted> shards);
  // A reserved shard whose file was there, whole, when the store opened: every block is checked and
  // the shard is committed. Returns its block checksums. NotFound: it must be written.
  absl::StatusOr<std::vector<std::uint32_t>> TakeUp(const ShardKey& shard);
  // Rows [slot, slot + rows) of a reserved shard, `stride` apart; each row once, in any order, from
  // any thread. ResourceExhausted: the device is full. After an error only Free is of use.
  absl::Status Write(const ShardKey& shard, std::uint64_t slot, std::uint64_t rows,
                     const std::byte* from);
  // Makes it durable and readable. REQUIRES: every row was written.
  absl::Status Commit(const ShardKey& shard, std::span<const std::uint32_t> block_crcs);

  // Rows of a committed shard in large sequential reads, past the cache. NotFound, DataLoss.
  absl::Status Read(const ShardKey& shard, std::uint64_t slot, std::uint64_t rows,
                    std::byte* out) const;
  // What the gather reads a committed shard from; outlives neither the store nor the shard. Null:
  // there is no such shard.
  std::unique_ptr<fabric::stream::RowSource> Source(const ShardKey& shard);

  // Bytes of a reserved shard's rows; nothing where it is unknown.
  std::optional<std::uint64_t> StoredBytes(const ShardKey& shard) const;
  // Bytes from one of its rows to the next; 0 where it is unknown.
  std::uint32_t Stride(const ShardKey& shard) const;

  // Removes a shard in whatever state, and its file; one that could be taken up and was not is
  // kept. Unknown ones are ignored. REQUIRES: nobody writes it, and no source of it is at work.
  void Free(const ShardKey& shard);

  // Bytes of files: those promised, written and kept. In trouble from a write that failed on: while
  // the device lacks room for what --nvme promises; for any other error until a shard is committed,
  // or a block can be written after one was given up. A read that fails is its shard's trouble.
  TierCapacity capacity() const;
  Counters counters() const;
  const std::string& directory() const { return options_.directory; }
  // For people: where, how much, how it is read.
  std::string Describe() const;
  // Ends all reads. Idempotent.
  void Stop();

 private:
  struct Shard {
    RowFileHeader header;
    std::uint64_t file_bytes = 0;
    bool on_disk = false;                   // an earlier start left it, and it is to be taken up
    std::shared_ptr<RowFileWriter> writer;  // from the first write to the commit
    std::shared_ptr<RowFile> file;          // committed
  };

  explicit NvmeStore(Options options);
  absl::Status Lock();
  absl::Status Scan();
  absl::Status CheckRoom() const;
  absl::Status TryDirectIo();
  void MeasureReads();
  std::string PathOf(const ShardKey& shard) const;
  RowFileHeader HeaderFor(const StoredRows& table, const Wanted& shard) const;
  absl::Status CheckName(const RowFileHeader& header) const;
  absl::Status MakeRoom(const StoredRows& table, std::span<const RowFileHeader> wanted,
                        std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<RowFileWriter>> WriterOf(const ShardKey& shard);
  std::shared_ptr<RowFile> FileOf(const ShardKey& shard) const;
  void Publish(const ShardKey& shard, std::shared_ptr<RowFile> file);
  absl::Status Named(const absl::Status& status) const;
  absl::Status Noted(const absl::Status& status);
  std::uint64_t FreeBytes() const;
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookAgain();

  const Options options_;
  int lock_fd_ = -1;
  std::unique_ptr<RowCache> cache_;  // null: none
  std::unique_ptr<Ring> ring_;
  std::unique_ptr<GatheredRows> gathered_;

  mutable Mutex mutex_;
  SystemRandom random_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardKey, Shard> shards_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardKey, std::uint64_t> kept_ ABSL_GUARDED_BY(mutex_);  // bytes of whole files
  std::uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;            // promised, written and kept
  std::uint64_t read_rate_ = 0;  // bytes a second; from Open on as it is
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  bool is_full_ ABSL_GUARDED_BY(mutex_) = false;  // that is the trouble
  std::atomic<std::uint64_t> written_bytes_{0};
};

}  // namespace engram::poolserver::nvme
