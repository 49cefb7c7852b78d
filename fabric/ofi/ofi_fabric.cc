#include "fabric/ofi/ofi_fabric.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fabric/ofi/link.h"
#include "fabric/ofi/ofi_queue.h"

namespace engram::fabric::ofi {
absl::StatusOr<std::unique_ptr<OfiFabric>> OfiFabric::Open(const OfiFabricOptions& options) {
  auto provider = Provider::Open(options.provider);
  if (!provider.ok()) return provider.status();
  std::unique_ptr<OfiFabric> fabric(new OfiFabric);
  fabric->options_ = options;
  fabric->provider_ = *std::move(provider);
  fabric->info_ = fabric->provider_->Describe();
  fabric->info_.max_outstanding = kMaxLinkQueueDepth;
  return fabric;
}

absl::StatusOr<PeerId> OfiFabric::AddPeer(const PeerAddress& address, Instant deadline) {
  auto location = ParseLocation(address.path.address);
  if (!location.ok()) return location.status();
  if (location->provider != provider_->name()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ofi peer speaks ", location->provider, ", this fabric is ", provider_->name(),
                     ": open a fabric for that provider, or choose another path"));
  }
  if (location->incarnation != address.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("ofi peer is incarnation ", location->incarnation.value(), ", wanted is ",
                     address.incarnation.value(), ": the node restarted; open a new read session"));
  }
  auto peer = std::make_shared<OfiPeer>();
  peer->location = *std::move(location);
  if (provider_->is_shm()) peer->owner.emplace(peer->location.name);
  // A read of nothing but the hello: the link greets, then completes the marker.
  struct Marker final : ReadSink {
    bool ended = false;
    ReadStatus status = ReadStatus::kUnreachable;
    void Complete(std::uint64_t, ReadStatus outcome) override {
      ended = true;
      status = outcome;
    }
  } marker;
  PostCounters posts;
  HelloRegion landed;
  auto registered = Register(std::as_writable_bytes(std::span(&landed, 1)), {});
  if (!registered.ok()) return registered.status();
  const Duration patience = deadline - SystemClock::Get().Now();
  Link link(provider_, peer, std::min(patience, options_.connect_timeout), &marker, &posts);
  ReadOp op;
  op.region = {PeerId(), peer->location.hello_address, sizeof landed, peer->location.hello_key};
  op.length = sizeof landed;
  op.local[0] = {reinterpret_cast<std::byte*>(&landed), sizeof landed, registered->get()};
  link.Add(op);
  while (!marker.ended && SystemClock::Get().Now() < deadline) {
    link.Drive();
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
  if (!marker.ended) link.End(ReadStatus::kFlushed);
  if (marker.status != ReadStatus::kOk) {
    return absl::UnavailableError(absl::StrCat(
        "ofi peer by ", provider_->name(), ": ",
        link.trouble().ok() ? "no answer before the deadline" : link.trouble().message(), "; ",
        provider_->open_endpoints(),
        " endpoints are open in this process: check that the pool node runs, that its interface is "
        "reachable, and the limits of open files (ulimit -n) and queue pairs (rdma resource "
        "show)"));
  }
  return peers_->Add(std::move(peer));
}

void OfiFabric::RemovePeer(PeerId peer) { peers_->Remove(peer); }

absl::StatusOr<RemoteRegion> OfiFabric::Import(const RemoteRegion& granted) {
  if (peers_->Find(granted.peer) == nullptr) {
    return absl::NotFoundError(absl::StrCat("ofi peer ", granted.peer.value(),
                                            " is not known: add it before importing its regions"));
  }
  return granted;
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> OfiFabric::Register(std::span<std::byte> memory,
                                                                  MemoryKind kind) {
  Registration registration;
  if (info_.needs_registration || kind.place != MemoryKind::Place::kHost) {
    auto made = provider_->Register(memory, FI_READ, kind);
    if (!made.ok()) return made.status();
    registration = *std::move(made);
  }
  return std::make_unique<OfiRegion>(provider_, memory, kind, std::move(registration));
}

absl::StatusOr<std::unique_ptr<ReadQueue>> OfiFabric::OpenQueue(const QueueOptions& options) {
  return std::make_unique<OfiQueue>(provider_, peers_, options.depth, options_.connect_timeout);
}

}  // namespace engram::fabric::ofi
