// What every gRPC program of the pool does alike: where it may listen, message limits, health,
// reflection, and how a client channel is made. A process that starts a server keeps gRPC's own log
// off its stderr unless GRPC_VERBOSITY is set. Thread-safe once started.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "proto/credentials.h"

namespace engram::wire {

inline constexpr int kMaxMessageBytes = 64 << 20;

// A channel's keep-alive: a peer that is silent for kPingAfter is asked, and given up when it does
// not answer within kPingTimeout. So calls to a host that is gone, or to a process that was
// stopped, end after kGivenUpAfter at the latest.
inline constexpr std::chrono::milliseconds kPingAfter = std::chrono::seconds(10);
inline constexpr std::chrono::milliseconds kPingTimeout = std::chrono::seconds(5);
inline constexpr std::chrono::milliseconds kGivenUpAfter = kPingAfter + kPingTimeout;

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0 = any free port
  bool insecure_listen = false;        // allow addresses other hosts can reach, without TLS
  bool reflection = false;
  std::vector<grpc::Service*> services;
  CredentialsPtr credentials = nullptr;  // null: neither encrypted nor authenticated
  Credentials::Gate gate = nullptr;      // with credentials
};

// A started server with the standard health service (serving = true once SetServing was called).
class GrpcServer {
 public:
  // InvalidArgument: `listen` is not HOST:PORT. FailedPrecondition: it is reachable from other
  // hosts without credentials or insecure_listen. Unavailable: the address cannot be bound (names
  // it, and says how to find who holds it).
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const ServerOptions& options);
  ~GrpcServer();

  int port() const { return port_; }
  void SetServing(bool serving);
  // Stops accepting, ends open calls after `grace`, joins. Idempotent.
  void Stop(std::chrono::milliseconds grace = std::chrono::milliseconds(500));

 private:
  GrpcServer() = default;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// FailedPrecondition unless `listen` is a loopback address or `insecure_listen` is given; shared
// with the data-plane listeners.
absl::Status CheckListen(const std::string& listen, bool insecure_listen);

// Says so where others can connect and there are no credentials.
void WarnIfInsecure(const std::string& listen, const CredentialsPtr& credentials,
                    const std::function<void(const std::string&)>& say);

// A channel with the pool's limits and keep-alive. `endpoint` is host:port. With credentials the
// call fails (Unavailable) where the other end is not `peer`.
std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint,
                                       const CredentialsPtr& credentials = nullptr,
                                       const Peer& peer = {});
// The same with credentials of the caller's own, for what is no program of the pool.
std::shared_ptr<grpc::Channel> ConnectWith(
    const std::string& endpoint, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace engram::wire
