#include "placement/rpc/program.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "engram/version.h"
#include "placement/store/sqlite_store.h"
#include "proto/tls_settings.h"

namespace engram::placement {
namespace {

std::int64_t UnixMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::Status CheckTimes(const Settings& settings) {
  const Duration every = settings.Time("heartbeat_every"), dead = settings.Time("dead_after");
  if (dead >= 2 * every) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "setting dead_after = ", FormatDuration(dead), " is below twice heartbeat_every = ",
      FormatDuration(every), ": one late heartbeat would kill a node; raise --dead-after"));
}

PlanLimits LimitsOf(const Settings& settings) {
  PlanLimits limits;
  limits.bytes = settings.Size("plan_max_bytes");
  limits.read_bytes_per_second = settings.Size("node_read_bytes_per_second");
  return limits;
}

absl::StatusOr<std::unique_ptr<ControllerLoop>> OpenLoop(const Settings& settings,
                                                         const HeatBoard* heat) {
  auto store = SqliteStore::Open({settings.Text("state_file"), settings.Size("state_max_bytes")});
  if (!store.ok()) return store.status();
  auto random = std::make_unique<SystemRandom>();
  ControllerOptions options;
  options.heartbeat_every = settings.Time("heartbeat_every");
  options.dead_after = settings.Time("dead_after");
  options.inspection_timeout = settings.Time("inspection_timeout");
  options.repair_after = settings.Time("repair_after");
  options.moves_per_node = static_cast<std::uint32_t>(settings.Integer("moves_per_node"));
  options.moves_per_pool = static_cast<std::uint32_t>(settings.Integer("moves_per_pool"));
  options.rebalance = settings.Bool("rebalance");
  options.rebalance_every = settings.Time("rebalance_every");
  options.plan_limits = LimitsOf(settings);
  options.reads = [heat](Instant now, const TableUid& table) { return heat->Shards(now, table); };
  options.unix_ms = UnixMs;
  options.stopwatch = &SystemClock::Get();
  auto controller =
      Controller::Open(SystemClock::Get().Now(), std::move(options), store->get(), random.get());
  if (!controller.ok()) return controller.status();
  return std::make_unique<ControllerLoop>(*std::move(store), std::move(random),
                                          *std::move(controller), &SystemClock::Get());
}

Program WithoutTls() {
  return {"engram-placement",
          "decides which pool node holds which shard, and tells nodes and clients",
          std::string(Version()),
          {
              {"listen",
               SettingType::kText,
               "127.0.0.1:7700",
               "Where nodes and clients connect.",
               {},
               "",
               ""},
              {"insecure_listen",
               SettingType::kBool,
               "false",
               "Allow addresses that other hosts can reach, without encryption.",
               {},
               "",
               ""},
              {"state_file",
               SettingType::kText,
               "/var/lib/engram/placement.db",
               "SQLite file with everything that must survive.",
               {},
               "",
               ""},
              {"state_max_bytes",
               SettingType::kSize,
               "0",
               "Limit of the state file; 0 = the disk.",
               {},
               "",
               ""},
              {"metrics_listen",
               SettingType::kText,
               "127.0.0.1:7701",
               "Where Prometheus scrapes /metrics; empty = nowhere.",
               {},
               "",
               ""},
              {"heartbeat_every",
               SettingType::kDuration,
               "1s",
               "How often nodes say that they live.",
               {},
               "10ms",
               "1m"},
              {"dead_after",
               SettingType::kDuration,
               "5s",
               "A node not heard for so long is dead.",
               {},
               "20ms",
               "10m"},
              {"inspection_timeout",
               SettingType::kDuration,
               "1m",
               "How long a node may look at a checkpoint directory.",
               {},
               "1s",
               "1h"},
              {"repair_after",
               SettingType::kDuration,
               "1m",
               "The replicas of a node that was dead for so long are made elsewhere.",
               {},
               "100ms",
               "168h"},
              {"moves_per_node",
               SettingType::kInteger,
               "4",
               "Shards that are pulled from or by one node at one time.",
               {},
               "1",
               "1024"},
              {"moves_per_pool",
               SettingType::kInteger,
               "64",
               "Shards that are pulled at one time, by all nodes together.",
               {},
               "1",
               "4096"},
              {"heat_report_every",
               SettingType::kDuration,
               "10s",
               "How often each client says what it read.",
               {},
               "100ms",
               "5m"},
              {"heat_half_life",
               SettingType::kDuration,
               "1m",
               "After which a read counts half.",
               {},
               "1s",
               "1h"},
              {"rebalance",
               SettingType::kBool,
               "false",
               "Move shards for load, capacity and few nodes a table without being told to.",
               {},
               "",
               ""},
              {"rebalance_every",
               SettingType::kDuration,
               "30s",
               "How often such a plan is made, while nothing moves.",
               {},
               "100ms",
               "1h"},
              {"plan_max_bytes",
               SettingType::kSize,
               "16GiB",
               "What one plan may move; the rest is left to later ones.",
               {},
               "1MiB",
               ""},
              {"node_read_bytes_per_second",
               SettingType::kSize,
               "2GiB",
               "What a node can be asked for that has not been measured.",
               {},
               "1MiB",
               ""},
              {"reflection", SettingType::kBool, "false", "Serve gRPC reflection.", {}, "", ""},
          }};
}

}  // namespace

