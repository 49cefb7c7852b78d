// PoolService: tenants, and who holds which table.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "placement/rpc/calls.h"
#include "placement/rpc/map_watcher.h"
#include "placement/rpc/pool_service.h"
#include "proto/convert.h"

namespace engram::placement {
namespace {

constexpr int kMostHeldTables = 1024;

std::int64_t UnixMsOf(Instant when, Instant now) {
  const auto unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  return unix_ms - (now - when) / std::chrono::milliseconds(1);
}

v1::Tenant ToWireTenant(const TenantRecord& tenant) {
  v1::Tenant out;
  out.set_name(tenant.name);
  out.set_budget_rows_per_second(tenant.rows_per_second);
  for (const std::string& table : tenant.granted_tables) out.add_granted_tables(table);
  for (const std::string& client : tenant.revoked_clients) out.add_revoked_clients(client);
  return out;
}

}  // namespace

absl::Status PoolService::TakeHeld(Instant now, const std::optional<Identity>& caller,
                                   const v1::ReportHeatRequest& request) {
  if (request.held_size() > kMostHeldTables) {
    return absl::InvalidArgumentError(absl::StrCat("ReportHeatRequest.held has ",
                                                   request.held_size(), " entries; the limit is ",
                                                   kMostHeldTables));
  }
  ClientProcess process{
      request.caller().client(), TenantOfCall(caller, request.caller()), request.process(), {}, {}};
  for (const v1::HeldTable& held : request.held()) {
    const auto uid = wire::TableUidFromWire(held.table());
    if (!uid.ok()) return uid.status();
    const auto name = TableName::Parse(held.name() + "@" + held.asked());
    if (!name.ok()) return name.status();
    process.open.push_back({*uid, held.name(), held.asked()});
  }
  if (open_->Take(now, std::move(process))) return absl::OkStatus();
  return absl::ResourceExhaustedError("too many client processes report");
}

grpc::ServerUnaryReactor* PoolService::ListSessions(grpc::CallbackServerContext* context,
                                                    const v1::ListSessionsRequest*,
                                                    v1::ListSessionsResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const Instant now = SystemClock::Get().Now();
  for (const ClientProcess& process : open_->All(now)) {
    auto* to = response->add_sessions();
    to->set_client(process.client);
    to->set_tenant(process.tenant);
    to->set_process(process.process);
    to->set_last_report_unix_ms(UnixMsOf(process.last, now));
    for (const OpenedTable& open : process.open) {
      auto* held = to->add_held();
      held->set_table(wire::ToWire(open.table));
      const TableEntry* table = state->FindTable(open.table);
      held->set_table_name(table == nullptr ? open.name + "@(gone)" : table->record.name.Full());
      held->set_asked(open.name + "@" + open.asked);
    }
  }
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolService::ListTenants(grpc::CallbackServerContext* context,
                                                   const v1::ListTenantsRequest*,
                                                   v1::ListTenantsResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const std::optional<std::string> only = ClientTenant(*context);
  std::map<std::string, v1::Tenant> all;
  const auto named = [&](std::string_view name) -> v1::Tenant& {
    const std::string key(TenantOr(name));
    auto [it, added] = all.try_emplace(key);
    if (added) it->second = ToWireTenant(state->TenantNamed(key));
    return it->second;
  };
  for (const auto& [name, tenant] : state->tenants) named(name);
  for (const auto& [uid, table] : state->tables) {
    v1::Tenant& tenant = named(table->record.tenant);
    tenant.set_tables(tenant.tables() + 1);
  }
  for (const ClientReads& client : heat_->Clients(SystemClock::Get().Now())) {
    v1::Tenant& tenant = named(client.tenant);
    tenant.set_clients(tenant.clients() + client.processes);
    tenant.set_rows_per_second(tenant.rows_per_second() + client.reads_per_second);
  }
  for (const auto& [id, live] : state->live) {
    for (const TenantUse& use : live->tenants) {
      v1::Tenant& tenant = named(use.tenant);
      tenant.set_gathered_rows(tenant.gathered_rows() + use.gathered_rows);
      tenant.set_throttled_messages(tenant.throttled_messages() + use.throttled_messages);
    }
  }
  for (auto& [name, tenant] : all) {
    if (!only || *only == name) *response->add_tenants() = std::move(tenant);
  }
  return Finish(context, absl::OkStatus());
}

template <class Response>
grpc::ServerUnaryReactor* PoolService::ChangeTenant(grpc::CallbackServerContext* context,
                                                    const TenantRequest& request,
                                                    Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->SetTenant(request, [this, reactor, response](absl::StatusOr<TenantRecord> tenant) {
    if (tenant.ok()) {
      *response->mutable_tenant() = ToWireTenant(*tenant);
      TenantsChanged();
    }
    reactor->Finish(wire::ToGrpc(tenant.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* PoolService::SetTenantBudget(grpc::CallbackServerContext* context,
                                                       const v1::SetTenantBudgetRequest* request,
                                                       v1::SetTenantBudgetResponse* response) {
  return ChangeTenant(context,
                      {CallerOf(request->caller()), request->tenant(),
                       TenantBudget{request->budget_rows_per_second()}, request->dry_run()},
                      response);
}

grpc::ServerUnaryReactor* PoolService::GrantTable(grpc::CallbackServerContext* context,
                                                  const v1::GrantTableRequest* request,
                                                  v1::GrantTableResponse* response) {
  return ChangeTenant(context,
                      {CallerOf(request->caller()), request->tenant(),
                       TableGrant{request->table(), request->withdraw()}, request->dry_run()},
                      response);
}

grpc::ServerUnaryReactor* PoolService::RevokeClient(grpc::CallbackServerContext* context,
                                                    const v1::RevokeClientRequest* request,
                                                    v1::RevokeClientResponse* response) {
  return ChangeTenant(context,
                      {CallerOf(request->caller()), request->tenant(),
                       ClientRevocation{request->client(), request->restore()}, request->dry_run()},
                      response);
}

absl::Status PoolService::CheckRevoked(const Identity& caller) const {
  // One that does not lead knows nothing for sure, and refuses the call itself.
  if (caller.role != Role::kClient || !loop_->Refusal().ok()) return absl::OkStatus();
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const auto tenant = state->tenants.find(caller.tenant);
  if (tenant == state->tenants.end() ||
      !std::binary_search(tenant->second->revoked_clients.begin(),
                          tenant->second->revoked_clients.end(), caller.name)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(caller.Describe(),
                   " is revoked; its operator gives it a certificate with "
                   "another name, or `engramctl restore client`"));
}

void PoolService::TenantsChanged() {
  std::vector<std::shared_ptr<MapWatcher>> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, watcher] : watchers_) all.push_back(watcher);
  }
  for (const auto& watcher : all) {
    const absl::Status revoked =
        watcher->caller() ? CheckRevoked(*watcher->caller()) : absl::OkStatus();
    if (revoked.ok()) {
      watcher->Advance();
    } else {
      watcher->Close(wire::ToGrpc(revoked));
    }
  }
}

}  // namespace engram::placement
