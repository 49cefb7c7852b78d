#include "fabric/mapped/mapped_target.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/random.h"
#include "fabric/mapped/grants.h"
#include "fabric/mapped/mapped_info.h"
#include "fabric/mapped/wire.h"

namespace engram::fabric {
namespace {

using mapped::Grants;
using mapped::Reply;
using mapped::Request;
using mapped::Verb;

struct Connection {
  int fd = -1;
  bool open = false;  // authenticated
  SessionToken session;
  Instant deadline;  // to authenticate
};

Reply Refusal(const absl::Status& status) {
  Reply reply;
  reply.code = static_cast<std::uint32_t>(status.code());
  return reply;
}

// False: the peer does not take it now, which a peer that reads its replies always does.
bool Send(int socket, const Reply& reply, int pass_fd) {
  iovec part{const_cast<Reply*>(&reply), sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (pass_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pass_fd, sizeof pass_fd);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof reply;
}

class MappedTarget final : public Target {
 public:
  MappedTarget(MappedTargetOptions options, int listener, int wake)
      : options_(std::move(options)), listener_(listener), wake_(wake) {
    nonce_ = SystemRandom().Next();
    thread_ = std::thread([this] { Run(); });
  }
  ~MappedTarget() override {
    MappedTarget::Stop();
    close(wake_);
  }

  const FabricInfo& info() const override { return info_; }
  PathAddress address() const override {
    return {info_.kind, options_.address, info_.one_sided, info_.offloaded, nonce_};
  }
  void SetIncarnation(Incarnation incarnation) override { incarnation_.store(incarnation.value()); }
  // A device cannot be sealed against its readers, so it is not passed to them.
  bool Reaches(const Slab& slab) const override { return slab.fd() >= 0; }
  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) override {
    return grants_.Expose(memory);
  }
  void Hide(std::uint64_t key) override { grants_.Hide(key); }
  void Admit(const SessionToken& session) override { grants_.Admit(session); }
  void Dismiss(const SessionToken& session) override {
    grants_.Dismiss(session);
    Wake();  // the thread closes its connections
  }
  void Allow(const SessionToken& session, std::uint64_t key) override {
    grants_.Allow(session, key);
  }
  void Disallow(const SessionToken& session, std::uint64_t key) override {
    grants_.Disallow(session, key);
  }
  void Stop() override {
    stop_.store(true);
    Wake();
    std::call_once(joined_, [this] { thread_.join(); });
  }

 private:
  void Wake() {
    const std::uint64_t one = 1;
    if (write(wake_, &one, sizeof one) < 0) return;  // it is awake already
  }

  void Run() {
    std::vector<pollfd> polled;
    while (!stop_.load()) {
      polled.assign({{wake_, POLLIN, 0}, {listener_, POLLIN, 0}});
      for (const Connection& peer : peers_) polled.push_back({peer.fd, POLLIN, 0});
      if (poll(polled.data(), polled.size(), PollTimeoutMs()) < 0 && errno != EINTR) break;
      std::uint64_t count;
      if (read(wake_, &count, sizeof count) < 0) count = 0;
      std::size_t at = 2;
      for (auto peer = peers_.begin(); peer != peers_.end(); ++at) {
        const bool keep = (polled[at].revents == 0 || Serve(*peer)) && MayStay(*peer);
        if (!keep) close(peer->fd);
        peer = keep ? std::next(peer) : peers_.erase(peer);
      }
      if (polled[1].revents != 0) Accept();
    }
    CloseAll();
  }

  int PollTimeoutMs() const {
    Duration wait = std::chrono::hours(1);
    const Instant now = SystemClock::Get().Now();
    for (const Connection& peer : peers_) {
      if (!peer.open) wait = std::min(wait, peer.deadline - now);
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count() + 1;
    return static_cast<int>(std::max<std::int64_t>(ms, 0));
  }

  bool MayStay(const Connection& peer) {
    if (peer.open) return grants_.Admits(peer.session);
    return SystemClock::Get().Now() < peer.deadline;
  }

  void Accept() {
    for (int taken = 0; taken < 16; ++taken) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        // Out of descriptors: do not spin on a listener that stays readable.
        if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, 10);
        return;
      }
      Reply greeting;
      greeting.nonce = nonce_;
      greeting.incarnation = incarnation_.load();
      if (!AllowedUser(fd)) {
        greeting = Refusal(absl::PermissionDeniedError(""));
      } else if (!MakeRoom()) {
        greeting = Refusal(absl::ResourceExhaustedError(""));
      }
      if (!Send(fd, greeting, -1) || greeting.code != 0) {
        close(fd);
        continue;
      }
      peers_.push_back({fd, false, {}, SystemClock::Get().Now() + options_.open_deadline});
    }
  }

