#include "placement/rpc/program.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "engram/version.h"
#include "placement/rpc/etcd_store.h"
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

// The folder must be there; the file need not be.
absl::Status CheckStateFile(const std::string& path) {
  const std::string folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("setting state_file = ", path, ": no file can be made in ", folder, " (",
                   std::strerror(errno), "); make it, or give another --state-file"));
}

PlanLimits LimitsOf(const Settings& settings) {
  PlanLimits limits;
  limits.bytes = settings.Size("plan_max_bytes");
  limits.read_bytes_per_second = settings.Size("node_read_bytes_per_second");
  return limits;
}

ControllerOptions OptionsOf(const Settings& settings, const HeatBoard* heat,
                            const OpenTables* open) {
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
  options.holders = [open](Instant now, const TableUid& table) {
    return open->Holders(now, table);
  };
  options.unix_ms = UnixMs;
  options.stopwatch = &SystemClock::Get();
  return options;
}

absl::StatusOr<std::unique_ptr<ControllerLoop>> OpenOnFile(const Settings& settings,
                                                           const HeatBoard* heat,
                                                           const OpenTables* open) {
  auto store = SqliteStore::Open({settings.Text("state_file"), settings.Size("state_max_bytes")});
  if (!store.ok()) return store.status();
  auto random = std::make_unique<SystemRandom>();
  auto controller = Controller::Open(SystemClock::Get().Now(), OptionsOf(settings, heat, open),
                                     store->get(), random.get());
  if (!controller.ok()) return controller.status();
  return std::make_unique<ControllerLoop>(*std::move(store), std::move(random),
                                          *std::move(controller), &SystemClock::Get());
}

absl::StatusOr<std::string> FirstLine(const std::string& path) {
  std::string line;
  if (path.empty()) return line;
  std::ifstream file(path);
  if (std::getline(file, line) && !line.empty()) return line;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read a password from ", path, "; see --etcd-password-file"));
}

absl::StatusOr<std::shared_ptr<EtcdClient>> OpenEtcd(const Settings& settings) {
  EtcdOptions options;
  options.endpoints = settings.List("etcd_endpoints");
  options.ca_file = settings.Text("etcd_ca");
  options.cert_file = settings.Text("etcd_cert");
  options.key_file = settings.Text("etcd_key");
  options.user = settings.Text("etcd_user");
  absl::StatusOr<std::string> password = FirstLine(settings.Text("etcd_password_file"));
  if (!password.ok()) return password.status();
  options.password = *std::move(password);
  return EtcdClient::Open(options);
}

// Where nodes, clients and the other controllers reach this one.
absl::StatusOr<std::string> AddressOf(const Settings& settings) {
  const std::string& given = settings.Text("advertise");
  const std::string& listen = settings.Text("listen");
  const std::string address = given.empty() ? listen : given;
  if (absl::StartsWith(address, "0.0.0.0:") || absl::StartsWith(address, "[::]:") ||
      absl::EndsWith(address, ":0")) {
    return absl::InvalidArgumentError(
        absl::StrCat("with --store etcd others must be told where this controller is, and ",
                     address, " says it to nobody; set --advertise HOST:PORT"));
  }
  return address;
}

std::vector<Setting> EtcdSettings() {
  return {
      Setting::List("etcd_endpoints", "127.0.0.1:2379",
                    "HOST:PORT of etcd's members, with commas; https:// for TLS."),
      Setting::Text("etcd_prefix", "/engram/", "Of all keys of this pool; ends with a slash."),
      Setting::Text(
          "etcd_ca", "",
          "PEM file of the authority that signed etcd's certificates; TLS if given. This and "
          "the two below are read again when they change."),
      Setting::Text("etcd_cert", "", "PEM file of this controller's certificate for etcd."),
      Setting::Text("etcd_key", "", "PEM file of its key."),
      Setting::Text("etcd_user", "", "User of etcd; empty = none."),
      Setting::Text("etcd_password_file", "", "File whose first line is that user's password."),
  };
}

