#include "fabric/stream/stream_fabric.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fabric/stream/stream_queue.h"
#include "fabric/stream/stream_target.h"

namespace engram::fabric::stream {
namespace {

// The caller's memory as it is: sockets need no registration.
class PlainRegion final : public MemoryRegion {
 public:
  explicit PlainRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

absl::Status Unreachable(const std::string& address, std::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("stream peer ", address, ": ", absl::string_view(why.data(), why.size()),
                   "; check that the pool node runs and that the address is reachable"));
}

// Waits until the socket is ready for `events`.
absl::Status Await(int fd, short events, Instant deadline, const std::string& address) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SystemClock::Get().Now())
            .count();
    if (left <= 0) return Unreachable(address, "no answer before the deadline");
    pollfd wait{fd, events, 0};
    const int rc = poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
    if (rc > 0) return absl::OkStatus();
    if (rc < 0 && errno != EINTR) return Unreachable(address, strerror(errno));
  }
}

absl::StatusOr<HelloReply> Greet(const Peer& peer, const std::string& address, Instant deadline) {
  Descriptor fd;
  int error = StartConnect(peer.address, &fd);
  if (error != 0 && error != EINPROGRESS) return Unreachable(address, strerror(error));
  if (auto status = Await(fd.get(), POLLOUT, deadline, address); !status.ok()) return status;
  socklen_t bytes = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error != 0) return Unreachable(address, strerror(error));
  std::byte hello[kHelloBytes];
  WriteHello({Lane::kUrgent, peer.incarnation, peer.token}, hello);
  if (send(fd.get(), hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
    return Unreachable(address, strerror(errno));
  }
  std::byte answer[kHelloBytes];
  std::size_t got = 0;
  HelloReply reply;
  while (true) {
    if (auto status = Await(fd.get(), POLLIN, deadline, address); !status.ok()) return status;
    const ssize_t n = recv(fd.get(), answer + got, sizeof answer - got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return Unreachable(address, "closed the connection instead of answering the hello");
    got += static_cast<std::size_t>(n);
    const Parsed parsed = ParseHelloReply({answer, got}, &reply);
    if (parsed == Parsed::kOk) return reply;
    if (parsed == Parsed::kGarbage) return Unreachable(address, "is not an engram stream target");
  }
}

absl::Status Judge(const HelloReply& reply, const PeerAddress& wanted) {
  const std::string& address = wanted.path.address;
  switch (reply.result) {
    case HelloResult::kWelcome: return absl::OkStatus();
    case HelloResult::kTokenRefused:
      return absl::PermissionDeniedError(
          absl::StrCat("stream peer ", address,
                       " refuses the session token: the session ended; open a new read session"));
    case HelloResult::kOtherIncarnation:
      return absl::FailedPreconditionError(absl::StrCat(
          "stream peer ", address, " is incarnation ", reply.incarnation.value(), ", wanted is ",
          wanted.incarnation.value(), ": the node restarted; open a new read session"));
    case HelloResult::kOtherVersion: break;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("stream peer ", address, " speaks another version of the stream format than ",
                   kVersion, ": update the older side"));
}

}  // namespace

PeerId PeerTable::Add(std::shared_ptr<Peer> peer) {
  MutexLock lock(&mutex_);
  peer->id = PeerId(static_cast<std::uint32_t>(peers_.size() + 1));
  peers_.push_back(std::move(peer));
  return peers_.back()->id;
}

void PeerTable::Remove(PeerId id) {
  MutexLock lock(&mutex_);
  if (id.value() == 0 || id.value() > peers_.size()) return;
  std::shared_ptr<Peer> peer = std::move(peers_[id.value() - 1]);
  if (peer == nullptr) return;
  peer->removed.store(true, std::memory_order_release);
  removals_.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<const Peer> PeerTable::Find(PeerId id) const {
  MutexLock lock(&mutex_);
  if (id.value() == 0 || id.value() > peers_.size()) return nullptr;
  return peers_[id.value() - 1];
}

StreamFabric::StreamFabric(const StreamFabricOptions& options)
    : options_(options), info_(StreamInfo(kMaxQueueDepth)), peers_(std::make_shared<PeerTable>()) {}

absl::StatusOr<std::unique_ptr<StreamFabric>> StreamFabric::Open(
    const StreamFabricOptions& options) {
  return std::unique_ptr<StreamFabric>(new StreamFabric(options));
}

absl::StatusOr<PeerId> StreamFabric::AddPeer(const PeerAddress& address, Instant deadline) {
  absl::StatusOr<SocketAddress> parsed = ParseAddress(address.path.address);
  if (!parsed.ok()) return parsed.status();
  auto peer = std::make_shared<Peer>();
  peer->address = *std::move(parsed);
  peer->token = address.token;
  peer->incarnation = address.incarnation;
  absl::StatusOr<HelloReply> reply = Greet(*peer, address.path.address, deadline);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = Judge(*reply, address); !status.ok()) return status;
  return peers_->Add(std::move(peer));
}

void StreamFabric::RemovePeer(PeerId peer) { peers_->Remove(peer); }

absl::StatusOr<RemoteRegion> StreamFabric::Import(const RemoteRegion& granted) {
  if (peers_->Find(granted.peer) == nullptr) {
    return absl::NotFoundError(absl::StrCat("stream peer ", granted.peer.value(),
                                            " is not known: add it before importing its regions"));
  }
  return granted;
}

void StreamFabric::Release(const RemoteRegion& imported) { static_cast<void>(imported); }

absl::StatusOr<std::unique_ptr<MemoryRegion>> StreamFabric::Register(std::span<std::byte> memory,
                                                                     MemoryKind kind) {
  if (kind.place != MemoryKind::Place::kHost) {
    return absl::UnimplementedError(
        "stream lands rows in host memory only: read into host staging and copy to the device");
  }
  return std::make_unique<PlainRegion>(memory);
}

absl::StatusOr<std::unique_ptr<ReadQueue>> StreamFabric::OpenQueue(const QueueOptions& options) {
  const std::uint32_t depth = std::clamp<std::uint32_t>(options.depth, 1, kMaxQueueDepth);
  return std::make_unique<StreamQueue>(peers_, depth, options_.connect_timeout);
}

}  // namespace engram::fabric::stream
