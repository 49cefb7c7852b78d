#include "poolserver/rpc/pool_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "engram/log.h"
#include "engram/version.h"
#include "fabric/stream/stream_fabric.h"
#include "poolserver/nvme/nvme_tier.h"
#include "poolserver/read_probe.h"
#include "poolserver/rpc/pull_link.h"

namespace engram::poolserver {
namespace {

// `advertise` may leave the port out: then it is the one that was bound.
std::string AdvertisedEndpoint(const std::string& advertise, const std::string& listen, int port) {
  if (advertise.empty()) return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  const bool has_port = advertise.rfind(':') != std::string::npos &&
                        advertise.find(']', advertise.rfind(':')) == std::string::npos;
  return has_port ? advertise : absl::StrCat(advertise, ":", port);
}

absl::Status CheckAdvertise(const PoolNodeOptions& options) {
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  const bool everywhere = host == "0.0.0.0" || host == "[::]" || host == "*";
  if (!everywhere || !options.advertise.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen ", options.listen,
      " is not an address that clients can be told; pass --advertise HOST with a name or address "
      "that they can reach"));
}

absl::StatusOr<wire::CredentialsPtr> OpenCredentials(const PoolNodeOptions& options) {
  auto credentials = wire::Credentials::Open(options.tls, {Role::kNode});
  if (!credentials.ok() || *credentials == nullptr) return credentials;
  const Identity& own = (*credentials)->identity();
  if (own.name == options.node.name) return credentials;
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-cert ", options.tls.cert, " is that of ", own.Describe(),
                   ", and --node-id is ", options.node.name, "; a certificate is for one node"));
}

