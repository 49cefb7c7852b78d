// A fabric that wraps another and counts what goes through it: reads, bytes, outcomes, latency.
//
// Each queue counts for itself with plain stores and no lock; Read() sums over the queues, those
// that are closed included. A latency is taken from Submit to Poll, the k-th completion against the
// k-th accepted read: exact for fabrics that answer in order, and exact in its sum for all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "engram/read_status.h"
#include "fabric/fabric.h"

namespace engram::fabric {

// Bucket k holds latencies of at most 1 us * 2^k; the last one holds the rest.
inline constexpr std::size_t kLatencyBuckets = 25;
inline constexpr std::size_t kReadStatuses = static_cast<std::size_t>(ReadStatus::kInvalid) + 1;
// Upper bound of bucket `bucket`. REQUIRES: bucket + 1 < kLatencyBuckets.
constexpr Duration LatencyBound(std::size_t bucket) {
  return std::chrono::microseconds(std::int64_t{1} << bucket);
}

struct FabricTotals {
  std::uint64_t batches = 0;      // Submits that accepted a read
  std::uint64_t pushed_back = 0;  // Submits that accepted fewer reads than they were given
  std::uint64_t reads = 0;        // accepted
  std::uint64_t bytes = 0;        // accepted
  std::array<std::uint64_t, kReadStatuses> ended{};  // by ReadStatus
  std::uint64_t latency_ns = 0;                      // sum over all that ended
  std::array<std::uint64_t, kLatencyBuckets> latency{};
};

// Thread-safe.
class MeteredFabric final : public Fabric {
 public:
  // `clock` must outlive the fabric.
  MeteredFabric(std::unique_ptr<Fabric> inner, const Clock& clock);
  ~MeteredFabric() override;

  FabricTotals Read() const;

  const FabricInfo& info() const override { return inner_->info(); }
  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) override;
  void RemovePeer(PeerId peer) override;
  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override;
  void Release(const RemoteRegion& imported) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override;
  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override;

  class Counters;  // of one queue

 private:
  const std::unique_ptr<Fabric> inner_;
  const Clock& clock_;
  mutable Mutex mutex_;
  // Those of closed queues are folded into `closed_` when the next queue opens.
  std::vector<std::shared_ptr<Counters>> counters_ ABSL_GUARDED_BY(mutex_);
  FabricTotals closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::fabric
