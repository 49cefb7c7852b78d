// The reader's side of libfabric one-sided reads. Each queue has an endpoint a peer, so that
// abandoning a peer is closing its endpoint. Thread-safe.
#pragma once

#include <memory>
#include <optional>

#include "fabric/fabric.h"
#include "fabric/ofi/provider.h"
#include "fabric/ofi/shm_owner.h"
#include "fabric/peer_table.h"

namespace engram::fabric::ofi {

struct OfiFabricOptions {
  ProviderOptions provider = {};
  // An endpoint that has not read its target's hello by then fails its reads as kUnreachable.
  Duration connect_timeout = std::chrono::seconds(3);
};

struct OfiPeer {
  TargetLocation location;
  std::optional<ShmOwner> owner;  // of a target of the shm provider
};

using OfiPeers = PeerTable<OfiPeer>;

// The caller's memory, registered where the provider wants it.
class OfiRegion final : public MemoryRegion {
 public:
  OfiRegion(std::shared_ptr<const Provider> provider, std::span<std::byte> bytes, MemoryKind kind,
            Registration registration)
      : provider_(std::move(provider)),
        bytes_(bytes),
        kind_(kind),
        registration_(std::move(registration)) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  MemoryKind kind() const override { return kind_; }
  void* descriptor() const {
    return registration_.mr == nullptr ? nullptr : fi_mr_desc(registration_.mr.get());
  }

 private:
  const std::shared_ptr<const Provider> provider_;  // outlives the registration
  const std::span<std::byte> bytes_;
  const MemoryKind kind_;
  const Registration registration_;
};

class OfiFabric final : public Fabric {
 public:
  static absl::StatusOr<std::unique_ptr<OfiFabric>> Open(const OfiFabricOptions& options);

  const FabricInfo& info() const override { return info_; }
  // Reads the target's hello region to see that it is there and which incarnation it is.
  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) override;
  void RemovePeer(PeerId peer) override;
  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override;
  void Release(const RemoteRegion&) override {}
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override;
  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override;

 private:
  OfiFabric() = default;

  OfiFabricOptions options_;
  std::shared_ptr<const Provider> provider_;
  FabricInfo info_;
  std::shared_ptr<OfiPeers> peers_ = std::make_shared<OfiPeers>();
};

}  // namespace engram::fabric::ofi
