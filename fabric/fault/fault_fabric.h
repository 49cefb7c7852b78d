// A fabric that wraps another and misbehaves on purpose, for tests and simulations: it delays
// completions and the landing of bytes, reorders, fails reads as kUnreachable, flips bits and
// accepts only parts of batches. Everything it decides comes from a seed.
//
// Reads of the inner fabric land in memory of this one and reach the caller's segments when their
// delay is over, in the Poll that returns the completion; so a caller who uses a buffer again
// before it may is found out. After Abandon or Close nothing lands, as the contract demands.
// Time is the clock's: with a FakeClock a delay ends when the test says so.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"

namespace engram::fabric {

struct FaultOptions {
  std::uint64_t seed = 1;
  // Each read ends this long after its Submit at the earliest, uniformly drawn: unequal delays
  // reorder.
  Duration delay_min{};
  Duration delay_max{};
  std::uint32_t unreachable_per_million = 0;  // reads that end as kUnreachable without landing
  std::uint32_t flip_per_million = 0;         // reads that land with one bit flipped
  std::uint32_t partial_per_million = 0;      // Submits that accept fewer reads than they could
};

// Thread-safe.
class FaultFabric final : public Fabric {
 public:
  // `clock` must outlive the fabric.
  FaultFabric(std::unique_ptr<Fabric> inner, const FaultOptions& options, const Clock& clock);

  // From the next Submit or Poll of each queue on. The seed counts for queues opened later.
  void Set(const FaultOptions& options);
  FaultOptions options() const;

  const FabricInfo& info() const override { return inner_->info(); }
  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) override;
  void RemovePeer(PeerId peer) override;
  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override;
  void Release(const RemoteRegion& imported) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override;
  // The queue must not outlive the fabric.
  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override;

 private:
  const std::unique_ptr<Fabric> inner_;
  const Clock& clock_;
  mutable Mutex mutex_;
  FaultOptions options_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t queues_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::fabric
