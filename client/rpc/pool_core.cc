#include "client/rpc/pool_core.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engram/not_leader.h"
#include "fabric/mapped/mapped_fabric.h"
#include "fabric/ofi/ofi_fabric.h"
#include "fabric/stream/stream_fabric.h"
#include "fabric/ucx/ucx_fabric.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::client {
namespace {

constexpr Duration kCallTimeout = std::chrono::seconds(5);
constexpr Duration kElectionPatience = std::chrono::seconds(15);
constexpr Duration kHeatTimeout = std::chrono::seconds(1);
constexpr Duration kGoodbyeTimeout = std::chrono::seconds(1);

Instant Now() { return SystemClock::Get().Now(); }

std::string ProgramName() {
  std::string path(256, '\0');
  const ssize_t bytes = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  const std::string name = path.substr(path.rfind('/') + 1);
  return absl::StrCat(name.empty() ? "client" : name, "-", getpid());
}

bool TryNextEndpoint(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

void TakeTlsEnvironment(PoolOptions* options) {
  const auto take = [](const char* name, std::string* to) {
    const char* value = std::getenv(name);
    if (to->empty() && value != nullptr) *to = value;
  };
  take("ENGRAM_TLS_CERT", &options->tls_cert);
  take("ENGRAM_TLS_KEY", &options->tls_key);
  take("ENGRAM_TLS_CA", &options->tls_ca);
}

void TakeFabricEnvironment(PoolOptions* options) {
  const auto take = [](const char* name, std::string* to) {
    if (const char* value = std::getenv(name)) *to = value;
  };
  take("ENGRAM_OFI_PROVIDER", &options->ofi_provider);
  take("ENGRAM_OFI_HOST", &options->ofi_bind);
  take("ENGRAM_UCX_TLS", &options->ucx_transports);
  take("ENGRAM_UCX_DEVICES", &options->ucx_devices);
  take("ENGRAM_DAX_DEVICES", &options->dax_devices);
}

// ---- opening and leaving ----

PoolCore::PoolCore(const PoolOptions& options) : options_(options) {}

absl::StatusOr<std::shared_ptr<PoolCore>> PoolCore::Open(const PoolOptions& from) {
  PoolOptions options = from;
  if (options.client_name.empty()) options.client_name = ProgramName();
  if (options.endpoints.empty())
    return absl::InvalidArgumentError(
        "no endpoint of a pool is given: pass one (HOST:PORT), set ENGRAM_ENDPOINT, or start a "
        "local pool with `engramctl local up`");
  for (const std::string& endpoint : options.endpoints) {
    const std::size_t colon = endpoint.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == endpoint.size())
      return absl::InvalidArgumentError(
          absl::StrCat("the endpoint \"", endpoint, "\" is not HOST:PORT"));
  }
  auto credentials = wire::Credentials::Open({options.tls_cert, options.tls_key, options.tls_ca},
                                             {Role::kClient, Role::kAdmin, Role::kNode});
  if (!credentials.ok()) return credentials.status();
  // The certificate says whose tables are meant.
  if (*credentials != nullptr && (*credentials)->identity().role == Role::kClient) {
    options.tenant = (*credentials)->identity().tenant;
  }
  std::shared_ptr<PoolCore> core(new PoolCore(options));
  core->credentials_ = *std::move(credentials);
  if (absl::Status status = core->OpenFabrics(); !status.ok()) return status;
  core->controllers_ = std::make_unique<wire::Controllers>(
      options.endpoints, [credentials = core->credentials_](const std::string& endpoint) {
        return wire::Connect(endpoint, credentials);
      });
  if (absl::Status status = core->Greet(); !status.ok()) return status;
  RouteKeeper::Options keeper;
  keeper.quiescence = &core->quiescence_;
  keeper.fabrics = core->fabrics_;
  keeper.forced = options.fabric;
  keeper.turn = static_cast<std::uint32_t>(core->random_.Next());
  core->keeper_ = std::make_unique<RouteKeeper>(keeper);
  PoolCore* raw = core.get();
  core->loop_->Start([raw](Instant now) { return raw->Tick(now); });
  core->loop_->Post([raw] { raw->FeedMap(MapFollower::Start{}); });
  core->heat_ = std::make_unique<HeatReporter>(
      options.client_name, options.tenant, core->random_.Next(),
      [raw](const v1::ReportHeatRequest& request, v1::ReportHeatResponse* response) {
        return raw->CallController(
            [&](v1::PoolService::Stub* stub, grpc::ClientContext* call) {
              return stub->ReportHeat(call, request, response);
            },
            kHeatTimeout / static_cast<int>(raw->options_.endpoints.size()));
      });
  return core;
}

absl::Status PoolCore::OpenFabrics() {
  const auto wanted = [&](FabricKind kind) { return !options_.fabric || *options_.fabric == kind; };
  if (wanted(FabricKind::kMapped)) {
    owned_fabrics_.push_back(fabric::OpenMappedFabric(
        [devices = options_.dax_devices] { return fabric::dax::FindDevices(devices); }));
  }
  if (wanted(FabricKind::kStream)) {
    auto stream = fabric::stream::StreamFabric::Open({});
    if (!stream.ok()) return stream.status();
    owned_fabrics_.push_back(*std::move(stream));
  }
  if (absl::Status status = OpenOfi(); !status.ok()) return status;
  if (absl::Status status = OpenUcx(); !status.ok()) return status;
  if (owned_fabrics_.empty())
    return absl::InvalidArgumentError(absl::StrCat("fabric ", std::string(Name(*options_.fabric)),
                                                   " is not part of this library"));
  for (const auto& fabric : owned_fabrics_) fabrics_.push_back(fabric.get());
  return absl::OkStatus();
}

absl::Status PoolCore::OpenOfi() {
  const bool forced = options_.fabric == FabricKind::kOfi;
  std::error_code none;
  const bool rdma = std::filesystem::directory_iterator("/sys/class/infiniband", none) !=
                    std::filesystem::directory_iterator();
  if (!forced && (options_.fabric || !rdma)) return absl::OkStatus();
  fabric::ofi::OfiFabricOptions options;
  options.provider.provider = forced ? options_.ofi_provider : "verbs;ofi_rxm";
  options.provider.bind = options_.ofi_bind;
  options.provider.near = fabric::ofi::CurrentNumaNode();
  options.connect_timeout = std::max(options.connect_timeout, options_.reach_timeout);
  return Keep(fabric::ofi::OfiFabric::Open(options), forced);
}

absl::Status PoolCore::OpenUcx() {
  const bool forced = options_.fabric == FabricKind::kUcx;
  if (!forced && (options_.fabric || options_.ucx_transports.empty())) return absl::OkStatus();
  fabric::ucx::UcxFabricOptions options;
  options.transport.transports = options_.ucx_transports;
  options.transport.devices = options_.ucx_devices;
  return Keep(fabric::ucx::UcxFabric::Open(options), forced);
}

absl::Status PoolCore::Keep(absl::StatusOr<std::unique_ptr<fabric::Fabric>> opened, bool forced) {
  if (opened.ok()) {
    owned_fabrics_.push_back(*std::move(opened));
  } else if (forced) {
    return opened.status();
  } else if (options_.log) {
    options_.log(1, absl::StrCat("RDMA is not used: ", opened.status().message()));
  }
  return absl::OkStatus();
}

absl::Status PoolCore::Greet() {
  const Instant deadline = Now() + options_.connect_timeout;
  absl::Status status;
  do {
    status = CallController(
        [](v1::PoolService::Stub* stub, grpc::ClientContext* call) {
          v1::GetPoolInfoResponse info;
          return stub->GetPoolInfo(call, {}, &info);
        },
        std::min<Duration>(deadline - Now(), std::chrono::seconds(1)));
    if (status.ok() || !TryNextEndpoint(status)) return status;
    absl::SleepFor(absl::Milliseconds(50));
  } while (Now() < deadline);
  return absl::UnavailableError(absl::StrCat(
      "no pool answers at ", absl::StrJoin(options_.endpoints, ", "), " within ",
      absl::FormatDuration(absl::FromChrono(options_.connect_timeout)), " (", status.message(),
      "); check that engram-placement runs there, or start a local pool with "
      "`engramctl local up`"));
}

PoolCore::~PoolCore() {
  if (keeper_ == nullptr) return;
  heat_.reset();
  SayGoodbye();
  std::vector<std::shared_ptr<SessionStream>> streams;
  std::vector<std::shared_ptr<MapStream>> map_streams;
  loop_->Do([&] {
    streams = std::move(ending_sessions_);
    map_streams = std::move(ending_maps_);
    for (auto& [node, entry] : nodes_) {
      keeper_->Void(node);
      keeper_->ReleaseAll(node);
      if (entry.stream != nullptr) streams.push_back(entry.stream);
    }
    if (map_stream_ != nullptr) map_streams.push_back(map_stream_);
  });
  // The loop still runs: that is where a stream ends.
  for (const auto& stream : streams) stream->Cancel();
  for (const auto& stream : map_streams) stream->Cancel();
  const Instant deadline = Now() + kGoodbyeTimeout;
  for (const auto& stream : streams) stream->WaitDone(deadline - Now());
  for (const auto& stream : map_streams) stream->WaitDone(deadline - Now());
  loop_->Stop();
}

void PoolCore::SayGoodbye() {
  loop_->Do([this] {
    leaving_ = true;
    for (auto& [node, entry] : nodes_) pending_.emplace_back(node, session::Stop{});
    Pump();
  });
  const Instant deadline = Now() + kGoodbyeTimeout;
  for (bool stopped = false; !stopped && Now() < deadline;) {
    loop_->Do([&] {
      stopped = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
        return node.second.session->state() == ClientSession::State::kStopped;
      });
    });
    if (!stopped) absl::SleepFor(absl::Milliseconds(2));
  }
  // A goodbye that was handed to gRPC is on its way when the node has ended the stream.
  std::vector<std::shared_ptr<SessionStream>> streams;
  loop_->Do([&] {
    for (auto& [node, entry] : nodes_) {
      if (entry.stream != nullptr) streams.push_back(entry.stream);
    }
  });
  for (const auto& stream : streams)
    stream->WaitDone(std::max<Duration>(Duration::zero(), deadline - Now()));
}

