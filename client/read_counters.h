// What one RowReader has done, as plain integers: one thread writes, any thread may read and sum
// (OPERATIONS, "Metrics"). The names follow the metrics they feed.
//
// Count: written by its owner only, read by any thread. ReadTotals: Thread-compatible.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "engram/clock.h"
#include "engram/read_status.h"
#include "engram/session.h"

namespace engram::client {

// A single-writer counter: adding is a plain load and store, never a locked instruction.
class Count {
 public:
  void Add(std::uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

inline constexpr std::size_t kFabricKinds = 6;  // indexed by FabricKind
inline constexpr std::size_t kOutcomes = 9;     // indexed by ReadStatus
inline constexpr std::size_t kReadSecondsBuckets = 28;

// Bucket b of engram_client_read_seconds holds batches of less than 2^(b+8) ns; the last the rest.
inline std::size_t ReadSecondsBucket(Duration elapsed) {
  const auto ns = static_cast<std::uint64_t>(elapsed.count() > 0 ? elapsed.count() : 0);
  const int bits = std::bit_width(ns >> 8);
  return bits < static_cast<int>(kReadSecondsBuckets) ? static_cast<std::size_t>(bits)
                                                      : kReadSecondsBuckets - 1;
}

template <class Number>
struct ReadNumbers {
  // engram_client_rows_total {fabric, outcome}: attempts, each by the fabric it went over.
  std::array<std::array<Number, kOutcomes>, kFabricKinds> rows{};
  Number rows_delivered{};  // handed to the caller with kOk, skipped rows left out
  Number rows_failed{};     // handed to the caller as poison
  Number rows_skipped{};    // handed to the caller as zeros
  Number duplicates{};      // engram_client_duplicates_total: copied instead of read
  Number seal_failures{};   // engram_client_seal_failures_total
  Number retries{};         // rows read again
  Number leases_expired{};  // batches read again because their lease ran out
  Number abandoned{};       // peers flushed because of a deadline or a late node
  Number requests{};        // batches delivered
  Number bytes_received{};  // engram_client_bytes_total {direction = received}
  // engram_prefetch_layers_total {outcome}: layers of prefetched steps, and those that were not
  // ready at their needed_by time, with their rows.
  Number layers_ready{};
  Number layers_failed{};
  Number layers_cancelled{};
  Number layers_late{};
  Number rows_late{};
  Number hedges_started{};  // rows of late layers asked of another replica as well
  Number hedges_won{};      // of those, delivered from the other replica
  Number rows_joined{};     // copied from a read that another request had under way
  // engram_client_cache_rows_total {result}: rows that were looked up.
  Number cache_hits{};
  Number cache_misses{};
  Number cache_evictions{};  // units that were put out
  Number cache_bytes{};      // of rows that are held now
  Number rows_hinted{};      // taken to be put into the cache
  // engram_client_read_seconds {fabric}: batches, by the fabric of their last completion.
  std::array<std::array<Number, kReadSecondsBuckets>, kFabricKinds> read_seconds{};
  std::array<Number, kFabricKinds> read_ns_sum{};
};

using ReadCounters = ReadNumbers<Count>;
using ReadTotals = ReadNumbers<std::uint64_t>;

// totals += counters.
void AddTo(const ReadCounters& counters, ReadTotals* totals);
void AddTo(const ReadTotals& counters, ReadTotals* totals);

}  // namespace engram::client
