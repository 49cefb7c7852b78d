// The real machine behind the checks of `doctor`.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "client/ctl/doctor_checks.h"
#include "fabric/ofi/rdma_ports.h"

namespace engram::ctl {
namespace {

absl::Status Errno(const std::string& what) {
  return absl::UnavailableError(what + ": " + std::strerror(errno));
}

// Closes a descriptor when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct LoopbackAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

LoopbackAddress Loopback(int family, std::uint16_t port) {
  LoopbackAddress address;
  if (family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = in6addr_loopback;
    v6->sin6_port = htons(port);
    address.length = sizeof *v6;
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v4->sin_port = htons(port);
    address.length = sizeof *v4;
  }
  return address;
}

absl::Status ConnectToSelf(int family) {
  const Descriptor listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return Errno("socket");
  LoopbackAddress address = Loopback(family, 0);
  if (::bind(listener.get(), address.get(), address.length) != 0) return Errno("bind");
  if (listen(listener.get(), 1) != 0) return Errno("listen");
  if (getsockname(listener.get(), address.get(), &address.length) != 0) return Errno("getsockname");
  const Descriptor caller(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (caller.get() < 0) return Errno("socket");
  if (connect(caller.get(), address.get(), address.length) != 0) return Errno("connect");
  pollfd ready{listener.get(), POLLIN, 0};
  if (poll(&ready, 1, 1000) != 1) return absl::UnavailableError("no connection within 1 s");
  return absl::OkStatus();
}

absl::Status BindPort(std::uint16_t port) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return Errno("socket");
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  LoopbackAddress address = Loopback(AF_INET, port);
  if (::bind(listener.get(), address.get(), address.length) != 0) return Errno("bind");
  return absl::OkStatus();
}

absl::StatusOr<Space> SpaceOf(const std::string& path) {
  struct statvfs stats {};
  if (statvfs(path.c_str(), &stats) != 0) return Errno("statvfs " + path);
  return Space{std::uint64_t{stats.f_blocks} * stats.f_frsize,
               std::uint64_t{stats.f_bavail} * stats.f_frsize};
}

int TryIoUring() {
  // struct io_uring_params is 120 bytes of zeros for a plain ring; the kernel checks only its
  // pointer.
  std::array<std::byte, 120> params{};
  const long fd = syscall(__NR_io_uring_setup, 1, params.data());
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

}  // namespace

Host Host::Real() {
  Host host;
  host.space = SpaceOf;
  host.loopback = ConnectToSelf;
  host.bind = BindPort;
  host.io_uring = TryIoUring;
  host.addresses = fabric::ofi::AddressesOf;
  host.unix_seconds = [] { return static_cast<std::int64_t>(std::time(nullptr)); };
  return host;
}

}  // namespace engram::ctl
