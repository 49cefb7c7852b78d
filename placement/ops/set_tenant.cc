#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engram/identity.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

// Whether the list changed.
bool PutOrTake(std::vector<std::string>* sorted, const std::string& value, bool take) {
  const auto at = std::lower_bound(sorted->begin(), sorted->end(), value);
  const bool there = at != sorted->end() && *at == value;
  if (there != take) return false;
  if (take) {
    sorted->erase(at);
  } else {
    sorted->insert(at, value);
  }
  return true;
}

absl::Status CheckTenantChange(const TenantRequest& request) {
  const auto bad = [](const char* what, const std::string& value) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " \"", value, "\" is not 1 to 253 letters, digits and \"._-\""));
  };
  if (!IsIdentityName(request.tenant)) return bad("tenant", request.tenant);
  if (const auto* revocation = std::get_if<ClientRevocation>(&request.change)) {
    if (!IsIdentityName(revocation->client)) return bad("client", revocation->client);
  }
  if (const auto* grant = std::get_if<TableGrant>(&request.change)) {
    const bool whole = grant->table.find('@') != std::string::npos;
    const auto name = TableName::Parse(whole ? grant->table : grant->table + "@1");
    if (!name.ok()) return name.status();
  }
  return absl::OkStatus();
}

struct TenantChange {
  TenantRecord& tenant;
  std::string said;

  void operator()(const TenantBudget& budget) {
    tenant.rows_per_second = budget.rows_per_second;
    said = budget.rows_per_second == 0
               ? std::string("has no budget")
               : absl::StrCat("may read ", budget.rows_per_second, " rows a second");
  }
  void operator()(const TableGrant& grant) {
    PutOrTake(&tenant.granted_tables, grant.table, grant.withdraw);
    said = absl::StrCat(grant.withdraw ? "may not read " : "may read ", grant.table);
  }
  void operator()(const ClientRevocation& revocation) {
    PutOrTake(&tenant.revoked_clients, revocation.client, revocation.restore);
    said = absl::StrCat("client ", revocation.client,
                        revocation.restore ? " is let in again" : " is revoked");
  }
};

// What one node must know: its share of a budget is that of all alive nodes with tables of the
// tenant.
std::vector<TenantPolicy> PoliciesFor(const ClusterState& state, const NodeId& node,
                                      const std::map<std::string, std::set<NodeId>>& serving) {
  std::vector<TenantPolicy> out;
  for (const auto& [name, tenant] : state.tenants) {
    TenantPolicy policy{name, 0, tenant->granted_tables, tenant->revoked_clients};
    const auto nodes = serving.find(name);
    const std::size_t among = nodes == serving.end() ? 0 : nodes->second.size();
    const bool serves = among > 0 && nodes->second.contains(node);
    if (tenant->rows_per_second > 0) {
      policy.rows_per_second =
          std::max<std::uint64_t>(1, tenant->rows_per_second / (serves ? among : 1));
    }
    out.push_back(std::move(policy));
  }
  return out;
}

std::map<std::string, std::set<NodeId>> NodesOfTenants(const ClusterState& state) {
  std::map<std::string, std::set<NodeId>> out;
  for (const auto& [uid, table] : state.tables) {
    std::set<NodeId> nodes;
    for (const auto& chunk : table->chunks) {
      for (const auto& replicas : chunk->map.shards) {
        for (const MapReplica& replica : replicas) {
          if (state.IsAlive(replica.node)) nodes.insert(replica.node);
        }
      }
    }
    for (const auto& [name, tenant] : state.tenants) {
      if (state.MayRead(name, table->record)) out[name].insert(nodes.begin(), nodes.end());
    }
  }
  return out;
}

}  // namespace

void SetTenant(Core& core, CallId call, const TenantRequest& request) {
  const auto answer = [&](absl::StatusOr<TenantRecord> tenant) {
    core.actions.push_back(TenantAnswer{call, std::move(tenant)});
  };
  if (absl::Status valid = CheckTenantChange(request); !valid.ok()) return answer(valid);
  const TenantRecord before = core.state().TenantNamed(request.tenant);
  TenantRecord after = before;
  TenantChange change{after, {}};
  std::visit(change, request.change);
  if (request.dry_run || after == before) return answer(after);
  Change stored;
  stored.tenants.push_back(after);
  if (absl::Status done = core.Commit(std::move(stored)); !done.ok()) return answer(done);
  core.SayLine(absl::StrCat("tenant ", request.tenant, " ", change.said));
  TellPolicies(core);
  answer(after);
}

void TellPolicies(Core& core) {
  const ClusterState& state = core.state();
  if (state.tenants.empty() && !core.policies_told) return;
  if (core.policies_epoch == state.epoch && core.policies_of == state.tenants) return;
  core.policies_epoch = state.epoch;
  core.policies_of = state.tenants;
  const auto serving = NodesOfTenants(state);
  for (auto& [node, contact] : core.contacts) {
    if (core.Reachable(node) == nullptr) continue;
    std::vector<TenantPolicy> policies = PoliciesFor(state, node, serving);
    if (contact.policies == policies) continue;
    core.policies_told = true;
    core.Send(*contact.link, TenantPolicies{policies, state.token});
    contact.policies = std::move(policies);
  }
}

void TellPoliciesFirst(Core& core, LinkId link, const NodeId& node, bool known_before) {
  NodeContact& contact = core.contacts[node];
  contact.policies = PoliciesFor(core.state(), node, NodesOfTenants(core.state()));
  // A process that was here before may know of tenants that are no more.
  if (contact.policies.empty() && !known_before) return;
  core.policies_told = true;
  core.Send(link, TenantPolicies{contact.policies, core.state().token});
}

}  // namespace engram::placement