Program PlacementProgram() {
  Program program = WithoutTls();
  for (Setting& setting : wire::TlsSettings()) program.settings.push_back(std::move(setting));
  return program;
}

absl::StatusOr<std::unique_ptr<PlacementServer>> PlacementServer::Start(
    const Settings& settings, std::function<void(const std::string&)> say,
    std::function<void(const absl::Status&)> deposed) {
  if (absl::Status times = CheckTimes(settings); !times.ok()) return times;
  auto credentials = wire::Credentials::Open(wire::TlsFilesFrom(settings), {Role::kController});
  if (!credentials.ok()) return credentials.status();
  const bool insecure = settings.Bool("insecure_listen") || *credentials != nullptr;
  if (absl::Status ok = wire::CheckListen(settings.Text("listen"), insecure); !ok.ok()) return ok;
  wire::WarnIfInsecure(settings.Text("listen"), *credentials, say);
  auto heat = std::make_unique<HeatBoard>(settings.Time("heat_half_life"));
  absl::StatusOr<std::unique_ptr<ControllerLoop>> loop = OpenLoop(settings, heat.get());
  if (!loop.ok()) return loop.status();
  std::unique_ptr<PlacementServer> server(new PlacementServer);
  server->heat_ = std::move(heat);
  server->loop_ = *std::move(loop);
  server->nodes_ = std::make_unique<NodeService>(server->loop_.get());
  PoolService::Options pool;
  pool.version = std::string(Version());
  pool.report_every = settings.Time("heat_report_every");
  pool.limits = LimitsOf(settings);
  pool.rebalance = settings.Bool("rebalance");
  server->pool_ = std::make_unique<PoolService>(server->loop_.get(), server->heat_.get(), pool);
  server->loop_->Start({[nodes = server->nodes_.get()](LinkId link, ControllerToNode message) {
                          nodes->Send(link, std::move(message));
                        },
                        [nodes = server->nodes_.get()](LinkId link, const absl::Status& why) {
                          nodes->Close(link, why);
                        },
                        [pool = server->pool_.get()] { pool->MapChanged(); }, std::move(say),
                        std::move(deposed)});
  auto grpc = wire::GrpcServer::Start({settings.Text("listen"),
                                       insecure,
                                       settings.Bool("reflection"),
                                       {server->nodes_.get(), server->pool_.get()},
                                       *credentials});
  if (!grpc.ok()) return grpc.status();
  server->grpc_ = *std::move(grpc);
  const std::string& listen = settings.Text("metrics_listen");
  if (listen.empty()) return server;
  auto metrics = wire::MetricsServer::Start(
      listen, insecure,
      std::make_shared<ControllerMetrics>(server->loop_.get(), server->heat_.get(),
                                          std::string(Version())));
  if (!metrics.ok()) return metrics.status();
  server->metrics_ = *std::move(metrics);
  return server;
}

PlacementServer::~PlacementServer() { Stop(); }

void PlacementServer::Stop() {
  if (metrics_ != nullptr) metrics_->Stop();
  if (grpc_ != nullptr) grpc_->SetServing(false);
  if (nodes_ != nullptr) nodes_->CloseAll();
  if (pool_ != nullptr) pool_->CloseAll();
  if (loop_ != nullptr) loop_->Stop();
  if (grpc_ != nullptr) grpc_->Stop();
}

}  // namespace engram::placement
