// The words of a pool node and the controller.
#include <algorithm>

#include "proto/bounds.h"
#include "proto/convert.h"

namespace engram::wire {
namespace {

constexpr std::uint64_t kMostTierBytes = std::uint64_t{1} << 50;

v1::ReplicaReport ToWireReport(const ReplicaReport& report) {
  v1::ReplicaReport out;
  out.set_table(ToWire(report.shard.table));
  out.set_shard(report.shard.shard.value());
  out.set_tier(ToWire(report.tier));
  out.set_state(ToWire(report.state));
  out.mutable_block_crcs()->Add(report.block_crcs.begin(), report.block_crcs.end());
  if (!report.error.ok()) *out.mutable_error() = ToWire(report.error);
  return out;
}

absl::StatusOr<ReplicaReport> ReportFromWire(const v1::ReplicaReport& report) {
  if (auto ok = CheckCount("ReplicaReport.block_crcs", report.block_crcs_size(), kMaxCrcsPerReport);
      !ok.ok()) {
    return ok;
  }
  auto uid = TableUidFromWire(report.table());
  if (!uid.ok()) return uid.status();
  auto tier = FromWire(report.tier());
  if (!tier.ok()) return tier.status();
  auto state = FromWire(report.state());
  if (!state.ok()) return state.status();
  return ReplicaReport{{*uid, ShardIndex(report.shard())},
                       *tier,
                       *state,
                       {report.block_crcs().begin(), report.block_crcs().end()},
                       FromWire(report.error())};
}

template <class Reports>
absl::StatusOr<std::vector<ReplicaReport>> ReportsFromWire(const char* field,
                                                           const Reports& reports) {
  if (auto ok = CheckCount(field, reports.size(), kMaxReportsPerMessage); !ok.ok()) return ok;
  std::vector<ReplicaReport> out;
  for (const auto& report : reports) {
    auto from = ReportFromWire(report);
    if (!from.ok()) return from.status();
    out.push_back(*std::move(from));
  }
  return out;
}

template <class Tiers>
absl::StatusOr<std::vector<TierCapacity>> TiersFromWire(const Tiers& tiers) {
  if (auto ok = CheckCount("tiers", tiers.size(), 8); !ok.ok()) return ok;
  std::vector<TierCapacity> out;
  for (const auto& tier : tiers) {
    auto from = FromWire(tier);
    if (!from.ok()) return from.status();
    out.push_back(*from);
  }
  return out;
}

struct NodeSays {
  v1::JoinRequest out;

  void operator()(const NodeHello& hello) {
    auto* to = out.mutable_hello();
    to->set_node(hello.node.name);
    to->set_incarnation(hello.incarnation.value());
    to->set_process_nonce(hello.process_nonce);
    to->set_request_id(hello.request_id);
    to->set_endpoint(hello.endpoint);
    to->set_failure_domain(hello.failure_domain);
    to->set_version(hello.version);
    for (const TierCapacity& tier : hello.tiers) *to->add_tiers() = ToWire(tier);
    for (const ReplicaReport& report : hello.replicas) *to->add_replicas() = ToWireReport(report);
  }
  void operator()(const NodeHeartbeat& beat) {
    auto* to = out.mutable_heartbeat();
    to->set_incarnation(beat.incarnation.value());
    to->set_seen_fencing_token(beat.seen.value());
    for (const TierCapacity& tier : beat.tiers) *to->add_tiers() = ToWire(tier);
    for (const ReplicaReport& report : beat.changed) *to->add_changed() = ToWireReport(report);
    to->set_sequence(beat.sequence);
    to->set_sessions(beat.sessions);
    to->set_retirements_pending(beat.retirements_pending);
    for (const TenantUse& use : beat.tenants) {
      v1::TenantUse* one = to->add_tenants();
      one->set_tenant(use.tenant);
      one->set_gathered_rows(use.gathered_rows);
      one->set_throttled_messages(use.throttled_messages);
    }
  }
  void operator()(const CommandDone& done) {
    auto* to = out.mutable_done();
    to->set_command(done.command);
    *to->mutable_outcome() = ToWire(done.status);
    for (const Inspection& inspection : done.inspection) {
      *to->mutable_inspection()->mutable_spec() = ToWire(inspection.spec);
      to->mutable_inspection()->set_token_map(ToWire(inspection.token_map));
      to->mutable_inspection()->set_source_bytes(inspection.source_bytes);
    }
  }
};

struct CommandBody {
  v1::Command* out;

