// A pool node as a running whole: memory, fabrics, event loop, gRPC server, the stream to the
// controller, health and metrics. What the program's main and the tests start. It wires parts
// together and holds no logic of its own. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/random.h"
#include "poolserver/arena.h"
#include "poolserver/exposure.h"
#include "poolserver/loader.h"
#include "poolserver/node_loop.h"
#include "poolserver/nvme/nvme_store.h"
#include "poolserver/rpc/join_client.h"
#include "poolserver/rpc/node_metrics.h"
#include "poolserver/rpc/read_session_service.h"
#include "poolserver/rpc/targets.h"
#include "poolserver/tiers.h"
#include "proto/grpc_server.h"
#include "proto/metrics_server.h"

namespace engram::poolserver {

struct PoolNodeOptions {
  NodeId node;
  std::string controller;  // host:port
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // host or host:port that clients are told; empty: as listened
  std::string failure_domain;
  bool insecure_listen = false;
  wire::TlsFiles tls;
  bool reflection = false;
  std::string metrics_listen;  // empty: no metrics
  std::string health_listen;   // empty: health on the main port only
  Duration lease = kDefaultLease;
  std::size_t max_sessions = 4096;
  std::vector<Arena::Options> memory{Arena::Options{}};  // the tiers of memory
  std::optional<nvme::NvmeStore::Options> nvme;          // the nvme tier
  Loader::Options loading;
  TargetSettings targets;
  std::uint64_t move_rate = std::uint64_t{256} << 20;  // bytes/s pulled from other nodes; 0: any
  std::uint64_t scrub_rate = std::uint64_t{32} << 20;  // bytes/s looked at again; 0: none
};

class PoolNode {
 public:
  // Returns when the node serves and is trying to join. `exit` is called, from a thread of the
  // node, when it must end (another process owns this NodeId). Every error names the setting.
  static absl::StatusOr<std::unique_ptr<PoolNode>> Start(
      const PoolNodeOptions& options, std::function<void(const absl::Status&)> exit);
  ~PoolNode();  // = Stop()

  const std::string& endpoint() const { return endpoint_; }  // as advertised
  const Tiers& tiers() const { return tiers_; }
  std::vector<PathAddress> paths() const { return exposure_->paths(); }
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }  // 0: none

  // Sets the health service to whether the node is ready (a replica serves, the controller is in
  // reach). Called about once a second.
  void UpdateHealth();
  // Ends sessions, loading and listening; nothing of the node is left. Idempotent.
  void Stop();

 private:
  PoolNode() = default;
  absl::Status CheckRevoked(const Identity& caller);
  absl::Status OpenTiers(const PoolNodeOptions& options);
  absl::Status StartLoop(const PoolNodeOptions& options,
                         std::function<void(const absl::Status&)> exit);

  std::string endpoint_;
  SystemRandom random_;
  wire::CredentialsPtr credentials_;
  Mutex policies_mutex_;
  std::vector<TenantPolicy> policies_ ABSL_GUARDED_BY(policies_mutex_);
  const fabric::stream::StreamTarget* stream_ = nullptr;
  Tiers tiers_;
  const nvme::NvmeStore* nvme_ = nullptr;  // of tiers_; null: this node has none
  std::set<Tier> measured_tiers_;          // whose read rate is no setting
  std::unique_ptr<Exposure> exposure_;
  std::unique_ptr<ReadSessionService> service_;
  std::unique_ptr<wire::GrpcServer> server_;
  std::unique_ptr<wire::GrpcServer> health_server_;
  std::unique_ptr<JoinClient> join_;
  std::unique_ptr<fabric::Fabric> pull_fabric_;
  std::unique_ptr<RateLimit> pull_rate_;
  std::unique_ptr<NodeLoop> loop_;
  std::unique_ptr<wire::MetricsServer> metrics_;
};

}  // namespace engram::poolserver
