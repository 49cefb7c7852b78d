// What clients and operators ask of the controller: a thin adapter between gRPC and the
// ControllerLoop. Questions are answered from the published state; changes go through the loop.
// Thread-safe.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engram/identity.h"
#include "engram/mutex.h"
#include "engram/v1/placement.grpc.pb.h"
#include "placement/heat/heat_board.h"
#include "placement/heat/open_tables.h"
#include "placement/ops/controller_loop.h"
#include "placement/plan/planner.h"
#include "placement/rpc/turns.h"

namespace engram::placement {

class MapWatcher;

class PoolService final : public v1::PoolService::CallbackService {
 public:
  struct Options {
    std::string version;
    Duration report_every = std::chrono::seconds(10);  // heat of each client
    PlanLimits limits;                                 // of the plans that are shown
    bool rebalance = false;                            // whether they are carried out, too
  };
  // `loop`, `heat` and `open` must outlive the service.
  PoolService(ControllerLoop* loop, HeatBoard* heat, OpenTables* open, Options options)
      : loop_(loop), heat_(heat), open_(open), options_(std::move(options)) {}

  grpc::ServerUnaryReactor* LoadTable(grpc::CallbackServerContext* context,
                                      const v1::LoadTableRequest* request,
                                      v1::LoadTableResponse* response) override;
  grpc::ServerUnaryReactor* DeleteTable(grpc::CallbackServerContext* context,
                                        const v1::DeleteTableRequest* request,
                                        v1::DeleteTableResponse* response) override;
  grpc::ServerUnaryReactor* SetAlias(grpc::CallbackServerContext* context,
                                     const v1::SetAliasRequest* request,
                                     v1::SetAliasResponse* response) override;
  grpc::ServerUnaryReactor* GetTable(grpc::CallbackServerContext* context,
                                     const v1::GetTableRequest* request,
                                     v1::GetTableResponse* response) override;
  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context,
                                       const v1::ListTablesRequest* request,
                                       v1::ListTablesResponse* response) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* CordonNode(grpc::CallbackServerContext* context,
                                       const v1::CordonNodeRequest* request,
                                       v1::CordonNodeResponse* response) override;
  grpc::ServerUnaryReactor* UncordonNode(grpc::CallbackServerContext* context,
                                         const v1::UncordonNodeRequest* request,
                                         v1::UncordonNodeResponse* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeResponse* response) override;
  grpc::ServerUnaryReactor* DeleteNode(grpc::CallbackServerContext* context,
                                       const v1::DeleteNodeRequest* request,
                                       v1::DeleteNodeResponse* response) override;
  grpc::ServerUnaryReactor* MoveShard(grpc::CallbackServerContext* context,
                                      const v1::MoveShardRequest* request,
                                      v1::MoveShardResponse* response) override;
  grpc::ServerUnaryReactor* ListMoves(grpc::CallbackServerContext* context,
                                      const v1::ListMovesRequest* request,
                                      v1::ListMovesResponse* response) override;
  grpc::ServerWriteReactor<v1::ListShardsResponse>* ListShards(
      grpc::CallbackServerContext* context, const v1::ListShardsRequest* request) override;
  grpc::ServerWriteReactor<v1::GetTokenMapResponse>* GetTokenMap(
      grpc::CallbackServerContext* context, const v1::GetTokenMapRequest* request) override;
  grpc::ServerWriteReactor<v1::WatchMapResponse>* WatchMap(
      grpc::CallbackServerContext* context, const v1::WatchMapRequest* request) override;
  grpc::ServerUnaryReactor* GetPoolInfo(grpc::CallbackServerContext* context,
                                        const v1::GetPoolInfoRequest* request,
                                        v1::GetPoolInfoResponse* response) override;

  // heat_service.cc
  grpc::ServerUnaryReactor* ReportHeat(grpc::CallbackServerContext* context,
                                       const v1::ReportHeatRequest* request,
                                       v1::ReportHeatResponse* response) override;
  grpc::ServerUnaryReactor* GetHeat(grpc::CallbackServerContext* context,
                                    const v1::GetHeatRequest* request,
                                    v1::GetHeatResponse* response) override;
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context,
                                    const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override;

  // pool_service_tenants.cc
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext* context,
                                        const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* response) override;
  grpc::ServerUnaryReactor* SetTenantBudget(grpc::CallbackServerContext* context,
                                            const v1::SetTenantBudgetRequest* request,
                                            v1::SetTenantBudgetResponse* response) override;
  grpc::ServerUnaryReactor* GrantTable(grpc::CallbackServerContext* context,
                                       const v1::GrantTableRequest* request,
                                       v1::GrantTableResponse* response) override;
  grpc::ServerUnaryReactor* RevokeClient(grpc::CallbackServerContext* context,
                                         const v1::RevokeClientRequest* request,
                                         v1::RevokeClientResponse* response) override;
  // PermissionDenied for a client that is revoked.
  absl::Status CheckRevoked(const Identity& caller) const;

  // Outlet of the loop: there is a newer map.
  void MapChanged();
  // Ends every watch, so that the server can stop.
  void CloseAll();
  // Ends those there are: this controller leads no more.
  void EndAll(const absl::Status& why);

 private:
  friend class MapWatcher;
  void Forget(MapWatcher* watcher);
  absl::Status TakeHeld(Instant now, const std::optional<Identity>& caller,
                        const v1::ReportHeatRequest& request);
  template <class Response>
  grpc::ServerUnaryReactor* ChangeTenant(grpc::CallbackServerContext* context,
                                         const TenantRequest& request, Response* response);
  // Watches of revoked clients end, those of others see what they may see now.
  void TenantsChanged();

  ControllerLoop* const loop_;
  HeatBoard* const heat_;
  OpenTables* const open_;
  const Options options_;
  Turns plan_turns_{2};  // of GetPlan, which takes a thread of gRPC for as long as it plans
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<MapWatcher*, std::shared_ptr<MapWatcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