  void operator()(const LoadReplicas& load) {
    auto* to = out->mutable_load();
    *to->mutable_table() = ToWire(load.table);
    for (ShardIndex shard : load.shards) to->add_shards(shard.value());
    to->set_tier(ToWire(load.tier));
    if (load.source) *to->mutable_source() = ToWire(*load.source);
    for (std::uint64_t sum : load.sums) to->add_sums(sum);
  }
  void operator()(const RetireReplicas& retire) {
    auto* to = out->mutable_retire();
    to->set_table(ToWire(retire.table));
    for (ShardIndex shard : retire.shards) to->add_shards(shard.value());
    for (const Successor& successor : retire.successors) {
      *to->add_successors() = ToWire(successor);
    }
  }
  void operator()(const InspectSource& inspect) {
    auto* to = out->mutable_inspect();
    to->set_name(inspect.table.name);
    to->set_version(inspect.table.version);
    *to->mutable_source() = ToWire(inspect.source);
  }
};

struct ControllerSays {
  v1::JoinResponse out;

  void operator()(const NodeWelcome& welcome) {
    auto* to = out.mutable_welcome();
    to->set_incarnation(welcome.incarnation.value());
    to->set_fencing_token(welcome.token.value());
    to->set_heartbeat_every_ns(welcome.heartbeat_every.count());
    to->set_dead_after_ns(welcome.dead_after.count());
  }
  void operator()(const HeartbeatSeen& seen) {
    out.mutable_seen()->set_sequence(seen.sequence);
    out.mutable_seen()->set_map_epoch(seen.map_epoch.value());
  }
  void operator()(const NodeRefused& refused) { *out.mutable_refused() = ToWire(refused.status); }
  void operator()(const TenantPolicies& policies) {
    auto* to = out.mutable_policies();
    to->set_fencing_token(policies.token.value());
    for (const TenantPolicy& policy : policies.tenants) {
      v1::TenantPolicy* one = to->add_tenants();
      one->set_tenant(policy.tenant);
      one->set_rows_per_second(policy.rows_per_second);
      one->mutable_granted_tables()->Assign(policy.granted_tables.begin(),
                                            policy.granted_tables.end());
      one->mutable_revoked_clients()->Assign(policy.revoked_clients.begin(),
                                             policy.revoked_clients.end());
    }
  }
  void operator()(const Command& command) {
    auto* to = out.mutable_command();
    to->set_id(command.id);
    to->set_incarnation(command.incarnation.value());
    to->set_fencing_token(command.token.value());
    std::visit(CommandBody{to}, command.body);
  }
};

absl::StatusOr<NodeToController> HelloFromWire(const v1::NodeHello& hello) {
  auto tiers = TiersFromWire(hello.tiers());
  if (!tiers.ok()) return tiers.status();
  auto replicas = ReportsFromWire("NodeHello.replicas", hello.replicas());
  if (!replicas.ok()) return replicas.status();
  if (hello.node().empty() || hello.node().size() > 253) {
    return absl::InvalidArgumentError(absl::StrCat("node id \"", hello.node(), "\" has ",
                                                   hello.node().size(),
                                                   " characters; it needs 1 to 253"));
  }
  return NodeHello{NodeId{hello.node()},  Incarnation(hello.incarnation()),
                   hello.process_nonce(), hello.request_id(),
                   hello.endpoint(),      hello.failure_domain(),
                   hello.version(),       *std::move(tiers),
                   *std::move(replicas)};
}

absl::StatusOr<std::vector<TenantUse>> UsesFromWire(
    const google::protobuf::RepeatedPtrField<v1::TenantUse>& uses) {
  if (auto ok = CheckCount("NodeHeartbeat.tenants", uses.size(), kMaxTenants); !ok.ok()) return ok;
  std::vector<TenantUse> out;
  for (const v1::TenantUse& use : uses) {
    out.push_back({use.tenant(), use.gathered_rows(), use.throttled_messages()});
  }
  return out;
}

absl::StatusOr<NodeToController> HeartbeatFromWire(const v1::NodeHeartbeat& beat) {
  auto tiers = TiersFromWire(beat.tiers());
  if (!tiers.ok()) return tiers.status();
  auto changed = ReportsFromWire("NodeHeartbeat.changed", beat.changed());
  if (!changed.ok()) return changed.status();
  auto tenants = UsesFromWire(beat.tenants());
  if (!tenants.ok()) return tenants.status();
  return NodeHeartbeat{Incarnation(beat.incarnation()),
                       FencingToken(beat.seen_fencing_token()),
                       *std::move(tiers),
                       *std::move(changed),
                       beat.sequence(),
                       beat.sessions(),
                       beat.retirements_pending(),
                       *std::move(tenants)};
}

absl::StatusOr<NodeToController> DoneFromWire(const v1::CommandDone& done) {
  CommandDone out{done.command(), FromWire(done.outcome()), {}};
  if (done.has_inspection()) {
    auto spec = FromWire(done.inspection().spec());
    if (!spec.ok()) return spec.status();
    auto map = TokenMapFromWire(done.inspection().token_map());
    if (!map.ok()) return map.status();
    out.inspection.push_back({*std::move(spec), *std::move(map), done.inspection().source_bytes()});
  }
  return out;
}

absl::StatusOr<LoadReplicas> LoadFromWire(const v1::LoadReplicas& load) {
  if (auto ok = CheckCount("LoadReplicas.shards", load.shards_size(), kMaxShardsPerCommand);
      !ok.ok()) {
    return ok;
  }
  auto table = FromWire(load.table());
  if (!table.ok()) return table.status();
  auto tier = FromWire(load.tier());
  if (!tier.ok()) return tier.status();
  if (load.sums_size() != 0 && load.sums_size() != load.shards_size()) {
    return absl::InvalidArgumentError(absl::StrCat("LoadReplicas has ", load.shards_size(),
                                                   " shards and ", load.sums_size(),
                                                   " sums; it needs one for each, or none"));
  }
  LoadReplicas out{*std::move(table), {}, *tier};
  for (std::uint32_t shard : load.shards()) out.shards.emplace_back(shard);
  if (load.has_source()) out.source = FromWire(load.source());
  out.sums.assign(load.sums().begin(), load.sums().end());
  return out;
}

absl::StatusOr<RetireReplicas> RetireFromWire(const v1::RetireReplicas& retire) {
  if (auto ok = CheckCount("RetireReplicas.shards", retire.shards_size(), kMaxShardsPerCommand);
      !ok.ok()) {
    return ok;
  }
  auto uid = TableUidFromWire(retire.table());
  if (!uid.ok()) return uid.status();
  RetireReplicas out{*uid, {}, {}};
  for (std::uint32_t shard : retire.shards()) out.shards.emplace_back(shard);
  for (const auto& next : retire.successors()) out.successors.push_back(FromWire(next));
  return out;
}

absl::StatusOr<InspectSource> InspectFromWire(const v1::InspectSource& inspect) {
  auto name = TableName::Parse(inspect.name() + "@" + inspect.version());
  if (!name.ok()) return name.status();
  auto source = FromWire(inspect.source());
  if (!source.ok()) return source.status();
  return InspectSource{*std::move(name), *std::move(source)};
}

absl::StatusOr<ControllerToNode> PoliciesFromWire(const v1::TenantPolicies& policies) {
  if (auto ok = CheckCount("TenantPolicies.tenants", policies.tenants_size(), kMaxTenants);
      !ok.ok()) {
    return ok;
  }
  TenantPolicies out;
  out.token = FencingToken(policies.fencing_token());
  for (const v1::TenantPolicy& policy : policies.tenants()) {
    out.tenants.push_back({policy.tenant(),
                           policy.rows_per_second(),
                           {policy.granted_tables().begin(), policy.granted_tables().end()},
                           {policy.revoked_clients().begin(), policy.revoked_clients().end()}});
  }
  return out;
}

absl::StatusOr<ControllerToNode> CommandFromWire(const v1::Command& command) {
  Command out{
      command.id(), Incarnation(command.incarnation()), FencingToken(command.fencing_token()), {}};
  const auto take = [&out](auto body) -> absl::StatusOr<ControllerToNode> {
    if (!body.ok()) return body.status();
    out.body = *std::move(body);
    return out;
  };
  switch (command.body_case()) {
    case v1::Command::kLoad: return take(LoadFromWire(command.load()));
    case v1::Command::kRetire: return take(RetireFromWire(command.retire()));
    case v1::Command::kInspect: return take(InspectFromWire(command.inspect()));
    case v1::Command::BODY_NOT_SET: break;
  }
  return absl::InvalidArgumentError("Command has no body; the controller speaks another version");
}

}  // namespace

v1::TierCapacity ToWire(const TierCapacity& capacity) {
  v1::TierCapacity out;
  out.set_tier(ToWire(capacity.tier));
  out.set_capacity_bytes(capacity.capacity_bytes);
  out.set_allocated_bytes(capacity.allocated_bytes);
  out.set_read_bytes_per_second(capacity.read_bytes_per_second);
  out.set_trouble(capacity.trouble);
  return out;
}

absl::StatusOr<TierCapacity> FromWire(const v1::TierCapacity& capacity) {
  auto tier = FromWire(capacity.tier());
  if (!tier.ok()) return tier.status();
  // Sums of what nodes say stay far from 2^63.
  if (std::max(capacity.capacity_bytes(), capacity.allocated_bytes()) > kMostTierBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TierCapacity has ", capacity.capacity_bytes(), " bytes, ", capacity.allocated_bytes(),
        " of them allocated; the limit is ", kMostTierBytes));
  }
  return TierCapacity{*tier, capacity.capacity_bytes(), capacity.allocated_bytes(),
                      capacity.read_bytes_per_second(), capacity.trouble()};
}

