// The words of a read session.
#include "proto/bounds.h"
#include "proto/convert.h"

namespace engram::wire {
namespace {

struct ClientToWire {
  v1::ReadSessionRequest out;

  void operator()(const OpenSession& open) {
    auto* to = out.mutable_open();
    to->mutable_caller()->set_client(open.client);
    to->mutable_caller()->set_tenant(open.tenant);
    to->mutable_caller()->set_request_id(open.request_id);
    to->set_node(open.node.name);
    to->set_incarnation(open.incarnation.value());
    for (const TableUid& uid : open.tables) to->add_tables(ToWire(uid));
  }
  void operator()(const AddTable& add) { out.mutable_add_table()->set_table(ToWire(add.table)); }
  void operator()(const RenewLease& renew) {
    out.mutable_renew()->set_sequence(renew.sequence);
    out.mutable_renew()->set_applied_revision(renew.applied.value());
  }
  void operator()(const Goodbye&) { out.mutable_goodbye(); }
};

v1::Grant ToWireGrant(const Grant& grant) {
  v1::Grant out;
  out.set_table(ToWire(grant.shard.table));
  out.set_shard(grant.shard.shard.value());
  out.set_tier(ToWire(grant.tier));
  for (const GrantPath& path : grant.paths) {
    auto* to = out.add_paths();
    to->set_path(path.path);
    to->set_address(path.address);
    to->set_length(path.length);
    to->set_key(path.key);
  }
  return out;
}

struct NodeToWire {
  v1::ReadSessionResponse out;

  void operator()(const SessionOpened& opened) {
    auto* to = out.mutable_opened();
    to->set_session(opened.session.value());
    to->set_token(opened.token.bytes.data(), opened.token.bytes.size());
    to->set_node(opened.node.name);
    to->set_incarnation(opened.incarnation.value());
    to->set_lease_ns(opened.lease.count());
    to->set_margin_ns(opened.margin.count());
    for (const PathAddress& path : opened.paths) *to->add_paths() = ToWire(path);
  }
  void operator()(const GrantUpdate& update) {
    auto* to = out.mutable_grants();
    to->set_revision(update.revision.value());
    for (const Grant& grant : update.granted) *to->add_granted() = ToWireGrant(grant);
    for (const Withdrawal& withdrawal : update.withdrawn) {
      auto* gone = to->add_withdrawn();
      gone->set_table(ToWire(withdrawal.shard.table));
      gone->set_shard(withdrawal.shard.shard.value());
      for (const Successor& successor : withdrawal.successors) {
        *gone->add_successors() = ToWire(successor);
      }
    }
    for (const NumberedPath& path : update.paths) {
      auto* told = to->add_paths();
      told->set_path(path.path);
      *told->mutable_address() = ToWire(path.address);
    }
  }
  void operator()(const LeaseRenewed& renewed) {
    out.mutable_renewed()->set_sequence(renewed.sequence);
    out.mutable_renewed()->set_lease_ns(renewed.lease.count());
  }
  void operator()(const SessionRefused& refused) {
    *out.mutable_refused() = ToWire(refused.status);
  }
};

absl::StatusOr<ClientMessage> OpenFromWire(const v1::OpenSession& open) {
  if (auto ok = CheckCount("OpenSession.tables", open.tables_size(), kMaxTablesPerSession);
      !ok.ok()) {
    return ok;
  }
  OpenSession out{open.caller().client(),
                  open.caller().tenant(),
                  open.caller().request_id(),
                  NodeId{open.node()},
                  Incarnation(open.incarnation()),
                  {},
                  std::nullopt};
  for (const std::string& bytes : open.tables()) {
    auto uid = TableUidFromWire(bytes);
    if (!uid.ok()) return uid.status();
    out.tables.push_back(*uid);
  }
  return out;
}

absl::StatusOr<PathAddress> PathFromWire(const v1::PathAddress& path) {
  auto kind = FromWire(path.fabric());
  if (!kind.ok()) return kind.status();
  return PathAddress{*kind, path.address(), path.one_sided(), path.offloaded(), path.nonce()};
}

absl::StatusOr<NodeMessage> OpenedFromWire(const v1::SessionOpened& opened) {
  if (auto ok = CheckCount("SessionOpened.paths", opened.paths_size(), kMaxPaths); !ok.ok())
    return ok;
  SessionOpened out;
  out.session = SessionId(opened.session());
  if (opened.token().size() != out.token.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("SessionOpened.token has ", opened.token().size(), " bytes; it must have 16"));
  }
  std::copy(opened.token().begin(), opened.token().end(),
            reinterpret_cast<char*>(out.token.bytes.data()));
  out.node = NodeId{opened.node()};
  out.incarnation = Incarnation(opened.incarnation());
  out.lease = Duration(opened.lease_ns());
  out.margin = Duration(opened.margin_ns());
  for (const auto& path : opened.paths()) {
    auto from = PathFromWire(path);
    if (!from.ok()) return from.status();
    out.paths.push_back(*std::move(from));
  }
  return out;
}

absl::StatusOr<Grant> GrantFromWire(const v1::Grant& grant) {
  if (auto ok = CheckCount("Grant.paths", grant.paths_size(), kMaxPaths); !ok.ok()) return ok;
  auto uid = TableUidFromWire(grant.table());
  if (!uid.ok()) return uid.status();
  auto tier = FromWire(grant.tier());
  if (!tier.ok()) return tier.status();
  Grant out{{*uid, ShardIndex(grant.shard())}, *tier, {}};
  for (const auto& path : grant.paths()) {
    out.paths.push_back({path.path(), path.address(), path.length(), path.key()});
  }
  return out;
}

absl::StatusOr<NodeMessage> GrantsFromWire(const v1::GrantUpdate& update) {
  for (const auto& [field, count] : {std::pair{"GrantUpdate.granted", update.granted_size()},
                                     std::pair{"GrantUpdate.withdrawn", update.withdrawn_size()},
                                     std::pair{"GrantUpdate.paths", update.paths_size()}}) {
    if (auto ok = CheckCount(field, count, kMaxGrantsPerUpdate); !ok.ok()) return ok;
  }
  GrantUpdate out{GrantRevision(update.revision()), {}, {}, {}};
  for (const auto& grant : update.granted()) {
    auto from = GrantFromWire(grant);
    if (!from.ok()) return from.status();
    out.granted.push_back(*std::move(from));
  }
  for (const auto& gone : update.withdrawn()) {
    auto uid = TableUidFromWire(gone.table());
    if (!uid.ok()) return uid.status();
    if (auto ok = CheckCount("Withdrawal.successors", gone.successors_size(), kMaxReplicasPerShard);
        !ok.ok()) {
      return ok;
    }
    Withdrawal withdrawal{{*uid, ShardIndex(gone.shard())}, {}};
    for (const auto& successor : gone.successors()) {
      withdrawal.successors.push_back(FromWire(successor));
    }
    out.withdrawn.push_back(std::move(withdrawal));
  }
  for (const auto& path : update.paths()) {
    auto address = PathFromWire(path.address());
    if (!address.ok()) return address.status();
    if (path.path() > kMaxPathNumber) {
      return absl::InvalidArgumentError(absl::StrCat("GrantUpdate.paths has number ", path.path(),
                                                     "; the limit is ", kMaxPathNumber));
    }
    out.paths.push_back({path.path(), *std::move(address)});
  }
  return out;
}

}  // namespace

