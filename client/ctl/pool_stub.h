// The controller's PoolService as engramctl calls it: one method a call, each with a deadline, gRPC
// statuses turned into messages that say what to do. Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/v1/placement.pb.h"
#include "engram/v1/pool_node.pb.h"
#include "proto/credentials.h"

namespace engram::ctl {

class PoolStub {
 public:
  // `endpoint`: HOST:PORT of the controller, or of several with commas; whichever leads is asked.
  // Connects lazily: the first call tells whether anybody answers.
  PoolStub(std::string endpoint, Duration timeout, const wire::CredentialsPtr& credentials);
  ~PoolStub();
  PoolStub(PoolStub&&) noexcept;
  PoolStub& operator=(PoolStub&&) noexcept;

  const std::string& endpoint() const { return endpoint_; }

  absl::StatusOr<v1::GetPoolInfoResponse> PoolInfo() const;
  absl::StatusOr<v1::ListTablesResponse> Tables() const;
  absl::StatusOr<v1::GetTableResponse> Table(const std::string& name,
                                             const std::string& version) const;
  absl::StatusOr<v1::ListNodesResponse> Nodes() const;
  // All shards of one table, or of all tables when both are empty, in shard order.
  absl::StatusOr<std::vector<v1::ListShardsResponse::Shard>> Shards(
      const std::string& name, const std::string& version) const;
  absl::StatusOr<v1::LoadTableResponse> Load(const v1::LoadTableRequest& request) const;
  absl::StatusOr<v1::DeleteTableResponse> Delete(const v1::DeleteTableRequest& request) const;
  absl::StatusOr<v1::SetAliasResponse> SetAlias(const v1::SetAliasRequest& request) const;
  absl::StatusOr<v1::ListSessionsResponse> Sessions() const;
  absl::StatusOr<v1::ListTenantsResponse> Tenants() const;
  absl::StatusOr<v1::SetTenantBudgetResponse> SetTenantBudget(
      const v1::SetTenantBudgetRequest& request) const;
  absl::StatusOr<v1::GrantTableResponse> GrantTable(const v1::GrantTableRequest& request) const;
  absl::StatusOr<v1::RevokeClientResponse> RevokeClient(
      const v1::RevokeClientRequest& request) const;
  absl::StatusOr<v1::CordonNodeResponse> Cordon(const v1::CordonNodeRequest& request) const;
  absl::StatusOr<v1::UncordonNodeResponse> Uncordon(const v1::UncordonNodeRequest& request) const;
  absl::StatusOr<v1::DrainNodeResponse> Drain(const v1::DrainNodeRequest& request) const;
  absl::StatusOr<v1::DeleteNodeResponse> DeleteNode(const v1::DeleteNodeRequest& request) const;
  absl::StatusOr<v1::MoveShardResponse> Move(const v1::MoveShardRequest& request) const;
  absl::StatusOr<v1::ListMovesResponse> Moves() const;
  absl::StatusOr<v1::GetHeatResponse> Heat(const v1::GetHeatRequest& request) const;
  absl::StatusOr<v1::GetPlanResponse> Plan(const v1::GetPlanRequest& request) const;
  // Little-endian int32; empty digest gives an empty map.
  absl::StatusOr<std::string> TokenMap(const std::string& digest) const;

 private:
  std::string endpoint_;
  Duration timeout_;
  struct Service;  // keeps the generated gRPC header out of this one
  std::unique_ptr<Service> service_;
};

// Asks a pool node itself.
absl::StatusOr<v1::GetNodeStatusResponse> NodeStatus(const std::string& node,
                                                     const std::string& endpoint, Duration timeout,
                                                     const wire::CredentialsPtr& credentials);

// Who asks, and a fresh request id.
v1::Caller NewCaller();

}  // namespace engram::ctl