Program WithoutLists() {
  return {
      "engram-placement",
      "decides which pool node holds which shard, and tells nodes and clients",
      std::string(Version()),
      {
          Setting::Text("listen", "127.0.0.1:7700", "Where nodes and clients connect."),
          Setting::Bool("insecure_listen", "false",
                        "Allow addresses that other hosts can reach, without encryption."),
          Setting::Choice("store", "sqlite",
                          "Where the state is: a file of this controller alone, or etcd, where "
                          "several elect a leader.",
                          {"sqlite", "etcd"}),
          Setting::Text(
              "advertise", "",
              "With store = etcd: HOST:PORT of this controller for others; empty = listen."),
          Setting::Time("leader_lease", "5s",
                        "A leader that cannot renew it for so long leads no more; a second later "
                        "another does.",
                        "500ms", "1m"),
          Setting::Text("state_file", "/var/lib/engram/placement.db",
                        "SQLite file with everything that must survive."),
          Setting::Size("state_max_bytes", "0", "Limit of the state file; 0 = the disk."),
          Setting::Text("metrics_listen", "127.0.0.1:7701",
                        "Where Prometheus scrapes /metrics; empty = nowhere."),
          Setting::Time("heartbeat_every", "1s", "How often nodes say that they live.", "10ms",
                        "1m"),
          Setting::Time("dead_after", "5s", "A node not heard for so long is dead.", "20ms", "10m"),
          Setting::Time("inspection_timeout", "1m",
                        "How long a node may look at a checkpoint directory.", "1s", "1h"),
          Setting::Time("repair_after", "1m",
                        "The replicas of a node that was dead for so long are made elsewhere.",
                        "100ms", "168h"),
          Setting::Integer("moves_per_node", "4",
                           "Shards that are pulled from or by one node at one time.", "1", "1024"),
          Setting::Integer("moves_per_pool", "64",
                           "Shards that are pulled at one time, by all nodes together.", "1",
                           "4096"),
          Setting::Time("heat_report_every", "10s", "How often each client says what it read.",
                        "100ms", "5m"),
          Setting::Time("heat_half_life", "1m", "After which a read counts half.", "1s", "1h"),
          Setting::Bool(
              "rebalance", "false",
              "Move shards for load, capacity and few nodes a table without being told to."),
          Setting::Time("rebalance_every", "30s",
                        "How often such a plan is made, while nothing moves.", "100ms", "1h"),
          Setting::Size("plan_max_bytes", "16GiB",
                        "What one plan may move; the rest is left to later ones.", "1MiB"),
          Setting::Size("node_read_bytes_per_second", "2GiB",
                        "What a node can be asked for that has not been measured.", "1MiB"),
          Setting::Bool("reflection", "false", "Serve gRPC reflection."),
      }};
}

// What --check-config looks at.
absl::Status CheckSettings(const Settings& settings) {
  if (absl::Status times = CheckTimes(settings); !times.ok()) return times;
  const auto credentials =
      wire::Credentials::Open(wire::TlsFilesFrom(settings), {Role::kController});
  if (!credentials.ok()) return credentials.status();
  const bool insecure = settings.Bool("insecure_listen") || *credentials != nullptr;
  for (const char* key : {"listen", "metrics_listen"}) {
    if (settings.Text(key).empty()) continue;
    if (absl::Status ok = wire::CheckListen(settings.Text(key), insecure); !ok.ok()) return ok;
  }
  return settings.Text("store") == "etcd" ? AddressOf(settings).status()
                                          : CheckStateFile(settings.Text("state_file"));
}

}  // namespace

