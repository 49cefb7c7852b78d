// What policies of tenants do to a node's sessions and keys: see node_state.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "poolserver/node_state.h"

namespace engram::poolserver {
namespace {

// Tenants that have a client among the revoked ones that was not among them before.
std::set<std::string> NewlyRevoked(const std::map<std::string, TenantPolicy>& before,
                                   const std::vector<TenantPolicy>& now) {
  std::set<std::string> out;
  for (const TenantPolicy& policy : now) {
    const auto old = before.find(policy.tenant);
    static const std::vector<std::string> kNobody;
    const std::vector<std::string>& known =
        old == before.end() ? kNobody : old->second.revoked_clients;
    if (!std::includes(known.begin(), known.end(), policy.revoked_clients.begin(),
                       policy.revoked_clients.end())) {
      out.insert(policy.tenant);
    }
  }
  return out;
}

}  // namespace

const TenantPolicy* NodeState::PolicyOf(const std::string& tenant) const {
  const auto it = policies_.find(tenant);
  return it == policies_.end() ? nullptr : &it->second;
}

bool NodeState::IsRevoked(const std::optional<Identity>& proven) const {
  if (!proven || proven->role != Role::kClient) return false;
  const TenantPolicy* policy = PolicyOf(proven->tenant);
  return policy != nullptr && std::binary_search(policy->revoked_clients.begin(),
                                                 policy->revoked_clients.end(), proven->name);
}

// Without certificates nobody proves a tenant, and nothing is kept from anybody.
bool NodeState::MayRead(const NodeSession& session, const TableUid& table) const {
  if (!session.Wants(table)) return false;
  if (!session.proven() || session.proven()->role != Role::kClient) return true;
  return TenantReads(session.tenant(), table);
}

bool NodeState::TenantReads(const std::string& tenant, const TableUid& table) const {
  const auto owner = owners_.find(table);
  if (owner == owners_.end()) return false;
  const TenantPolicy* policy = PolicyOf(tenant);
  return TenantMayRead(tenant, owner->second.tenant, owner->second.name,
                       policy == nullptr ? std::vector<std::string>() : policy->granted_tables);
}

void NodeState::Take(const TenantPolicies& policies, Actions& out) {
  if (policies.token < policies_from_) return;
  policies_from_ = policies.token;
  const std::set<std::string> losing = NewlyRevoked(policies_, policies.tenants);
  policies_.clear();
  for (const TenantPolicy& policy : policies.tenants) policies_[policy.tenant] = policy;
  out.push_back(UsePolicies{policies.tenants});
  std::vector<SessionId> revoked;
  for (auto& [id, session] : sessions_) {
    if (IsRevoked(session.proven())) {
      revoked.push_back(id);
      continue;
    }
    const std::map<ShardKey, RegistrationId> held = session.granted();
    for (const auto& [shard, registration] : held) {
      if (!MayRead(session, shard.table)) session.AddWithdrawal({shard, {}});
    }
    if (session.stream()) GrantTables(session);
  }
  for (const SessionId id : revoked) {
    const NodeSession& session = sessions_.at(id);
    // The data ports close at once. What it mapped or reads one-sidedly it keeps until its lease
    // has run out: memory is not reused before that.
    out.push_back(DismissSession{session.token()});
    if (!session.stream()) continue;
    RefuseStream(
        *session.stream(),
        absl::PermissionDeniedError(absl::StrCat(session.proven()->Describe(), " is revoked")),
        out);
  }
  RenewKeys(losing, out);
}

// Keys of mapped and stream are looked at together with the session, so a session that ended is the
// end of them; bearer keys are worth something until they are gone.
void NodeState::RenewKeys(const std::set<std::string>& revoked, Actions& out) {
  if (!switches_.renew_keys_of_revoked) return;
  for (auto& [shard, replica] : replicas_) {
    // What is being registered was told to nobody yet, and will take the place of what was.
    if (replica.step() != Replica::Step::kServing || replica.renewing()) continue;
    const Registration& current = replica.current();
    const auto leaks = [&, table = shard.table](const std::string& tenant) {
      return revoked.count(tenant) != 0 || !TenantReads(tenant, table);
    };
    if (!current.bearer_keys || std::none_of(current.told.begin(), current.told.end(), leaks)) {
      continue;
    }
    ++counters_.registrations_renewed;
    Register(replica, replica.StartRenewal(current.tier), out);
  }
}

}  // namespace engram::poolserver