v1::PathAddress ToWire(const PathAddress& path) {
  v1::PathAddress out;
  out.set_fabric(ToWire(path.fabric));
  out.set_address(path.address);
  out.set_one_sided(path.one_sided);
  out.set_offloaded(path.offloaded);
  out.set_nonce(path.nonce);
  return out;
}

v1::ReadSessionRequest ToWire(const ClientMessage& message) {
  ClientToWire to;
  std::visit(to, message);
  return std::move(to.out);
}

v1::ReadSessionResponse ToWire(const NodeMessage& message) {
  NodeToWire to;
  std::visit(to, message);
  return std::move(to.out);
}

absl::StatusOr<ClientMessage> FromWire(const v1::ReadSessionRequest& message) {
  switch (message.message_case()) {
    case v1::ReadSessionRequest::kOpen: return OpenFromWire(message.open());
    case v1::ReadSessionRequest::kAddTable: {
      auto uid = TableUidFromWire(message.add_table().table());
      if (!uid.ok()) return uid.status();
      return AddTable{*uid};
    }
    case v1::ReadSessionRequest::kRenew:
      return RenewLease{message.renew().sequence(),
                        GrantRevision(message.renew().applied_revision())};
    case v1::ReadSessionRequest::kGoodbye: return Goodbye{};
    case v1::ReadSessionRequest::MESSAGE_NOT_SET: break;
  }
  return absl::InvalidArgumentError(
      "ReadSessionRequest is empty; send open, add_table, renew or goodbye");
}

absl::StatusOr<NodeMessage> FromWire(const v1::ReadSessionResponse& message) {
  switch (message.message_case()) {
    case v1::ReadSessionResponse::kOpened: return OpenedFromWire(message.opened());
    case v1::ReadSessionResponse::kGrants: return GrantsFromWire(message.grants());
    case v1::ReadSessionResponse::kRenewed:
      return LeaseRenewed{message.renewed().sequence(), Duration(message.renewed().lease_ns())};
    case v1::ReadSessionResponse::kRefused: return SessionRefused{FromWire(message.refused())};
    case v1::ReadSessionResponse::MESSAGE_NOT_SET: break;
  }
  return absl::InvalidArgumentError(
      "ReadSessionResponse is empty; the node speaks another version");
}

}  // namespace engram::wire
