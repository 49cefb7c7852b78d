// The raw socket floor: what a gather over plain sockets costs when nothing else is done. Message:
// u32 rows, then rows x u64 row numbers; reply: the packed rows.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "bench/driver/paths.h"

namespace engram::bench {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr std::uint32_t kMaxRows = 1536;  // of one message

// Waits until `fd` is readable: spins, then blocks.
void AwaitReadable(int fd, std::chrono::steady_clock::time_point since) {
  if (std::chrono::steady_clock::now() - since < kSpin) return;
  pollfd wait{fd, POLLIN, 0};
  poll(&wait, 1, 1000);
}

bool ReceiveAll(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  auto since = std::chrono::steady_clock::now();
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) {
      AwaitReadable(fd, since);
      continue;
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
    since = std::chrono::steady_clock::now();
  }
  return true;
}

bool SendAll(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0 && errno != EINTR) return false;
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
  }
  return true;
}

[[noreturn]] void Serve(const BenchTable& table, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<RowId> ids(kMaxRows);
  std::vector<std::byte> out(std::size_t{kMaxRows} * table.row_bytes());
  const auto gather = RawGather(table);
  std::uint32_t rows = 0;
  static_assert(sizeof(RowId) == 8);
  while (ReceiveAll(fd, &rows, sizeof rows) && rows <= kMaxRows &&
         ReceiveAll(fd, ids.data(), rows * sizeof(RowId))) {
    const Batch batch{{ids.data(), rows}, out.data()};
    if (!gather->Read({&batch, 1}).ok()) break;
    if (!SendAll(fd, out.data(), std::size_t{rows} * table.row_bytes())) break;
  }
  _exit(0);
}

// A connected pair of TCP sockets over loopback, or of Unix sockets.
absl::Status ConnectedPair(SocketKind kind, int fds[2]) {
  if (kind == SocketKind::kUnix) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  const bool connected = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                         listen(listener, 1) == 0 &&
                         getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                         connect(fds[0], reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                         (fds[1] = accept(listener, nullptr, nullptr)) >= 0;
  const int error = errno;
  close(listener);
  if (!connected)
    return absl::UnavailableError(absl::StrCat("TCP over loopback: ", std::strerror(error)));
  const int one = 1;
  for (int i = 0; i < 2; ++i) setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return absl::OkStatus();
}

class Socket final : public ReadPath {
 public:
  Socket(std::string name, int fd, pid_t server, std::uint32_t row_bytes, std::uint32_t outstanding)
      : name_(std::move(name)),
        fd_(fd),
        server_(server),
        row_bytes_(row_bytes),
        outstanding_(outstanding) {}
  ~Socket() override {
    close(fd_);
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
  }
  const std::string& name() const override { return name_; }

  absl::Status Read(std::span<const Batch> batches) override {
    struct Message {
      std::byte* out;
      std::size_t bytes;
    };
    std::deque<Message> waiting;
    const auto receive = [&] {
      const Message first = waiting.front();
      waiting.pop_front();
      return ReceiveAll(fd_, first.out, first.bytes);
    };
    bool alive = true;
    for (const Batch& batch : batches) {
      for (std::size_t at = 0; alive && at < batch.ids.size(); at += kMaxRows) {
        const auto rows = std::min<std::size_t>(kMaxRows, batch.ids.size() - at);
        while (alive && waiting.size() >= std::max<std::size_t>(outstanding_, at > 0 ? 2 : 1))
          alive = receive();
        alive = alive && Ask(batch.ids.subspan(at, rows));
        waiting.push_back({batch.out + at * row_bytes_, rows * row_bytes_});
      }
    }
    while (alive && !waiting.empty()) alive = receive();
    return alive ? absl::OkStatus() : absl::UnavailableError("the raw socket server is gone");
  }

 private:
  bool Ask(std::span<const RowId> ids) {
    const auto rows = static_cast<std::uint32_t>(ids.size());
    message_.resize(sizeof rows + ids.size_bytes());
    std::memcpy(message_.data(), &rows, sizeof rows);
    std::memcpy(message_.data() + sizeof rows, ids.data(), ids.size_bytes());
    return SendAll(fd_, message_.data(), message_.size());
  }

  const std::string name_;
  const int fd_;
  const pid_t server_;
  const std::uint32_t row_bytes_;
  const std::uint32_t outstanding_;
  std::vector<char> message_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReadPath>> RawSocket(const BenchTable& table, SocketKind kind,
                                                    std::uint32_t outstanding) {
  int fds[2];
  if (absl::Status ok = ConnectedPair(kind, fds); !ok.ok()) return ok;
  const pid_t server = fork();
  if (server < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  if (server == 0) {
    close(fds[0]);
    Serve(table, fds[1]);
  }
  close(fds[1]);
  return std::make_unique<Socket>(kind == SocketKind::kTcp ? "raw_socket_tcp" : "raw_socket_unix",
                                  fds[0], server, table.row_bytes(), outstanding);
}

}  // namespace engram::bench
