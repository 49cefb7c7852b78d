// The reader's side of the stream fabric. AddPeer greets the target once, to tell at once whether
// the token and the incarnation are right; each queue then makes its own two connections a peer,
// when they are first needed. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"
#include "fabric/stream/client_connection.h"

namespace engram::fabric::stream {

struct StreamFabricOptions {
  // A queue's connection that is not greeted by then fails its reads as kUnreachable.
  Duration connect_timeout = std::chrono::seconds(2);
};

// The peers of a fabric. Shared with its queues, which may outlive it. Thread-safe.
class PeerTable {
 public:
  PeerId Add(std::shared_ptr<Peer> peer);
  void Remove(PeerId id);
  // Null when unknown or removed.
  std::shared_ptr<const Peer> Find(PeerId id) const;
  // Grows with every Remove.
  std::uint64_t removals() const { return removals_.load(std::memory_order_acquire); }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);  // index = id - 1
  std::atomic<std::uint64_t> removals_{0};
};

class StreamFabric final : public Fabric {
 public:
  static absl::StatusOr<std::unique_ptr<StreamFabric>> Open(const StreamFabricOptions& options);

  const FabricInfo& info() const override { return info_; }
  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) override;
  void RemovePeer(PeerId peer) override;
  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override;
  void Release(const RemoteRegion& imported) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override;
  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override;

 private:
  explicit StreamFabric(const StreamFabricOptions& options);

  const StreamFabricOptions options_;
  const FabricInfo info_;
  const std::shared_ptr<PeerTable> peers_;
};

}  // namespace engram::fabric::stream
