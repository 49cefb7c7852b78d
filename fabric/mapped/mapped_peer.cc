#include "fabric/mapped/mapped_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric/memory.h"

namespace engram::fabric::mapped {
namespace {

int TimeoutMs(Instant deadline) {
  const Duration left = deadline - SystemClock::Get().Now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms + 1, 0, 3'600'000));
}

absl::Status Silent() { return absl::UnavailableError("no answer before the deadline"); }

absl::Status ConnectBefore(int fd, const SocketAddress& address, Instant deadline) {
  while (connect(fd, address.get(), address.bytes) != 0) {
    if (errno == EAGAIN && SystemClock::Get().Now() < deadline) {
      poll(nullptr, 0, 5);  // the backlog is full: there is nothing to wait on
    } else if (errno == EACCES) {
      return absl::PermissionDeniedError(strerror(EACCES));
    } else if (errno != EINTR) {
      return errno == EAGAIN ? Silent() : absl::UnavailableError(strerror(errno));
    }
  }
  return absl::OkStatus();
}

// A descriptor in flight; closed unless taken.
struct ReceivedFd {
  int fd = -1;
  ~ReceivedFd() {
    if (fd >= 0) close(fd);
  }
};

absl::Status Receive(int socket, Instant deadline, Reply* reply, ReceivedFd* received) {
  pollfd wait{socket, POLLIN, 0};
  int ready;
  while ((ready = poll(&wait, 1, TimeoutMs(deadline))) < 0 && errno == EINTR) continue;
  if (ready == 0) return Silent();
  iovec part{reply, sizeof *reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // room for one descriptor, not for its padding
  const ssize_t bytes = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes <= 0) return absl::UnavailableError("the node closed the connection");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    memcpy(&received->fd, CMSG_DATA(header), sizeof received->fd);
  }
  if (bytes != sizeof *reply || reply->magic != kMagic || (message.msg_flags & MSG_TRUNC) != 0) {
    return absl::FailedPreconditionError("it does not speak the protocol of mapped memory");
  }
  return absl::OkStatus();
}

absl::Status Ask(int socket, const Request& request, Instant deadline, Reply* reply,
                 ReceivedFd* received) {
  if (send(socket, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof request) {
    return absl::UnavailableError("the node closed the connection");
  }
  return Receive(socket, deadline, reply, received);
}

// A slab that could shrink would be a SIGBUS in this process, one that is not sealed could be
// rewritten by any of its readers.
absl::Status CheckSlab(int fd, std::uint64_t bytes) {
  struct stat file {};
  if (fd < 0 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    return absl::FailedPreconditionError("it sent no descriptor of a slab");
  }
  if (bytes == 0 || static_cast<std::uint64_t>(file.st_size) != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("its slab has ", file.st_size, " bytes, not ", bytes));
  }
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
    return absl::FailedPreconditionError("its slab's descriptor is writable");
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSlabSeals) != kSlabSeals) {
    return absl::FailedPreconditionError(
        absl::StrCat("its slab has the seals ", std::max(seals, 0), ", not all of ", kSlabSeals));
  }
  return absl::OkStatus();
}

bool ValidPage(std::uint64_t bytes) {
  return bytes == static_cast<std::uint64_t>(PageSize::k4KiB) ||
         bytes == static_cast<std::uint64_t>(PageSize::k2MiB) ||
         bytes == static_cast<std::uint64_t>(PageSize::k1GiB);
}

}  // namespace

absl::StatusOr<std::shared_ptr<MappedPeer>> MappedPeer::Connect(const PeerAddress& address,
                                                                Instant deadline) {
  auto where = ParseSocketAddress(address.path.address);
  if (!where.ok()) return where.status();
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("socket: ", strerror(errno)));
  std::shared_ptr<MappedPeer> peer(new MappedPeer(
      fd, absl::StrCat("node \"", address.node.name, "\" at ", address.path.address, ": ")));
  absl::Status status = ConnectBefore(fd, *where, deadline);
  if (status.ok()) status = peer->Greet(address, deadline);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(peer->name_, std::string(status.message())));
  }
  return peer;
}

