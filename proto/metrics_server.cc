#include "proto/metrics_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/grpc_server.h"

namespace engram::wire {
namespace {

// Connects and hangs up: the server's accepting thread looks at its stop flag only when it wakes.
void Knock(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string bare = host.front() == '[' ? host.substr(1, host.size() - 2) : host;
  if (getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    (void)connect(fd, found->ai_addr, found->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, bool insecure_listen,
    std::shared_ptr<prometheus::Collectable> metrics) {
  if (absl::Status ok = CheckListen(listen, insecure_listen); !ok.ok()) return ok;
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->host_ = listen.substr(0, listen.rfind(':'));
  server->metrics_ = std::move(metrics);
  try {
    // A connection holds a thread until it has asked: slow ones must not keep a scrape out.
    server->exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", listen, "num_threads", "8", "request_timeout_ms", "1000"});
    server->exposer_->RegisterCollectable(server->metrics_);
    server->port_ = server->exposer_->GetListeningPorts().front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot serve metrics on ", listen, ": ", error.what(),
        "; the address is in use or not on this host: `ss -ltnp` shows who holds the port; give "
        "another --metrics-listen"));
  }
  return server;
}

MetricsServer::~MetricsServer() { Stop(); }

void MetricsServer::Stop() {
  if (exposer_ == nullptr) return;
  std::atomic<bool> ended{false};
  std::thread knocking([&] {
    while (!ended) {
      Knock(host_, port_);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  exposer_.reset();
  ended = true;
  knocking.join();
}

}  // namespace engram::wire
