#include "poolserver/node_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/shard_layout.h"
#include "engram/shard_sum.h"

namespace engram::poolserver {
namespace {

NodeHello HelloOf(const NodeOptions& options) {
  NodeHello hello;
  hello.node = options.node;
  hello.process_nonce = options.process_nonce;
  hello.endpoint = options.endpoint;
  hello.failure_domain = options.failure_domain;
  hello.version = options.version;
  hello.tiers = options.tiers;
  return hello;
}

}  // namespace

NodeState::NodeState(NodeOptions options, Random* random, ProtocolSwitches switches)
    : options_(std::move(options)),
      random_(random),
      switches_(switches),
      link_(HelloOf(options_), switches),
      leases_(options_.lease, LeaseMargin(options_.lease)) {}

std::vector<Action> NodeState::OnEvent(Instant now, Event event) {
  Actions out;
  if (exiting_) return out;
  std::visit([&](const auto& what) { On(now, what, out); }, event);
  if (exiting_) return out;
  Scrub(now, out);
  FlushUpdates(out);
  if (std::optional<NodeHeartbeat> beat = link_.Beat(now)) {
    beat->sessions = static_cast<std::uint32_t>(sessions_.size());
    beat->tenants = tenants_used_;
    beat->retirements_pending = static_cast<std::uint32_t>(retirements_pending());
    out.push_back(SendToController{*std::move(beat)});
  }
  return out;
}

std::optional<Instant> NodeState::NextTimer() const {
  std::optional<Instant> next = link_.NextBeat();
  const auto consider = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  consider(leases_.NextRunOut());
  const bool scrubs = options_.scrub_bytes_per_second > 0 && !scrubbing_ && !replicas_.empty();
  if (scrubs) consider(next_scrub_);
  return next;
}

bool NodeState::StartOwnRead(const ShardKey& shard) {
  const auto it = replicas_.find(shard);
  if (it != replicas_.end() && !switches_.count_own_reads) {
    return it->second.state() == ReplicaState::kServing;
  }
  return it != replicas_.end() && it->second.StartOwnRead();
}

const Replica* NodeState::FindReplica(const ShardKey& shard) const {
  const auto it = replicas_.find(shard);
  return it == replicas_.end() ? nullptr : &it->second;
}

std::size_t NodeState::retirements_pending() const {
  return std::count_if(replicas_.begin(), replicas_.end(), [](const auto& entry) {
    return entry.second.state() == ReplicaState::kDraining;
  });
}

void NodeState::On(Instant now, const Timer&, Actions& out) {
  std::vector<SessionId> gone;
  for (const auto& [id, session] : sessions_) {
    if (leases_.HasRunOut(id, now)) gone.push_back(id);
  }
  for (SessionId id : gone) {
    ++counters_.sessions_run_out;
    EndSession(id, out);
  }
  leases_.Forget(now);
}

// ---- the controller ----

void NodeState::On(Instant, const ControllerConnected&, Actions& out) {
  std::vector<ReplicaReport> reports;
  for (const auto& [shard, replica] : replicas_) reports.push_back(replica.Report());
  out.push_back(SendToController{link_.Connected(std::move(reports))});
}

void NodeState::On(Instant, const ControllerLost&, Actions&) { link_.Lost(); }

void NodeState::On(Instant now, const ControllerSaid& event, Actions& out) {
  absl::Status exit;
  if (const auto* welcome = std::get_if<NodeWelcome>(&event.message)) {
    const absl::Status welcomed = link_.Welcomed(now, *welcome);
    if (absl::IsAborted(welcomed)) exit = welcomed;
  } else if (const auto* seen = std::get_if<HeartbeatSeen>(&event.message)) {
    link_.Seen(*seen);
  } else if (const auto* refused = std::get_if<NodeRefused>(&event.message)) {
    exit = refused->status.ok() ? absl::AbortedError("the controller refused this node")
                                : refused->status;
  } else if (const auto* policies = std::get_if<TenantPolicies>(&event.message)) {
    Take(*policies, out);
  } else {
    Obey(std::get<Command>(event.message), out);
  }
  if (exit.ok() || !switches_.exit_when_replaced) return;
  exiting_ = true;
  out.push_back(Exit{exit});
}

void NodeState::Obey(const Command& command, Actions& out) {
  absl::Status status = link_.Check(command);
  if (!status.ok()) {
    ++counters_.commands_refused;
  } else if (const auto* load = std::get_if<LoadReplicas>(&command.body)) {
    status = Load(*load, out);
  } else if (const auto* retire = std::get_if<RetireReplicas>(&command.body)) {
    Retire(*retire, out);
  } else {
    const auto& inspect = std::get<InspectSource>(command.body);
    out.push_back(StartInspection{command.id, inspect.table, inspect.source});
    return;
  }
  out.push_back(SendToController{CommandDone{command.id, status, {}}});
}

absl::Status NodeState::Load(const LoadReplicas& load, Actions& out) {
  if (absl::Status valid = load.table.spec.Validate(); !valid.ok()) return valid;
  if (absl::Status valid = load.table.options.Validate(); !valid.ok()) return valid;
  const ShardLayout layout(load.table.spec, load.table.options);
  for (ShardIndex shard : load.shards) {
    if (shard.value() >= layout.shards()) {
      return absl::InvalidArgumentError(absl::StrCat("table ", load.table.name.Full(),
                                                     " has no shard ", shard.value(), "; it has ",
                                                     layout.shards(), " shards"));
    }
    const Replica* held = FindReplica({load.table.uid, shard});
    if (held != nullptr && held->retirement_wanted()) {
      return absl::UnavailableError(
          absl::StrCat("shard ", shard.value(), " of table ", load.table.name.Full(), " is ",
                       std::string(Name(held->state())), " on node \"", options_.node.name,
                       "\" and being retired; send the command again when it is reported Retired"));
    }
    if (held == nullptr) continue;
    if (absl::Status possible = CheckMove(*held, load.tier); !possible.ok()) return possible;
  }
  StartLoad start{load.table, {}, load.tier, load.source};
  for (std::size_t i = 0; i < load.shards.size(); ++i) {
    const ShardKey key{load.table.uid, load.shards[i]};
    const auto [it, added] = replicas_.try_emplace(key, key, load.tier);
    if (added) start.shards.push_back(key.shard);
    if (added && i < load.sums.size()) it->second.expected_sum = load.sums[i];
    if (MovesTo(it->second, load.tier)) {
      StartMove(load.table, it->second, load.tier, out);
    } else {
      link_.Changed(it->second.Report());
    }
  }
  if (!start.shards.empty()) {
    layouts_.try_emplace(load.table.uid, layout);
    owners_.try_emplace(load.table.uid, Owned{load.table.name, load.table.tenant});
  }
  if (!start.shards.empty()) out.push_back(std::move(start));
  return absl::OkStatus();
}

void NodeState::Retire(const RetireReplicas& retire, Actions& out) {
  for (ShardIndex shard : retire.shards) {
    const ShardKey key{retire.table, shard};
    const auto it = replicas_.find(key);
    if (it == replicas_.end()) {
      ReplicaReport gone;
      gone.shard = key;
      gone.state = ReplicaState::kRetired;
      link_.Changed(gone);
      continue;
    }
    Replica& replica = it->second;
    if (replica.retirement_wanted()) continue;
    replica.Retire(retire.successors);
    if (replica.step() == Replica::Step::kLoading) out.push_back(StopLoad{key});
    if (replica.step() == Replica::Step::kWaiting) Drain(replica, out);
  }
}

// Tell, then wait: the updates leave with FlushUpdates at the end of this event.
void NodeState::Drain(Replica& replica, Actions& out) {
  link_.Changed(replica.Report());
  if (replica.copying()) out.push_back(StopLoad{replica.shard()});
  for (auto& [id, session] : sessions_) {
    if (session.Holds(replica.shard())) {
      session.AddWithdrawal({replica.shard(), replica.successors()});
    }
  }
  HideIfUnread(replica, out);
}

void NodeState::HideIfUnread(Replica& replica, Actions& out) {
  if (!switches_.wait_for_sessions) replica.ForgetReaders();
  for (const RegistrationId id : replica.StartHiding()) {
    out.push_back(HideReplica{{replica.shard(), id}});
  }
}

void NodeState::Release(Replica& replica, Actions& out) {
  out.push_back(ReleaseMemory{replica.shard(), replica.tier()});
  Forget(replica);
}

void NodeState::Forget(Replica& replica) {
  ENGRAM_CHECK(replica.step() == Replica::Step::kFreed);
  const ShardKey shard = replica.shard();
  link_.Changed(replica.Report());
  replicas_.erase(shard);
  const auto rest = replicas_.lower_bound({shard.table, ShardIndex(0)});
  if (rest != replicas_.end() && rest->first.table == shard.table) return;
  layouts_.erase(shard.table);
  owners_.erase(shard.table);
}

// ---- the adapter's answers ----

void NodeState::On(Instant, const ReplicaLoaded& event, Actions& out) {
  const auto it = replicas_.find(event.shard);
  ENGRAM_CHECK(it != replicas_.end());
  Replica& replica = it->second;
  if (replica.copying()) {
    const std::span<const std::uint32_t> crcs = replica.block_crcs();
    const bool same =
        std::equal(crcs.begin(), crcs.end(), event.block_crcs.begin(), event.block_crcs.end());
    return EndCopy(replica,
                   same ? absl::OkStatus()
                        : absl::DataLossError("the copy has other checksums than the replica"),
                   out);
  }
  if (replica.retirement_wanted()) {
    // Nobody has seen it: the fabrics need not either.
    replica.Failed(absl::OkStatus());
    Release(replica, out);
    return;
  }
  if (replica.expected_sum && SumOf(event.block_crcs) != *replica.expected_sum) {
    ++counters_.loads_unsound;
    replica.Failed(absl::DataLossError(
        "its bytes differ from those the table was committed with; where they came from has "
        "changed or is damaged"));
    Release(replica, out);
    return;
  }
  Register(replica, replica.Loaded(event.block_crcs), out);
}

void NodeState::On(Instant, const LoadEnded& event, Actions& out) {
  const auto it = replicas_.find(event.shard);
  ENGRAM_CHECK(it != replicas_.end());
  if (it->second.copying()) return EndCopy(it->second, event.why, out);
  it->second.Failed(it->second.retirement_wanted() ? absl::OkStatus() : event.why);
  Release(it->second, out);
}

void NodeState::Register(const Replica& replica, RegistrationId registration, Actions& out) {
  ENGRAM_CHECK(replica.registrations().back().id == registration);
  const std::string& tenant = owners_.at(replica.shard().table).tenant;
  out.push_back(
      ExposeReplica{{replica.shard(), registration}, replica.registrations().back().tier, tenant});
}

void NodeState::On(Instant, const ReplicaExposed& event, Actions& out) {
  const auto& [shard, registration] = event.registration;
  const auto it = replicas_.find(shard);
  ENGRAM_CHECK(it != replicas_.end());
  Replica& replica = it->second;
  for (const NumberedPath& path : event.opened) more_paths_[path.path] = path.address;
  const Tier before = replica.tier();
  const bool first = replica.step() == Replica::Step::kExposing;
  replica.Exposed(registration, event.paths, event.bearer_keys);
  if (replica.step() == Replica::Step::kWaiting) {
    Drain(replica, out);
    return;
  }
  if (replica.tier() != before) ++counters_.tier_moves;
  if (first || replica.tier() != before) link_.Changed(replica.Report());
  for (auto& [id, session] : sessions_) {
    if (session.stream() && MayRead(session, shard.table) &&
        (session.Holds(shard) || !session.IsWithdrawing(shard))) {
      Give(session, replica);
    } else if (session.Holds(shard)) {
      session.AddWithdrawal({shard, {}});  // it waits for the lease of a broken one
    }
  }
  HideIfUnread(replica, out);
  LeaveMovedPaths(replica, out);
}

void NodeState::On(Instant, const ExposeFailed& event, Actions& out) {
  const auto it = replicas_.find(event.registration.shard);
  ENGRAM_CHECK(it != replicas_.end());
  Replica& replica = it->second;
  if (replica.step() == Replica::Step::kExposing) {
    replica.Failed(event.why);
    Release(replica, out);
    return;
  }
  const std::optional<Tier> unused = replica.RenewalFailed(event.registration.registration);
  if (unused) out.push_back(ReleaseMemory{replica.shard(), *unused});
  if (unused && unused == replica.moving_to()) {
    MoveFailed(replica, event.why, out);
    // A revocation may have counted on new keys.
    if (replica.step() == Replica::Step::kServing && replica.current().bearer_keys) {
      Register(replica, replica.StartRenewal(replica.tier()), out);
    }
  } else if (replica.step() == Replica::Step::kServing) {
    // Its keys must go all the same: it retires, and whoever reads it does so elsewhere.
    ++counters_.renewals_failed;
    replica.Suspect(absl::Status(
        event.why.code(),
        absl::StrCat("it could not be registered under new keys: ", event.why.message())));
    Drain(replica, out);
  }
  if (replica.step() == Replica::Step::kFreed) Forget(replica);
}

void NodeState::On(Instant, const ReplicaHidden& event, Actions& out) {
  const auto it = replicas_.find(event.registration.shard);
  ENGRAM_CHECK(it != replicas_.end());
  const std::optional<Tier> unused = it->second.Hidden(event.registration.registration);
  if (unused) out.push_back(ReleaseMemory{event.registration.shard, *unused});
  if (it->second.step() == Replica::Step::kFreed) {
    Forget(it->second);
  } else {
    HideIfUnread(it->second, out);
  }
}

void NodeState::On(Instant, const OwnReadFinished& event, Actions& out) {
  if (!switches_.count_own_reads) return;
  const auto it = replicas_.find(event.shard);
  ENGRAM_CHECK(it != replicas_.end());
  it->second.FinishOwnRead(event.tier);
  HideIfUnread(it->second, out);
}

void NodeState::On(Instant, const InspectionEnded& event, Actions& out) {
  out.push_back(SendToController{CommandDone{event.command, event.status, event.inspection}});
}

void NodeState::On(Instant, const CapacityChanged& event, Actions&) { link_.SetTiers(event.tiers); }

void NodeState::On(Instant, const TenantsUsed& event, Actions&) { tenants_used_ = event.tenants; }

}  // namespace engram::poolserver