absl::Status MappedPeer::Greet(const PeerAddress& address, Instant deadline) {
  Reply greeting;
  ReceivedFd with_greeting, with_reply;  // there should be none
  if (auto status = Receive(socket_, deadline, &greeting, &with_greeting); !status.ok())
    return status;
  if (greeting.code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(greeting.code),
                        "it does not take connections of this user");
  }
  if (greeting.nonce != address.path.nonce) {
    return absl::FailedPreconditionError(
        "another node answers there: it is not on this host, or has been restarted");
  }
  if (greeting.incarnation != address.incarnation.value()) {
    return absl::FailedPreconditionError(absl::StrCat("incarnation ", greeting.incarnation,
                                                      " answers, ", address.incarnation.value(),
                                                      " was wanted; open a new read session"));
  }
  Request open;
  memcpy(open.token, address.token.bytes.data(), sizeof open.token);
  Reply reply;
  if (auto status = Ask(socket_, open, deadline, &reply, &with_reply); !status.ok()) return status;
  if (reply.code != 0) {
    return absl::PermissionDeniedError("it refuses the session token; open a new read session");
  }
  return absl::OkStatus();
}

MappedPeer::~MappedPeer() {
  for (auto& [id, mapping] : slabs_) munmap(mapping.data, mapping.bytes);
  if (socket_ >= 0) close(socket_);
}

absl::StatusOr<MappedPeer::Mapping*> MappedPeer::MapOnce(const Reply& reply, int fd) {
  if (const auto found = slabs_.find(reply.slab); found != slabs_.end()) return &found->second;
  if (auto status = CheckSlab(fd, reply.slab_bytes); !status.ok()) return status;
  if (!ValidPage(reply.page_bytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat("its pages have ", reply.page_bytes, " bytes"));
  }
  std::byte* const data = MapSharedReadOnly(fd, reply.slab_bytes, reply.page_bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mapping a slab of ", reply.slab_bytes, " bytes: ", strerror(errno)));
  }
  madvise(data, reply.slab_bytes, MADV_DONTDUMP);  // a core file is no place for tables
  return &(slabs_[reply.slab] = {data, reply.slab_bytes, 0});
}

absl::StatusOr<std::uint64_t> MappedPeer::Import(const RemoteRegion& granted, Instant deadline) {
  Request request;
  request.verb = Verb::kImport;
  request.key = granted.key;
  MutexLock lock(&mutex_);
  if (socket_ < 0) return absl::UnavailableError(absl::StrCat(name_, "the connection is lost"));
  Reply reply;
  ReceivedFd received;
  if (auto status = Ask(socket_, request, deadline, &reply, &received); !status.ok()) {
    // A late answer would be taken for that of the next question.
    close(std::exchange(socket_, -1));
    return absl::Status(status.code(), absl::StrCat(name_, std::string(status.message())));
  }
  if (reply.code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(reply.code),
                        absl::StrCat(name_, "it does not grant key ", granted.key));
  }
  if (granted.address < reply.offset || granted.address - reply.offset > reply.length ||
      granted.length > reply.length - (granted.address - reply.offset) ||
      reply.offset > reply.slab_bytes || reply.length > reply.slab_bytes - reply.offset) {
    return absl::PermissionDeniedError(absl::StrCat(name_, "[", granted.address, ", +",
                                                    granted.length, ") is outside what key ",
                                                    granted.key, " grants"));
  }
  auto mapping = MapOnce(reply, received.fd);
  if (!mapping.ok()) {
    return absl::Status(mapping.status().code(),
                        absl::StrCat(name_, std::string(mapping.status().message())));
  }
  if (granted.address + granted.length > (*mapping)->bytes) {
    return absl::FailedPreconditionError(absl::StrCat(name_, "its slab changed its size"));
  }
  (*mapping)->imports += 1;
  return reinterpret_cast<std::uint64_t>((*mapping)->data) + granted.address;
}

void MappedPeer::Release(std::uint64_t address) {
  MutexLock lock(&mutex_);
  for (auto slab = slabs_.begin(); slab != slabs_.end(); ++slab) {
    Mapping& mapping = slab->second;
    const auto start = reinterpret_cast<std::uint64_t>(mapping.data);
    if (address < start || address - start > mapping.bytes) continue;
    if (--mapping.imports > 0) return;
    munmap(mapping.data, mapping.bytes);
    slabs_.erase(slab);
    return;
  }
}

}  // namespace engram::fabric::mapped
