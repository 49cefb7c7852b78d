// The whole controller in one process: state file or etcd and election, loop, gRPC, metrics. The
// program's main is this and signals; tests start it with port 0. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "engram/settings/settings.h"
#include "placement/ops/controller_loop.h"
#include "placement/ops/election_loop.h"
#include "placement/rpc/metrics.h"
#include "placement/rpc/node_service.h"
#include "placement/rpc/pool_service.h"
#include "proto/controllers.h"
#include "proto/credentials.h"
#include "proto/grpc_server.h"
#include "proto/metrics_server.h"

namespace engram::placement {

// Name, settings and help of engram-placement.
Program PlacementProgram();

// What a leader that begins gives the nodes beyond dead_after. They may hang on one that was
// stopped until keep-alive gives it up, and look for the next then: once around all, and once more,
// for whom they ask may not have heard who leads.
constexpr Duration RejoinGrace() { return wire::kGivenUpAfter + 2 * wire::kAskEachController; }

class PlacementServer {
 public:
  // `say` takes lines for the operator's log; `deposed` is called when another controller took the
  // state, after which the process must end. Both on the loop's thread. Errors name the address or
  // path and what to do.
  static absl::StatusOr<std::unique_ptr<PlacementServer>> Start(
      const Settings& settings, std::function<void(const std::string&)> say,
      std::function<void(const absl::Status&)> deposed);
  ~PlacementServer();
  // Ends streams and calls, then the threads; the state is durable at any moment. Idempotent.
  void Stop();

  const std::string& host() const { return host_; }  // where it listens
  int port() const { return grpc_->port(); }
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }  // 0: none
  const ControllerLoop& loop() const { return *loop_; }

 private:
  PlacementServer() = default;

  // Starts loop_ and makes what it speaks through.
  void StartLoop(const Settings& settings, std::function<void(const std::string&)> say,
                 std::function<void(const absl::Status&)> deposed);
  // One of several controllers: makes loop_ and election_.
  absl::Status OpenOnEtcd(const Settings& settings,
                          const std::function<void(const std::string&)>& say);

  std::string host_;
  std::unique_ptr<HeatBoard> heat_;
  std::unique_ptr<OpenTables> open_;
  LeaderLease lease_;
  std::unique_ptr<ControllerLoop> loop_;
  std::unique_ptr<NodeService> nodes_;
  std::unique_ptr<PoolService> pool_;
  std::unique_ptr<wire::GrpcServer> grpc_;
  std::unique_ptr<wire::MetricsServer> metrics_;
  std::unique_ptr<ElectionLoop> election_;  // null: it is the only controller
};

}  // namespace engram::placement
