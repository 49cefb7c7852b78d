#include "fabric/ucx/ucx_fabric.h"

#include <time.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fabric/ucx/ucx_queue.h"

namespace engram::fabric::ucx {
namespace {

// Drives the connection until `done` says so, it fails or the time is over.
template <class Done>
void DriveUntil(Connection& connection, Instant deadline, Done done) {
  const SystemClock clock;
  while (!done()) {
    connection.Progress();
    if (done() || connection.state() == Connection::State::kFailed || clock.Now() >= deadline) {
      return;
    }
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

absl::Status NoAnswer(const std::string& transports) {
  return absl::UnavailableError(absl::StrCat(
      "ucx peer by ", transports,
      ": no answer before the deadline; check that the pool node runs, that its device is "
      "reachable and that both sides have a transport in common (ENGRAM_UCX_TLS)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxFabric>> UcxFabric::Open(const UcxFabricOptions& options) {
  auto transport = Transport::Open(options.transport);
  if (!transport.ok()) return transport.status();
  std::unique_ptr<UcxFabric> fabric(new UcxFabric);
  fabric->options_ = options;
  fabric->transport_ = *std::move(transport);
  fabric->info_ = fabric->transport_->Describe();
  fabric->info_.max_outstanding = kMaxLinkQueueDepth;
  return fabric;
}

absl::Status UcxFabric::Greet(UcxPeer& peer, Instant deadline) const {
  Connection& control = peer.control;
  if (control.state() == Connection::State::kOpen) control.Progress();
  if (control.state() == Connection::State::kOpen) return absl::OkStatus();
  control.Close();
  if (control.Open()) {
    DriveUntil(control, deadline, [&] {
      peer.mutex.AssertHeld();
      return control.state() == Connection::State::kOpen;
    });
  }
  if (control.state() == Connection::State::kOpen) return absl::OkStatus();
  const Outcome refusal = control.refusal();
  control.Close();
  if (refusal == Outcome::kNoSession) {
    return absl::PermissionDeniedError(
        "ucx peer: the token is not of an open read session; open one with the node");
  }
  if (refusal == Outcome::kOtherIncarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("ucx peer: another incarnation than ", peer.location.incarnation.value(),
                     " answered: the node restarted; open a new read session"));
  }
  return NoAnswer(transport_->name());
}

absl::StatusOr<PeerId> UcxFabric::AddPeer(const PeerAddress& address, Instant deadline) {
  auto location = ParseLocation(address.path.address);
  if (!location.ok()) return location.status();
  if (location->incarnation != address.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("ucx peer is incarnation ", location->incarnation.value(), ", wanted is ",
                     address.incarnation.value(), ": the node restarted; open a new read session"));
  }
  auto peer = std::make_shared<UcxPeer>(transport_, *std::move(location), address.token);
  {
    MutexLock lock(&peer->mutex);
    const Instant patience = SystemClock::Get().Now() + options_.connect_timeout;
    if (absl::Status status = Greet(*peer, std::min(deadline, patience)); !status.ok()) {
      return status;
    }
    if (!transport_->uses_get()) peer->control.Close();
  }
  return peers_->Add(std::move(peer));
}

void UcxFabric::RemovePeer(PeerId id) {
  if (const auto peer = peers_->Remove(id)) {
    MutexLock lock(&peer->mutex);
    peer->control.Close();
  }
}

absl::StatusOr<Received<Answer>> UcxFabric::AskForKey(UcxPeer& peer, std::uint64_t key) const {
  const Instant deadline = SystemClock::Get().Now() + options_.connect_timeout;
  if (absl::Status status = Greet(peer, deadline); !status.ok()) return status;
  peer.control.AskForKey(key);
  std::optional<Received<Answer>> answer;
  DriveUntil(peer.control, deadline, [&] {
    peer.mutex.AssertHeld();
    if (!answer) answer = peer.control.TakeAnswer();
    return answer.has_value();
  });
  if (answer && answer->head.request == key) return *std::move(answer);
  peer.control.Close();
  return NoAnswer(transport_->name());
}

absl::StatusOr<RemoteRegion> UcxFabric::Import(const RemoteRegion& granted) {
  const auto peer = peers_->Find(granted.peer);
  if (peer == nullptr) {
    return absl::NotFoundError(absl::StrCat("ucx peer ", granted.peer.value(),
                                            " is not known: add it before importing its regions"));
  }
  return transport_->uses_get() ? ImportKey(*peer, granted) : granted;
}

absl::StatusOr<RemoteRegion> UcxFabric::ImportKey(UcxPeer& peer,
                                                  const RemoteRegion& granted) const {
  absl::StatusOr<Received<Answer>> answer;
  {
    MutexLock lock(&peer.mutex);
    answer = AskForKey(peer, granted.key);
  }
  if (!answer.ok()) return answer.status();
  const Answer& region = answer->head;
  if (region.outcome != Outcome::kOk || region.address != granted.address ||
      region.length != granted.length) {
    return absl::PermissionDeniedError(
        "ucx: the region is not granted to this session as it was asked for");
  }
  const std::uint64_t number =
      peer.keys.Add(granted.key, {region.address, region.length, std::move(answer->tail)});
  return RemoteRegion{granted.peer, granted.address, granted.length, number};
}

void UcxFabric::Release(const RemoteRegion& imported) {
  if (const auto peer = peers_->Find(imported.peer)) peer->keys.Remove(imported.key);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> UcxFabric::Register(std::span<std::byte> memory,
                                                                  MemoryKind kind) {
  if (kind.place != MemoryKind::Place::kHost) {
    return absl::UnimplementedError(
        "ucx lands rows in host memory only: read into host staging and copy to the device");
  }
  MemoryHandle handle;
  if (info_.needs_registration) {
    auto made =
        transport_->Register(memory, UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE);
    if (!made.ok()) return made.status();
    handle = *std::move(made);
  }
  return std::make_unique<UcxRegion>(transport_, memory, std::move(handle));
}

absl::StatusOr<std::unique_ptr<ReadQueue>> UcxFabric::OpenQueue(const QueueOptions& options) {
  return UcxQueue::Open(transport_, peers_, options.depth, options_.connect_timeout);
}

}  // namespace engram::fabric::ucx
