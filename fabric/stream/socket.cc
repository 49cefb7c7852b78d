#include "fabric/stream/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace engram::fabric::stream {
namespace {

constexpr std::string_view kUnix = "unix:";
// A reply of 1,536 sealed rows (418 KiB) fits whole, twice.
constexpr int kSocketBufferBytes = 2 << 20;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::StatusOr<SocketAddress> ParseUnix(std::string_view path) {
  SocketAddress out;
  auto* address = reinterpret_cast<sockaddr_un*>(&out.storage);
  if (path.empty() || path.size() >= sizeof address->sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream address unix:", View(path), ": the path has ", path.size(),
                     " bytes, allowed are 1 to ", sizeof address->sun_path - 1));
  }
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path, path.data(), path.size());
  out.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  out.unix_path = true;
  out.host = path;
  return out;
}

// True when a process listens on the path.
bool PathIsAlive(const SocketAddress& address) {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int rc =
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes);
  return rc == 0 || errno != ECONNREFUSED;
}

absl::Status RemoveStalePath(const SocketAddress& address) {
  struct stat info;
  if (lstat(address.host.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on unix:", address.host,
                     ": the path is there and is not a socket; remove it"
                     " or choose another path"));
  }
  if (PathIsAlive(address)) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on unix:", address.host,
                     ": another process listens there; stop it or choose"
                     " another path"));
  }
  unlink(address.host.c_str());
  return absl::OkStatus();
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<SocketAddress> ParseAddress(std::string_view text) {
  if (text.substr(0, kUnix.size()) == kUnix) return ParseUnix(text.substr(kUnix.size()));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("stream address \"", View(text),
                                                   "\": wanted is host:port, [v6]:port or"
                                                   " unix:PATH"));
  }
  std::string host(text.substr(0, colon));
  const std::string port(text.substr(colon + 1));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (rc == EAI_NONAME || rc == EAI_AGAIN || rc == EAI_FAIL) {
    return absl::UnavailableError(absl::StrCat("stream address \"", View(text),
                                               "\" does not resolve: ", gai_strerror(rc),
                                               "; check the name and port"));
  }
  if (rc != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream address \"", View(text), "\": ", gai_strerror(rc)));
  }
  SocketAddress out;
  memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.bytes = found->ai_addrlen;
  out.host = host;
  freeaddrinfo(found);
  return out;
}

absl::StatusOr<Descriptor> Listen(const SocketAddress& address, std::string_view text) {
  if (address.unix_path) {
    if (absl::Status status = RemoveStalePath(address); !status.ok()) return status;
  }
  Descriptor fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  if (!address.unix_path) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd.get() < 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      listen(fd.get(), 1024) != 0) {
    const int error = errno;
    const std::string message =
        absl::StrCat("cannot listen on ", View(text), ": ", strerror(error),
                     error == EADDRINUSE ? "; stop the other process or choose another port" : "");
    return error == EADDRINUSE ? absl::AlreadyExistsError(message)
                               : absl::UnavailableError(message);
  }
  // Connections inherit the buffers, which must be set before the handshake to widen the window.
  TuneConnection(fd.get(), address);
  return fd;
}

int StartConnect(const SocketAddress& address, Descriptor* out) {
  Descriptor fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return errno;
  TuneConnection(fd.get(), address);
  int error = 0;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
    error = errno;
  }
  *out = std::move(fd);
  return error;
}

void TuneConnection(int fd, const SocketAddress& address) {
  const int one = 1;
  if (!address.unix_path) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
}

std::string BoundAddress(int fd, const SocketAddress& listened, std::string_view host) {
  if (listened.unix_path) return absl::StrCat("unix:", listened.host);
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes);
  char name[NI_MAXHOST];
  char port[NI_MAXSERV];
  getnameinfo(reinterpret_cast<sockaddr*>(&storage), bytes, name, sizeof name, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  std::string shown(host.empty() ? std::string_view(name) : host);
  if (shown.find(':') != std::string::npos && shown.front() != '[')
    shown = absl::StrCat("[", shown, "]");
  return absl::StrCat(shown, ":", port);
}

}  // namespace engram::fabric::stream
