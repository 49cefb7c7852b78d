// Between the gather and the ring: turns rows that are wanted into blocks, answers what the cache
// has, and puts the rows of blocks that landed where they are wanted. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "fabric/stream/row_source.h"
#include "poolserver/nvme/ring.h"
#include "poolserver/nvme/row_cache.h"
#include "poolserver/nvme/row_file.h"

namespace engram::poolserver::nvme {

class GatheredRows {
 public:
  // `cache` may be null. REQUIRES: both outlive this and every source of it.
  GatheredRows(Ring* ring, RowCache* cache);
  ~GatheredRows();

  // Reads rows of `file`, which nobody's cached rows share a number with. A range that spans
  // several rows (a pull of another node) goes past the cache.
  std::unique_ptr<fabric::stream::RowSource> SourceOf(std::shared_ptr<RowFile> file);

  std::uint64_t rows() const { return rows_.load(std::memory_order_relaxed); }
  std::uint64_t failed_rows() const { return failed_rows_.load(std::memory_order_relaxed); }

 private:
  class Source;
  class Batch;

  Batch* Take();
  void Return(Batch* batch);

  Ring* const ring_;
  RowCache* const cache_;
  std::atomic<std::uint64_t> rows_{0}, failed_rows_{0};
  std::atomic<std::uint32_t> next_file_{0};
  Mutex mutex_;
  std::vector<std::unique_ptr<Batch>> all_ ABSL_GUARDED_BY(mutex_);
  std::vector<Batch*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::poolserver::nvme
