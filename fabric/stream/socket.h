// Addresses and sockets of the stream fabric: "host:port", "[v6]:port" or "unix:PATH". Thread-safe.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace engram::fabric::stream {

// A descriptor, closed at the end of its life. Thread-compatible.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { Reset(); }
  int get() const { return fd_; }
  void Reset();

 private:
  int fd_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  bool unix_path = false;
  std::string host;  // as written; a path for unix
  int family() const { return storage.ss_family; }
};

// Resolves names, so it may block. InvalidArgument: not such an address. Unavailable: the name does
// not resolve.
absl::StatusOr<SocketAddress> ParseAddress(std::string_view text);

// A non-blocking listening socket. AlreadyExists: the port or path is in use by a live process; the
// socket file of a dead one is replaced.
absl::StatusOr<Descriptor> Listen(const SocketAddress& address, std::string_view text);

// Starts a non-blocking connect: 0, or EINPROGRESS, or why not.
int StartConnect(const SocketAddress& address, Descriptor* out);

// Small messages at once, large ones in one piece where the machine's limits allow.
void TuneConnection(int fd, const SocketAddress& address);

// "host:port" of a bound socket with `host` in front ("" = its own address), or "unix:PATH".
std::string BoundAddress(int fd, const SocketAddress& listened, std::string_view host);

}  // namespace engram::fabric::stream
