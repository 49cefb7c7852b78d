#include "client/ctl/pool_stub.h"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engram/not_leader.h"
#include "engram/random.h"
#include "engram/settings/units.h"
#include "engram/v1/placement.grpc.pb.h"
#include "engram/v1/pool_node.grpc.pb.h"
#include "proto/controllers.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::ctl {
namespace {

void SetDeadline(grpc::ClientContext& call, Duration timeout) {
  call.set_deadline(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
}

// gRPC's own words for a dead peer name sockets and retries; people need the endpoint and a next
// step.
absl::Status Explained(const absl::Status& plain, const std::string& who,
                       const std::string& endpoint, Duration timeout) {
  if (IsNotLeader(plain)) {
    return absl::UnavailableError(absl::StrCat("the controllers at ", endpoint, " have no leader (",
                                               plain.message(),
                                               "); see docs/high-availability.md"));
  }
  if (absl::IsUnavailable(plain) && absl::StrContains(plain.message(), "wrong version number")) {
    return absl::UnavailableError(absl::StrCat(
        "the ", who, " at ", endpoint,
        " answers without TLS; leave --tls-cert, --tls-key and --tls-ca (or ENGRAM_TLS_*) out"));
  }
  if (absl::IsUnavailable(plain) && absl::StrContains(plain.message(), "Socket closed")) {
    return absl::UnavailableError(
        absl::StrCat("the ", who, " at ", endpoint,
                     " takes the connection and ends it without an answer; does "
                     "it want TLS? give --tls-cert, --tls-key and --tls-ca"));
  }
  if (absl::IsUnavailable(plain)) {
    return absl::UnavailableError(absl::StrCat("no ", who, " answers at ", endpoint, " (",
                                               plain.message(),
                                               "); is it up? try `engramctl local status`"));
  }
  if (absl::IsDeadlineExceeded(plain)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the ", who, " at ", endpoint, " did not answer within ",
                     FormatDuration(timeout), "; try --timeout 30s"));
  }
  return plain;
}

template <class Response, class Method, class Stub, class Request>
absl::StatusOr<Response> Ask(Stub& stub, Method method, const Request& request,
                             const std::string& who, const std::string& endpoint,
                             Duration timeout) {
  grpc::ClientContext call;
  SetDeadline(call, timeout);
  Response response;
  const grpc::Status status = (stub.*method)(&call, request, &response);
  if (!status.ok()) return Explained(wire::FromGrpc(status), who, endpoint, timeout);
  return response;
}

constexpr char kController[] = "controller";

}  // namespace

struct PoolStub::Service {
  std::string endpoint;
  wire::Controllers controllers;