NodeOptions OptionsOfState(const PoolNodeOptions& options, const std::string& endpoint,
                           const std::vector<PathAddress>& paths, const Tiers& tiers,
                           Random* random) {
  NodeOptions out;
  out.node = options.node;
  out.process_nonce = random->Bits<struct ProcessNonceTag>().Hex();
  out.endpoint = endpoint;
  out.failure_domain = options.failure_domain;
  out.version = std::string(Version());
  out.paths = paths;
  out.tiers = tiers.capacity();
  out.lease = options.lease;
  out.max_sessions = options.max_sessions;
  out.scrub_bytes_per_second = options.scrub_rate;
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PoolNode>> PoolNode::Start(
    const PoolNodeOptions& options, std::function<void(const absl::Status&)> exit) {
  if (absl::Status ok = CheckAdvertise(options); !ok.ok()) return ok;
  std::unique_ptr<PoolNode> node(new PoolNode);
  auto credentials = OpenCredentials(options);
  if (!credentials.ok()) return credentials.status();
  node->credentials_ = *std::move(credentials);
  wire::WarnIfInsecure(options.listen, node->credentials_,
                       [](const std::string& line) { Log(line); });
  const bool insecure = options.insecure_listen || node->credentials_ != nullptr;
  if (absl::Status ok = node->OpenTiers(options); !ok.ok()) return ok;
  TargetSettings wanted = options.targets;
  wanted.insecure_listen = insecure;
  wanted.device_lost = exit;
  auto targets = OpenTargets(wanted);
  if (!targets.ok()) return targets.status();
  node->stream_ = targets->stream;
  node->exposure_ = std::make_unique<Exposure>(std::move(targets->targets), targets->stream);

  node->service_ = std::make_unique<ReadSessionService>(
      ReadSessionService::Identity{options.node, std::string(Version())});
  wire::ServerOptions server;
  server.listen = options.listen;
  server.insecure_listen = options.insecure_listen;
  server.reflection = options.reflection;
  server.services = {node->service_.get()};
  server.credentials = node->credentials_;
  server.gate = [raw = node.get()](const Identity& caller) { return raw->CheckRevoked(caller); };
  auto started = wire::GrpcServer::Start(server);
  if (!started.ok()) return started.status();
  node->server_ = *std::move(started);
  node->server_->SetServing(false);
  node->endpoint_ = AdvertisedEndpoint(options.advertise, options.listen, node->server_->port());
  if (!options.health_listen.empty()) {
    auto health = wire::GrpcServer::Start({options.health_listen, insecure, false, {}});
    if (!health.ok()) return health.status();
    node->health_server_ = *std::move(health);
    node->health_server_->SetServing(false);
  }
  if (absl::Status ok = node->StartLoop(options, std::move(exit)); !ok.ok()) return ok;
  if (options.metrics_listen.empty()) return node;
  auto metrics = wire::MetricsServer::Start(
      options.metrics_listen, insecure,
      std::make_shared<NodeMetrics>(NodeMetrics::Sources{
          node->loop_.get(), &node->tiers_, node->exposure_.get(), node->stream_, node->nvme_,
          node->measured_tiers_, std::string(Version())}));
  if (!metrics.ok()) return metrics.status();
  node->metrics_ = *std::move(metrics);
  return node;
}

absl::Status PoolNode::OpenTiers(const PoolNodeOptions& options) {
  for (Arena::Options memory : options.memory) {
    if (memory.read_bytes_per_second == 0) {
      memory.read_bytes_per_second = MeasureReads(memory);
      measured_tiers_.insert(memory.tier);
    }
    tiers_.Add(std::make_unique<Arena>(std::move(memory)));
  }
  if (options.nvme) {
    nvme::NvmeStore::Options wanted = *options.nvme;
    wanted.say = [](const std::string& line) { Log(line); };
    auto store = nvme::NvmeStore::Open(std::move(wanted));
    if (!store.ok()) return store.status();
    nvme_ = store->get();
    if (options.nvme->measure) measured_tiers_.insert(Tier::kNvme);
    tiers_.Add(std::make_unique<nvme::NvmeTier>(*std::move(store)));
  }
  if (!tiers_.stores().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--memory 0 leaves no room for replicas: give it a size, or another tier (--cxl-memory, "
      "--cxl-devices, --nvme-dir)");
}

absl::Status PoolNode::StartLoop(const PoolNodeOptions& options,
                                 std::function<void(const absl::Status&)> exit) {
  auto stream = fabric::stream::StreamFabric::Open({});
  if (!stream.ok()) return stream.status();
  pull_fabric_ = *std::move(stream);
  pull_rate_ = std::make_unique<RateLimit>(options.move_rate);
  PullMeans pulling;
  pulling.open_link = [credentials = credentials_](const std::string& endpoint, PullHears hears) {
    return OpenPullLink(endpoint, credentials, std::move(hears));
  };
  pulling.fabric = pull_fabric_.get();
  pulling.rate = pull_rate_.get();
  pulling.clock = &SystemClock::Get();
  pulling.random = &random_;
  pulling.client = options.node.name;
  const auto say = [](const std::string& line) { Log(line); };
  join_ = std::make_unique<JoinClient>(options.controller, credentials_, say);
  NodeOutlets outlets;
  outlets.to_client = [this](StreamId stream, const NodeMessage& message) {
    service_->Send(stream, message);
  };
  outlets.close_stream = [this](StreamId stream) { service_->Close(stream); };
  outlets.to_controller = [this](const NodeToController& message) { join_->Send(message); };
  outlets.policies = [this](const std::vector<TenantPolicy>& tenants) {
    MutexLock lock(&policies_mutex_);
    policies_ = tenants;
  };
  if (stream_ != nullptr) outlets.tenant_uses = [this] { return stream_->tenant_uses(); };
  outlets.exit = std::move(exit);
  outlets.say = say;
  const auto inspect = [checkpoints = options.loading.checkpoints](const TableName& table,
                                                                   const TableSource& source) {
    return LoadSource::Inspect(table, source, checkpoints.get());
  };
  loop_ = std::make_unique<NodeLoop>(
      OptionsOfState(options, endpoint_, exposure_->paths(), tiers_, &random_), options.loading,
      &tiers_, exposure_.get(), &SystemClock::Get(), &random_, inspect, std::move(outlets),
      std::move(pulling));
  service_->Serve(loop_.get(), &tiers_, exposure_.get());
  join_->Start(loop_.get());
  return absl::OkStatus();
}

absl::Status PoolNode::CheckRevoked(const Identity& caller) {
  if (caller.role != Role::kClient) return absl::OkStatus();
  MutexLock lock(&policies_mutex_);
  for (const TenantPolicy& policy : policies_) {
    if (policy.tenant == caller.tenant &&
        std::binary_search(policy.revoked_clients.begin(), policy.revoked_clients.end(),
                           caller.name)) {
      return absl::PermissionDeniedError(absl::StrCat(caller.Describe(), " is revoked"));
    }
  }
  return absl::OkStatus();
}

PoolNode::~PoolNode() { Stop(); }

void PoolNode::UpdateHealth() {
  auto ready = std::make_shared<bool>(false);
  auto done = std::make_shared<absl::Notification>();
  loop_->Ask([ready, done](const NodeState& state) {
    bool serving = false;
    for (const auto& [shard, replica] : state.replicas()) {
      serving = serving || replica.state() == ReplicaState::kServing;
    }
    *ready = serving && state.controller_reachable();
    done->Notify();
  });
  // A loop that does not answer in time is not ready.
  const bool serving = done->WaitForNotificationWithTimeout(absl::Seconds(1)) && *ready;
  server_->SetServing(serving);
  if (health_server_) health_server_->SetServing(serving);
}

void PoolNode::Stop() {
  if (metrics_) metrics_->Stop();
  if (join_) join_->Stop();
  if (service_) service_->Detach();
  if (health_server_) health_server_->Stop();
  // The loop still runs here: calls that wait for it must end before the server can.
  if (server_) server_->Stop();
  if (loop_) loop_->Stop();
  if (exposure_) exposure_->Stop();
}

}  // namespace engram::poolserver
