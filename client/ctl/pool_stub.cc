#include "client/ctl/pool_stub.h"

#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "engram/random.h"
#include "engram/settings/units.h"
#include "engram/v1/placement.grpc.pb.h"
#include "engram/v1/pool_node.grpc.pb.h"
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
absl::Status Explained(const grpc::Status& status, const std::string& who,
                       const std::string& endpoint, Duration timeout) {
  absl::Status plain = wire::FromGrpc(status);
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
  if (!status.ok()) return Explained(status, who, endpoint, timeout);
  return response;
}

constexpr char kController[] = "controller";

}  // namespace

struct PoolStub::Service {
  std::unique_ptr<v1::PoolService::Stub> stub;
};

PoolStub::PoolStub(std::string endpoint, Duration timeout, const wire::CredentialsPtr& credentials)
    : endpoint_(std::move(endpoint)),
      timeout_(timeout),
      service_(new Service{v1::PoolService::NewStub(wire::Connect(endpoint_, credentials))}) {}
PoolStub::~PoolStub() = default;
PoolStub::PoolStub(PoolStub&&) noexcept = default;
PoolStub& PoolStub::operator=(PoolStub&&) noexcept = default;

absl::StatusOr<v1::GetPoolInfoResponse> PoolStub::PoolInfo() const {
  return Ask<v1::GetPoolInfoResponse>(*service_->stub, &v1::PoolService::Stub::GetPoolInfo,
                                      v1::GetPoolInfoRequest(), kController, endpoint_, timeout_);
}

absl::StatusOr<v1::ListTablesResponse> PoolStub::Tables() const {
  return Ask<v1::ListTablesResponse>(*service_->stub, &v1::PoolService::Stub::ListTables,
                                     v1::ListTablesRequest(), kController, endpoint_, timeout_);
}

absl::StatusOr<v1::GetTableResponse> PoolStub::Table(const std::string& name,
                                                     const std::string& version) const {
  v1::GetTableRequest request;
  request.set_name(name);
  request.set_version(version);
  return Ask<v1::GetTableResponse>(*service_->stub, &v1::PoolService::Stub::GetTable, request,
                                   kController, endpoint_, timeout_);
}

absl::StatusOr<v1::ListNodesResponse> PoolStub::Nodes() const {
  return Ask<v1::ListNodesResponse>(*service_->stub, &v1::PoolService::Stub::ListNodes,
                                    v1::ListNodesRequest(), kController, endpoint_, timeout_);
}

absl::StatusOr<std::vector<v1::ListShardsResponse::Shard>> PoolStub::Shards(
    const std::string& name, const std::string& version) const {
  grpc::ClientContext call;
  SetDeadline(call, timeout_);
  v1::ListShardsRequest request;
  request.set_name(name);
  request.set_version(version);
  const auto reader = service_->stub->ListShards(&call, request);
  std::vector<v1::ListShardsResponse::Shard> shards;
  v1::ListShardsResponse piece;
  while (reader->Read(&piece)) {
    for (auto& shard : *piece.mutable_shards()) shards.push_back(std::move(shard));
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return Explained(status, kController, endpoint_, timeout_);
  return shards;
}

absl::StatusOr<v1::LoadTableResponse> PoolStub::Load(const v1::LoadTableRequest& request) const {
  return Ask<v1::LoadTableResponse>(*service_->stub, &v1::PoolService::Stub::LoadTable, request,
                                    kController, endpoint_, timeout_);
}

absl::StatusOr<v1::DeleteTableResponse> PoolStub::Delete(
    const v1::DeleteTableRequest& request) const {
  return Ask<v1::DeleteTableResponse>(*service_->stub, &v1::PoolService::Stub::DeleteTable, request,
                                      kController, endpoint_, timeout_);
}

absl::StatusOr<v1::SetAliasResponse> PoolStub::SetAlias(const v1::SetAliasRequest& request) const {
  return Ask<v1::SetAliasResponse>(*service_->stub, &v1::PoolService::Stub::SetAlias, request,
                                   kController, endpoint_, timeout_);
}

absl::StatusOr<v1::CordonNodeResponse> PoolStub::Cordon(
    const v1::CordonNodeRequest& request) const {
  return Ask<v1::CordonNodeResponse>(*service_->stub, &v1::PoolService::Stub::CordonNode, request,
                                     kController, endpoint_, timeout_);
}

absl::StatusOr<v1::UncordonNodeResponse> PoolStub::Uncordon(
    const v1::UncordonNodeRequest& request) const {
  return Ask<v1::UncordonNodeResponse>(*service_->stub, &v1::PoolService::Stub::UncordonNode,
                                       request, kController, endpoint_, timeout_);
}

absl::StatusOr<v1::DrainNodeResponse> PoolStub::Drain(const v1::DrainNodeRequest& request) const {
  return Ask<v1::DrainNodeResponse>(*service_->stub, &v1::PoolService::Stub::DrainNode, request,
                                    kController, endpoint_, timeout_);
}

absl::StatusOr<v1::MoveShardResponse> PoolStub::Move(const v1::MoveShardRequest& request) const {
  return Ask<v1::MoveShardResponse>(*service_->stub, &v1::PoolService::Stub::MoveShard, request,
                                    kController, endpoint_, timeout_);
}

absl::StatusOr<v1::ListMovesResponse> PoolStub::Moves() const {
  return Ask<v1::ListMovesResponse>(*service_->stub, &v1::PoolService::Stub::ListMoves,
                                    v1::ListMovesRequest(), kController, endpoint_, timeout_);
}

absl::StatusOr<v1::GetHeatResponse> PoolStub::Heat(const v1::GetHeatRequest& request) const {
  return Ask<v1::GetHeatResponse>(*service_->stub, &v1::PoolService::Stub::GetHeat, request,
                                  kController, endpoint_, timeout_);
}

absl::StatusOr<v1::GetPlanResponse> PoolStub::Plan(const v1::GetPlanRequest& request) const {
  return Ask<v1::GetPlanResponse>(*service_->stub, &v1::PoolService::Stub::GetPlan, request,
                                  kController, endpoint_, timeout_);
}

absl::StatusOr<std::string> PoolStub::TokenMap(const std::string& digest) const {
  if (digest.empty()) return std::string();
  grpc::ClientContext call;
  SetDeadline(call, timeout_);
  v1::GetTokenMapRequest request;
  request.set_digest(digest);
  const auto reader = service_->stub->GetTokenMap(&call, request);
  std::string map;
  v1::GetTokenMapResponse piece;
  while (reader->Read(&piece)) map += piece.piece();
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return Explained(status, kController, endpoint_, timeout_);
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