  bool AllowedUser(int fd) const {
    ucred user{};
    socklen_t bytes = sizeof user;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0) return false;
    const auto& allowed = options_.allowed_uids;
    if (allowed.empty()) return user.uid == geteuid() || user.uid == 0;
    return std::find(allowed.begin(), allowed.end(), user.uid) != allowed.end();
  }

  // When all places are taken, the oldest peer that has not authenticated gives way.
  bool MakeRoom() {
    if (peers_.size() < options_.max_connections) return true;
    const auto stranger =
        std::find_if(peers_.begin(), peers_.end(), [](const Connection& c) { return !c.open; });
    if (stranger == peers_.end()) return false;
    close(stranger->fd);
    peers_.erase(stranger);
    return true;
  }

  // False: the connection ends.
  bool Serve(Connection& peer) {
    for (int i = 0; i < 16; ++i) {  // then the others have their turn
      Request request;
      // Descriptors that a peer might send are dropped by the kernel: no room for them is given.
      const ssize_t bytes = recv(peer.fd, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
      if (bytes < 0) return errno == EAGAIN || errno == EINTR;
      if (bytes != sizeof request || request.magic != mapped::kMagic) return false;
      if (!Answer(peer, request)) return false;
    }
    return true;
  }

  bool Answer(Connection& peer, const Request& request) {
    if (request.verb == Verb::kOpen && !peer.open) {
      memcpy(peer.session.bytes.data(), request.token, sizeof request.token);
      peer.open = grants_.Admits(peer.session);
      if (peer.open) return Send(peer.fd, Reply{}, -1);
      Send(peer.fd, Refusal(absl::PermissionDeniedError("")), -1);
      return false;
    }
    if (request.verb != Verb::kImport || !peer.open) return false;
    auto slab = grants_.Import(peer.session, request.key);
    if (!slab.ok()) return Send(peer.fd, Refusal(slab.status()), -1);
    Reply reply;
    reply.slab = slab->slab;
    reply.slab_bytes = slab->slab_bytes;
    reply.page_bytes = slab->page_bytes;
    reply.offset = slab->offset;
    reply.length = slab->length;
    const bool sent = Send(peer.fd, reply, slab->fd);
    close(slab->fd);
    return sent;
  }

  void CloseAll() {
    for (const Connection& peer : peers_) close(peer.fd);
    peers_.clear();
    close(listener_);
    if (options_.address[0] == '/') unlink(options_.address.c_str());
  }

  const FabricInfo info_ = MappedInfo();
  const MappedTargetOptions options_;
  const int listener_;
  const int wake_;
  std::uint64_t nonce_ = 0;
  Grants grants_;
  std::list<Connection> peers_;  // of the thread
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> incarnation_{options_.incarnation.value()};
  std::once_flag joined_;
  std::thread thread_;
};

// A socket file of a process that died must not be in the way of its successor.
void RemoveStaleFile(const MappedTargetOptions& options, const mapped::SocketAddress& address) {
  struct stat file {};
  if (options.address[0] != '/' || stat(options.address.c_str(), &file) != 0) return;
  if (!S_ISSOCK(file.st_mode)) return;
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool dead = connect(probe, address.get(), address.bytes) != 0 && errno == ECONNREFUSED;
  close(probe);
  if (dead) unlink(options.address.c_str());
}

absl::StatusOr<int> Listen(const MappedTargetOptions& options) {
  auto address = mapped::ParseSocketAddress(options.address);
  if (!address.ok()) return address.status();
  RemoveStaleFile(options, *address);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0 && bind(fd, address->get(), address->bytes) == 0 && listen(fd, 128) == 0) {
    // Who may come in is decided by uid and token, not by the file's mode.
    if (options.address[0] == '/') chmod(options.address.c_str(), 0666);
    return fd;
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  const std::string message =
      absl::StrCat("mapped target socket ", options.address, ": ", strerror(error));
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(message, "; another node uses it"));
  }
  return absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> OpenMappedTarget(const MappedTargetOptions& options) {
  MappedTargetOptions filled = options;
  if (filled.address.empty()) {
    filled.address = "@engram-" + SystemRandom().Bits<struct AddressTag>().Hex();
  }
  auto listener = Listen(filled);
  if (!listener.ok()) return listener.status();
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    close(*listener);
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", strerror(errno)));
  }
  return std::make_unique<MappedTarget>(std::move(filled), *listener, wake);
}

}  // namespace engram::fabric
