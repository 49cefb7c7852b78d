// Where Prometheus scrapes a program: /metrics over HTTP, from one Collectable. Slow and silent
// connections do not keep a scrape out, nor hold up the end of the program. Thread-compatible.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace engram::wire {

class MetricsServer {
 public:
  // `listen` is HOST:PORT; port 0 = any free one. InvalidArgument, FailedPrecondition: as
  // CheckListen. Unavailable: the address cannot be bound (names it, and says how to find who holds
  // it).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& listen, bool insecure_listen,
      std::shared_ptr<prometheus::Collectable> metrics);
  ~MetricsServer();  // = Stop()

  int port() const { return port_; }
  // Nothing is collected afterwards. Idempotent.
  void Stop();

 private:
  MetricsServer() = default;

  std::string host_;
  int port_ = 0;
  std::shared_ptr<prometheus::Collectable> metrics_;  // the exposer keeps a weak reference
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace engram::wire
