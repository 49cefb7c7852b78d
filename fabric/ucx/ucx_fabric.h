// The reader's side of UCX. Each queue has a connection a peer. Where reads are ucp_get, a control
// connection a peer learns the keys of regions. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"
#include "fabric/peer_table.h"
#include "fabric/ucx/connection.h"
#include "fabric/ucx/imported_keys.h"
#include "fabric/ucx/transport.h"

namespace engram::fabric::ucx {

struct UcxFabricOptions {
  TransportOptions transport = {};
  // A connection whose hello is not answered by then fails its reads as kUnreachable.
  Duration connect_timeout = std::chrono::seconds(3);
};

// Thread-safe.
struct UcxPeer {
  UcxPeer(std::shared_ptr<const Transport> transport, TargetLocation at, SessionToken as)
      : location(std::move(at)),
        token(as),
        control(std::move(transport), location, token, nullptr) {}
  const TargetLocation location;
  const SessionToken token;
  ImportedKeys keys;
  Mutex mutex;
  Connection control ABSL_GUARDED_BY(mutex);
};
using UcxPeers = PeerTable<UcxPeer>;

// The caller's memory, registered where the NIC writes into it.
class UcxRegion final : public MemoryRegion {
 public:
  UcxRegion(std::shared_ptr<const Transport> transport, std::span<std::byte> bytes,
            MemoryHandle handle)
      : transport_(std::move(transport)), bytes_(bytes), handle_(std::move(handle)) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  ucp_mem_h handle() const { return handle_.get(); }

 private:
  const std::shared_ptr<const Transport> transport_;  // outlives the handle
  const std::span<std::byte> bytes_;
  const MemoryHandle handle_;
};

class UcxFabric final : public Fabric {
 public:
  static absl::StatusOr<std::unique_ptr<UcxFabric>> Open(const UcxFabricOptions& options);

  const FabricInfo& info() const override { return info_; }
  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) override;
  void RemovePeer(PeerId peer) override;
  // Where reads are ucp_get it asks the target, which looks whether the session may read the
  // region.
  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override;
  void Release(const RemoteRegion& imported) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override;
  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override;

 private:
  UcxFabric() = default;
  absl::Status Greet(UcxPeer& peer, Instant deadline) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(peer.mutex);
  absl::StatusOr<RemoteRegion> ImportKey(UcxPeer& peer, const RemoteRegion& granted) const;
  absl::StatusOr<Received<Answer>> AskForKey(UcxPeer& peer, std::uint64_t key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(peer.mutex);

  UcxFabricOptions options_;
  std::shared_ptr<const Transport> transport_;
  FabricInfo info_;
  std::shared_ptr<UcxPeers> peers_ = std::make_shared<UcxPeers>();
};

}  // namespace engram::fabric::ucx