Program PlacementProgram() {
  Program program = WithoutLists();
  program.check = CheckSettings;
  for (const std::vector<Setting>& list : {EtcdSettings(), wire::TlsSettings()}) {
    program.settings.insert(program.settings.end(), list.begin(), list.end());
  }
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
  std::unique_ptr<PlacementServer> server(new PlacementServer);
  server->host_ = settings.Text("listen").substr(0, settings.Text("listen").rfind(':'));
  server->heat_ = std::make_unique<HeatBoard>(settings.Time("heat_half_life"));
  // A process that misses three reports is gone.
  server->open_ = std::make_unique<OpenTables>(3 * settings.Time("heat_report_every") +
                                               std::chrono::seconds(1));
  if (settings.Text("store") == "etcd") {
    if (absl::Status opened = server->OpenOnEtcd(settings, say); !opened.ok()) return opened;
  } else {
    absl::StatusOr<std::unique_ptr<ControllerLoop>> loop =
        OpenOnFile(settings, server->heat_.get(), server->open_.get());
    if (!loop.ok()) return loop.status();
    server->loop_ = *std::move(loop);
  }
  server->StartLoop(settings, std::move(say), std::move(deposed));
  auto grpc = wire::GrpcServer::Start({settings.Text("listen"),
                                       insecure,
                                       settings.Bool("reflection"),
                                       {server->nodes_.get(), server->pool_.get()},
                                       *credentials,
                                       [pool = server->pool_.get()](const Identity& caller) {
                                         return pool->CheckRevoked(caller);
                                       }});
  if (!grpc.ok()) return grpc.status();
  server->grpc_ = *std::move(grpc);
  // It can be reached: now it may be elected.
  if (server->election_ != nullptr) server->election_->Start();
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

void PlacementServer::StartLoop(const Settings& settings,
                                std::function<void(const std::string&)> say,
                                std::function<void(const absl::Status&)> deposed) {
  nodes_ = std::make_unique<NodeService>(loop_.get());
  PoolService::Options pool;
  pool.version = std::string(Version());
  pool.report_every = settings.Time("heat_report_every");
  pool.limits = LimitsOf(settings);
  pool.rebalance = settings.Bool("rebalance");
  pool_ = std::make_unique<PoolService>(loop_.get(), heat_.get(), open_.get(), pool);
  loop_->Start(
      {[this](LinkId link, const ControllerToNode& message) { nodes_->Send(link, message); },
       [this](LinkId link, const absl::Status& why) { nodes_->Close(link, why); },
       [this] { pool_->MapChanged(); }, std::move(say), std::move(deposed),
       [this](const absl::Status& why) {
         nodes_->EndAll(why);
         pool_->EndAll(why);
       }});
}

absl::Status PlacementServer::OpenOnEtcd(const Settings& settings,
                                         const std::function<void(const std::string&)>& say) {
  const absl::StatusOr<std::string> address = AddressOf(settings);
  if (!address.ok()) return address.status();
  const absl::StatusOr<std::shared_ptr<EtcdClient>> client = OpenEtcd(settings);
  if (!client.ok()) return client.status();
  const std::string& prefix = settings.Text("etcd_prefix");
  auto votes = std::make_unique<EtcdStore>(*client, prefix, *address + "/election");
  // What no waiting mends ends the program; an etcd that is not there yet is waited for.
  if (absl::Status ready = votes->Prepare(); !ready.ok()) {
    if (!EtcdClient::MaybeApplied(ready)) return ready;
    say(std::string(ready.message()) + "; waiting for it");
  }
  ControllerOptions options = OptionsOf(settings, heat_.get(), open_.get());
  options.rejoin_grace = RejoinGrace();
  ControllerLoop::Seat seat;
  seat.lease = &lease_;
  seat.open = [options](Instant now, StateStore* store, Random* random) {
    return Controller::Open(now, options, store, random);
  };
  loop_ = std::make_unique<ControllerLoop>(
      std::make_unique<EtcdStore>(*client, prefix, *address + "/state"),
      std::make_unique<SystemRandom>(), std::move(seat), &SystemClock::Get());
  Election::Options election;
  election.holder = SystemRandom().Bits<struct HolderTag>().Hex();
  election.address = *address;
  election.lease = settings.Time("leader_lease");
  election_ = std::make_unique<ElectionLoop>(std::move(votes), std::move(election), &lease_,
                                             &SystemClock::Get(), say);
  return absl::OkStatus();
}

PlacementServer::~PlacementServer() { Stop(); }

void PlacementServer::Stop() {
  if (metrics_ != nullptr) metrics_->Stop();
  if (grpc_ != nullptr) grpc_->SetServing(false);
  if (nodes_ != nullptr) nodes_->CloseAll();
  if (pool_ != nullptr) pool_->CloseAll();
  if (loop_ != nullptr) loop_->Stop();
  if (election_ != nullptr) election_->Stop();  // once nothing acts any more
  if (grpc_ != nullptr) grpc_->Stop();
}

}  // namespace engram::placement
