#include "fabric/fault/fault_fabric.h"

#include <algorithm>
#include <utility>

#include "fabric/fault/fault_queue.h"

namespace engram::fabric {

FaultFabric::FaultFabric(std::unique_ptr<Fabric> inner, const FaultOptions& options,
                         const Clock& clock)
    : inner_(std::move(inner)), clock_(clock), options_(options) {}

void FaultFabric::Set(const FaultOptions& options) {
  MutexLock lock(&mutex_);
  options_ = options;
}

FaultOptions FaultFabric::options() const {
  MutexLock lock(&mutex_);
  return options_;
}

absl::StatusOr<PeerId> FaultFabric::AddPeer(const PeerAddress& address, Instant deadline) {
  return inner_->AddPeer(address, deadline);
}

void FaultFabric::RemovePeer(PeerId peer) { inner_->RemovePeer(peer); }

absl::StatusOr<RemoteRegion> FaultFabric::Import(const RemoteRegion& granted) {
  return inner_->Import(granted);
}

void FaultFabric::Release(const RemoteRegion& imported) { inner_->Release(imported); }

absl::StatusOr<std::unique_ptr<MemoryRegion>> FaultFabric::Register(std::span<std::byte> memory,
                                                                    MemoryKind kind) {
  return inner_->Register(memory, kind);
}

absl::StatusOr<std::unique_ptr<ReadQueue>> FaultFabric::OpenQueue(const QueueOptions& options) {
  auto inner = inner_->OpenQueue(options);
  if (!inner.ok()) return inner.status();
  const std::uint32_t depth = std::clamp(options.depth, 1u, info().max_outstanding);
  MutexLock lock(&mutex_);
  const std::uint64_t seed = options_.seed * 0x9e3779b97f4a7c15u + queues_++;
  return std::make_unique<FaultQueue>(*this, *inner_, *std::move(inner), depth, seed, clock_);
}

}  // namespace engram::fabric