// ---- calls ----

absl::Status PoolCore::CallController(
    const std::function<grpc::Status(v1::PoolService::Stub*, grpc::ClientContext*)>& call,
    Duration timeout, Duration patience) {
  const Instant deadline = Now() + patience;
  for (;;) {
    const absl::Status status = controllers_->Call(
        [&](const wire::Controllers::One& controller, grpc::ClientContext* context) {
          return call(v1::PoolService::NewStub(controller.channel).get(), context);
        },
        timeout);
    if (!IsNotLeader(status) || Now() >= deadline) return status;
    absl::SleepFor(absl::Milliseconds(100));
  }
}

absl::StatusOr<TableRecord> PoolCore::FetchTable(const TableName& name) {
  v1::GetTableRequest request;
  request.set_name(name.name);
  request.set_version(name.version);
  v1::GetTableResponse response;
  const absl::Status status = CallController(
      [&](v1::PoolService::Stub* stub, grpc::ClientContext* call) {
        return stub->GetTable(call, request, &response);
      },
      kCallTimeout, kElectionPatience);
  if (!status.ok()) return status;
  return wire::FromWire(response.table());
}

absl::StatusOr<TokenMap> PoolCore::FetchTokenMap(const std::string& digest) {
  std::string bytes;
  const absl::Status status = CallController(
      [&](v1::PoolService::Stub* stub, grpc::ClientContext* call) {
        v1::GetTokenMapRequest request;
        request.set_digest(digest);
        bytes.clear();
        auto reader = stub->GetTokenMap(call, request);
        v1::GetTokenMapResponse piece;
        while (reader->Read(&piece)) {
          if (bytes.size() + piece.piece().size() > wire::kMaxTokenMapBytes)
            return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                "the token map is larger than 64 MiB");
          bytes += piece.piece();
        }
        return reader->Finish();
      },
      2 * kCallTimeout, kElectionPatience);
  if (!status.ok()) return status;
  return wire::TokenMapFromWire(bytes);
}