v1::JoinRequest ToWire(const NodeToController& message) {
  NodeSays to;
  std::visit(to, message);
  return std::move(to.out);
}

v1::JoinResponse ToWire(const ControllerToNode& message) {
  ControllerSays to;
  std::visit(to, message);
  return std::move(to.out);
}

absl::StatusOr<NodeToController> FromWire(const v1::JoinRequest& message) {
  switch (message.message_case()) {
    case v1::JoinRequest::kHello: return HelloFromWire(message.hello());
    case v1::JoinRequest::kHeartbeat: return HeartbeatFromWire(message.heartbeat());
    case v1::JoinRequest::kDone: return DoneFromWire(message.done());
    case v1::JoinRequest::MESSAGE_NOT_SET: break;
  }
  return absl::InvalidArgumentError("JoinRequest is empty; send hello, heartbeat or done");
}

absl::StatusOr<ControllerToNode> FromWire(const v1::JoinResponse& message) {
  switch (message.message_case()) {
    case v1::JoinResponse::kWelcome: {
      const auto& welcome = message.welcome();
      return NodeWelcome{Incarnation(welcome.incarnation()), FencingToken(welcome.fencing_token()),
                         Duration(welcome.heartbeat_every_ns()), Duration(welcome.dead_after_ns())};
    }
    case v1::JoinResponse::kSeen:
      return HeartbeatSeen{message.seen().sequence(), Epoch(message.seen().map_epoch())};
    case v1::JoinResponse::kRefused: return NodeRefused{FromWire(message.refused())};
    case v1::JoinResponse::kCommand: return CommandFromWire(message.command());
    case v1::JoinResponse::kPolicies: return PoliciesFromWire(message.policies());
    case v1::JoinResponse::MESSAGE_NOT_SET: break;
  }
  return absl::InvalidArgumentError("JoinResponse is empty; the controller speaks another version");
}

}  // namespace engram::wire
