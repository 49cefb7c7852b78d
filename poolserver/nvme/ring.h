// Reads blocks of row files with io_uring: direct I/O into registered buffers, registered files, at
// most `depth` reads in flight, one system call for all that can be started.
//
// Callers hand in batches; one thread owns the ring and takes blocks from the batches in turn, some
// of each, so that a small batch does not wait for a large one. A block that is in flight already
// is not read again: the later batch waits for the same read. A block that cannot be read, or that
// fails its check, is given to its batches as failed; a result that may pass (a short read, EAGAIN)
// is tried again a few times.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/mutex.h"
#include "poolserver/nvme/disk.h"
#include "poolserver/nvme/row_file.h"

namespace engram::poolserver::nvme {

// Blocks of one file that somebody wants. The owner keeps it until Ended.
class BlockBatch {
 public:
  virtual ~BlockBatch() = default;
  // Called once for each entry of `blocks`, on the ring's thread, in any order; `bytes` is null
  // when the block could not be read, and valid only during the call. Must not block.
  virtual void Landed(std::size_t index, const std::byte* bytes) = 0;
  // Called once, after the last Landed; the ring does not touch the batch any more.
  virtual void Ended() = 0;

  std::shared_ptr<RowFile> file;
  std::vector<std::uint32_t> blocks;  // each once

 private:
  friend class Ring;
  std::size_t next_ = 0;  // to be started
  std::size_t left_ = 0;  // to land
};

class Ring {
 public:
  struct Options {
    std::uint32_t depth = 128;         // 1 to 4096
    std::uint32_t most_files = 65536;  // that are registered; more are read all the same
    Disk* disk = &Disk::System();
  };
  struct Counters {
    std::uint64_t blocks = 0;  // read from the device
    std::uint64_t bytes = 0;   // of them
    std::uint64_t joined = 0;  // wanted while in flight: not read again
    std::uint64_t retried = 0;
    std::uint64_t failed = 0;
    std::uint64_t submits = 0;  // system calls
  };

  // FailedPrecondition: the kernel has no io_uring or forbids it, and what to do about that.
  // InvalidArgument: a depth out of range. ResourceExhausted: memlock does not cover the buffers.
  static absl::StatusOr<std::unique_ptr<Ring>> Open(const Options& options);
  ~Ring();  // = Stop()

  // REQUIRES: batch->file is set, batch->blocks is not empty. After Stop every block has failed.
  void Read(BlockBatch* batch);
  // Registers a file; it can be read before that has happened. Forget when nobody reads it any
  // more.
  void Remember(std::shared_ptr<RowFile> file);
  void Forget(std::shared_ptr<RowFile> file);

  Counters counters() const;
  // Ends what was asked for and joins. Idempotent.
  void Stop();

 private:
  class Thread;  // what only the ring's thread touches
  struct Inbox {
    std::vector<BlockBatch*> batches;
    std::vector<std::shared_ptr<RowFile>> remembered, forgotten;
    bool stopping = false;
    bool empty() const {
      return batches.empty() && remembered.empty() && forgotten.empty() && !stopping;
    }
  };

  explicit Ring(const Options& options) : options_(options) {}
  void Wake();

  const Options options_;
  int wake_fd_ = -1;
  // The thread is about to block, or does: it must be woken. Not guarded: it only saves calls.
  std::atomic<bool> asleep_{false};
  std::atomic<std::uint64_t> blocks_{0}, bytes_{0}, joined_{0}, retried_{0}, failed_{0},
      submits_{0};
  Mutex mutex_;
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace engram::poolserver::nvme