// ---- what others ask ----

void PoolCore::AddTable(const TableUid& uid, std::uint32_t shards, RouteBoard* board,
                        OnMap on_map) {
  loop_->Do([&] {
    keeper_->AddBoard(board, uid, shards);
    OpenTable& table = tables_[board];
    table.uid = uid;
    table.shards = shards;
    table.on_map = std::move(on_map);
    WantNodes(table);
    table.on_map(*follower_.map());
    Pump();
  });
}

void PoolCore::RemoveTable(RouteBoard* board) {
  loop_->Do([&] {
    keeper_->RemoveBoard(board);
    tables_.erase(board);
  });
}

absl::Status PoolCore::AwaitRoutes(const std::string& name, const RouteBoard& board,
                                   Instant deadline) {
  std::shared_ptr<const Routes> routes;
  do {
    routes = board.Shared();
    if (routes->shards_served() == routes->shards()) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(2));
  } while (Now() < deadline);
  std::string why;
  for (const ReachedNode& node : Nodes()) {
    if (!node.open)
      absl::StrAppend(&why, "; node ", node.node.name, " at ", node.endpoint, ": ",
                      node.last_error.ok() ? "no answer yet" : node.last_error.message());
    if (node.open && options_.fabric && node.fabrics.empty() && node.unreachable.empty())
      absl::StrAppend(&why, "; node ", node.node.name, " does not serve ",
                      std::string(Name(*options_.fabric)),
                      ": start it with --fabrics that have it");
    for (const std::string& reason : node.unreachable)
      absl::StrAppend(&why, "; node ", node.node.name, " over ", reason);
  }
  if (why.empty()) why = "; no node serves them, see `engramctl get shards`";
  return absl::UnavailableError(absl::StrCat("table ", name, ": ",
                                             routes->shards() - routes->shards_served(), " of ",
                                             routes->shards(), " shards cannot be read", why));
}

std::shared_ptr<const ShardMap> PoolCore::map() const {
  MutexLock lock(&mutex_);
  return map_;
}

bool PoolCore::connected() const {
  MutexLock lock(&mutex_);
  return connected_;
}

std::vector<ReachedNode> PoolCore::Nodes() {
  MutexLock lock(&mutex_);
  return reached_;
}

absl::Status PoolCore::WhyUnreachable(const NodeId& node) {
  for (const ReachedNode& reached : Nodes()) {
    if (reached.node != node) continue;
    return reached.open && !reached.cut ? absl::OkStatus() : reached.last_error;
  }
  return absl::OkStatus();
}

}  // namespace engram::client