  // `call` is repeated on the other controllers and, while they elect a leader, until `timeout`.
  absl::Status Call(
      const std::function<grpc::Status(v1::PoolService::Stub*, grpc::ClientContext*)>& call,
      Duration timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      const absl::Status status = controllers.Call(
          [&](const wire::Controllers::One& controller, grpc::ClientContext* context) {
            return call(v1::PoolService::NewStub(controller.channel).get(), context);
          },
          timeout / static_cast<int>(controllers.endpoints().size()));
      if (!IsNotLeader(status) || std::chrono::steady_clock::now() >= deadline) {
        return Explained(status, kController, endpoint, timeout);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  template <class Response, class Method, class Request>
  absl::StatusOr<Response> Ask(Method method, const Request& request, Duration timeout) {
    Response response;
    const absl::Status status = Call(
        [&](v1::PoolService::Stub* stub, grpc::ClientContext* context) {
          return (stub->*method)(context, request, &response);
        },
        timeout);
    if (!status.ok()) return status;
    return response;
  }
};

PoolStub::PoolStub(std::string endpoint, Duration timeout, const wire::CredentialsPtr& credentials)
    : endpoint_(std::move(endpoint)),
      timeout_(timeout),
      service_(new Service{
          endpoint_, {wire::Controllers::Split(endpoint_), [credentials](const std::string& one) {
                        return wire::Connect(one, credentials);
                      }}}) {}
PoolStub::~PoolStub() = default;
PoolStub::PoolStub(PoolStub&&) noexcept = default;
PoolStub& PoolStub::operator=(PoolStub&&) noexcept = default;

absl::StatusOr<v1::GetPoolInfoResponse> PoolStub::PoolInfo() const {
  return service_->Ask<v1::GetPoolInfoResponse>(&v1::PoolService::Stub::GetPoolInfo,
                                                v1::GetPoolInfoRequest(), timeout_);
}

absl::StatusOr<v1::ListTablesResponse> PoolStub::Tables() const {
  return service_->Ask<v1::ListTablesResponse>(&v1::PoolService::Stub::ListTables,
                                               v1::ListTablesRequest(), timeout_);
}

absl::StatusOr<v1::GetTableResponse> PoolStub::Table(const std::string& name,
                                                     const std::string& version) const {
  v1::GetTableRequest request;
  request.set_name(name);
  request.set_version(version);
  return service_->Ask<v1::GetTableResponse>(&v1::PoolService::Stub::GetTable, request, timeout_);
}

absl::StatusOr<v1::ListNodesResponse> PoolStub::Nodes() const {
  return service_->Ask<v1::ListNodesResponse>(&v1::PoolService::Stub::ListNodes,
                                              v1::ListNodesRequest(), timeout_);
}

absl::StatusOr<std::vector<v1::ListShardsResponse::Shard>> PoolStub::Shards(
    const std::string& name, const std::string& version) const {
  v1::ListShardsRequest request;
  request.set_name(name);
  request.set_version(version);
  std::vector<v1::ListShardsResponse::Shard> shards;
  const absl::Status status = service_->Call(
      [&](v1::PoolService::Stub* stub, grpc::ClientContext* call) {
        shards.clear();
        const auto reader = stub->ListShards(call, request);
        v1::ListShardsResponse piece;
        while (reader->Read(&piece)) {
          for (auto& shard : *piece.mutable_shards()) shards.push_back(std::move(shard));
        }
        return reader->Finish();
      },
      timeout_);
  if (!status.ok()) return status;
  return shards;
}

absl::StatusOr<v1::LoadTableResponse> PoolStub::Load(const v1::LoadTableRequest& request) const {
  return service_->Ask<v1::LoadTableResponse>(&v1::PoolService::Stub::LoadTable, request, timeout_);
}

absl::StatusOr<v1::DeleteTableResponse> PoolStub::Delete(
    const v1::DeleteTableRequest& request) const {
  return service_->Ask<v1::DeleteTableResponse>(&v1::PoolService::Stub::DeleteTable, request,
                                                timeout_);
}

absl::StatusOr<v1::SetAliasResponse> PoolStub::SetAlias(const v1::SetAliasRequest& request) const {
  return service_->Ask<v1::SetAliasResponse>(&v1::PoolService::Stub::SetAlias, request, timeout_);
}

absl::StatusOr<v1::ListSessionsResponse> PoolStub::Sessions() const {
  return service_->Ask<v1::ListSessionsResponse>(&v1::PoolService::Stub::ListSessions,
                                                 v1::ListSessionsRequest(), timeout_);
}

absl::StatusOr<v1::ListTenantsResponse> PoolStub::Tenants() const {
  return service_->Ask<v1::ListTenantsResponse>(&v1::PoolService::Stub::ListTenants,
                                                v1::ListTenantsRequest(), timeout_);
}

absl::StatusOr<v1::SetTenantBudgetResponse> PoolStub::SetTenantBudget(
    const v1::SetTenantBudgetRequest& request) const {
  return service_->Ask<v1::SetTenantBudgetResponse>(&v1::PoolService::Stub::SetTenantBudget,
                                                    request, timeout_);
}

absl::StatusOr<v1::GrantTableResponse> PoolStub::GrantTable(
    const v1::GrantTableRequest& request) const {
  return service_->Ask<v1::GrantTableResponse>(&v1::PoolService::Stub::GrantTable, request,
                                               timeout_);
}

absl::StatusOr<v1::RevokeClientResponse> PoolStub::RevokeClient(
    const v1::RevokeClientRequest& request) const {
  return service_->Ask<v1::RevokeClientResponse>(&v1::PoolService::Stub::RevokeClient, request,
                                                 timeout_);
}

absl::StatusOr<v1::CordonNodeResponse> PoolStub::Cordon(
    const v1::CordonNodeRequest& request) const {
  return service_->Ask<v1::CordonNodeResponse>(&v1::PoolService::Stub::CordonNode, request,
                                               timeout_);
}

absl::StatusOr<v1::UncordonNodeResponse> PoolStub::Uncordon(
    const v1::UncordonNodeRequest& request) const {
  return service_->Ask<v1::UncordonNodeResponse>(&v1::PoolService::Stub::UncordonNode, request,
                                                 timeout_);
}

absl::StatusOr<v1::DrainNodeResponse> PoolStub::Drain(const v1::DrainNodeRequest& request) const {
  return service_->Ask<v1::DrainNodeResponse>(&v1::PoolService::Stub::DrainNode, request, timeout_);
}

absl::StatusOr<v1::DeleteNodeResponse> PoolStub::DeleteNode(
    const v1::DeleteNodeRequest& request) const {
  return service_->Ask<v1::DeleteNodeResponse>(&v1::PoolService::Stub::DeleteNode, request,
                                               timeout_);
}

absl::StatusOr<v1::MoveShardResponse> PoolStub::Move(const v1::MoveShardRequest& request) const {
  return service_->Ask<v1::MoveShardResponse>(&v1::PoolService::Stub::MoveShard, request, timeout_);
}

absl::StatusOr<v1::ListMovesResponse> PoolStub::Moves() const {
  return service_->Ask<v1::ListMovesResponse>(&v1::PoolService::Stub::ListMoves,
                                              v1::ListMovesRequest(), timeout_);
}

absl::StatusOr<v1::GetHeatResponse> PoolStub::Heat(const v1::GetHeatRequest& request) const {
  return service_->Ask<v1::GetHeatResponse>(&v1::PoolService::Stub::GetHeat, request, timeout_);
}

absl::StatusOr<v1::GetPlanResponse> PoolStub::Plan(const v1::GetPlanRequest& request) const {
  return service_->Ask<v1::GetPlanResponse>(&v1::PoolService::Stub::GetPlan, request, timeout_);
}

absl::StatusOr<std::string> PoolStub::TokenMap(const std::string& digest) const {
  if (digest.empty()) return std::string();
  v1::GetTokenMapRequest request;
  request.set_digest(digest);
  std::string map;
  const absl::Status status = service_->Call(
      [&](v1::PoolService::Stub* stub, grpc::ClientContext* call) {
        map.clear();
        const auto reader = stub->GetTokenMap(call, request);
        v1::GetTokenMapResponse piece;
        while (reader->Read(&piece)) map += piece.piece();
        return reader->Finish();
      },
      timeout_);
  if (!status.ok()) return status;
  return map;
}

absl::StatusOr<v1::GetNodeStatusResponse> NodeStatus(const std::string& node,
                                                     const std::string& endpoint, Duration timeout,
                                                     const wire::CredentialsPtr& credentials) {
  const auto stub =
      v1::ReadSessionService::NewStub(wire::Connect(endpoint, credentials, {Role::kNode, node}));
  return Ask<v1::GetNodeStatusResponse>(*stub, &v1::ReadSessionService::Stub::GetNodeStatus,
                                        v1::GetNodeStatusRequest(), "pool node", endpoint, timeout);
}

v1::Caller NewCaller() {
  SystemRandom random;
  v1::Caller caller;
  caller.set_client(absl::StrCat("engramctl/", getpid()));
  caller.set_request_id(random.Bits<struct RequestIdTag>().Hex());
  return caller;
}

}  // namespace engram::ctl
