// The read sessions of a node, opened to ended, and what each may read: see node_state.h.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "poolserver/node_state.h"

namespace engram::poolserver {

NodeSession* NodeState::SessionOf(StreamId stream) {
  const auto it = by_stream_.find(stream);
  return it == by_stream_.end() ? nullptr : &sessions_.at(it->second);
}

void NodeState::On(Instant now, const ClientSaid& event, Actions& out) {
  NodeSession* session = SessionOf(event.stream);
  const auto* open = std::get_if<OpenSession>(&event.message);
  if (open != nullptr && session == nullptr) {
    Open(now, event.stream, *open, out);
  } else if (open != nullptr || session == nullptr) {
    RefuseStream(event.stream,
                 absl::FailedPreconditionError(
                     open != nullptr ? "this stream has a session already; open another stream"
                                     : "no session on this stream; send OpenSession first"),
                 out);
  } else if (leases_.HasRunOut(session->id(), now)) {
    ++counters_.sessions_run_out;
    EndSession(session->id(), out);
  } else if (const auto* add = std::get_if<AddTable>(&event.message)) {
    session->AddTable(add->table);
    GrantTables(*session);
  } else if (const auto* renew = std::get_if<RenewLease>(&event.message)) {
    Renew(now, *session, *renew, out);
  } else {
    leases_.End(session->id());
    EndSession(session->id(), out);
  }
}

void NodeState::On(Instant, const StreamBroken& event, Actions& out) {
  NodeSession* session = SessionOf(event.stream);
  if (session != nullptr) session->StreamBroken();
  by_stream_.erase(event.stream);
  if (session == nullptr || switches_.keep_lease_of_broken_session) return;
  leases_.End(session->id());
  EndSession(session->id(), out);
}

void NodeState::Open(Instant now, StreamId stream, const OpenSession& open, Actions& out) {
  absl::Status why;
  if (!registered()) {
    why = absl::UnavailableError(
        absl::StrCat("node \"", options_.node.name, "\" is not registered yet; try again"));
  } else if (open.node != options_.node || open.incarnation != link_.incarnation()) {
    why = absl::FailedPreconditionError(
        absl::StrCat("session is meant for node \"", open.node.name, "\" incarnation ",
                     open.incarnation.value(), "; this is \"", options_.node.name,
                     "\" incarnation ", link_.incarnation().value(), "; refresh the map"));
  } else if (IsRevoked(open.proven)) {
    why = absl::PermissionDeniedError(absl::StrCat(open.proven->Describe(), " is revoked"));
  } else if (Reattach(now, stream, open, &why, out)) {
    return;
  } else if (why.ok() && sessions_.size() >= options_.max_sessions) {
    why = absl::ResourceExhaustedError(absl::StrCat("node \"", options_.node.name, "\" holds ",
                                                    sessions_.size(),
                                                    " read sessions, the limit; try again later"));
  }
  if (!why.ok()) {
    RefuseStream(stream, std::move(why), out);
    return;
  }
  const SessionId id(random_->Next());
  const auto token = random_->Bits<struct SessionTokenTag>();
  const auto [it, added] = sessions_.try_emplace(id, id, token, open, stream);
  ENGRAM_CHECK(added);
  by_stream_[stream] = id;
  if (!open.request_id.empty()) by_request_[open.request_id] = id;
  Welcome(now, it->second, out);
}

// The same request again: the same session, as long as its client holds nothing of it. With a
// withdrawal unanswered the lease must not be extended, so a new session is made instead and the
// old lease runs to its end.
bool NodeState::Reattach(Instant now, StreamId stream, const OpenSession& open, absl::Status* why,
                         Actions& out) {
  const auto it = by_request_.find(open.request_id);
  if (it == by_request_.end()) return false;
  NodeSession& session = sessions_.at(it->second);
  if (session.renewed()) {
    *why = absl::AlreadyExistsError(absl::StrCat("request ", open.request_id,
                                                 " has opened and used a session before; open with "
                                                 "a new request id"));
    return false;
  }
  if (session.stream()) {
    out.push_back(CloseStream{*session.stream()});
    by_stream_.erase(*session.stream());
    session.StreamBroken();
  }
  if (!session.MayReattach() || leases_.HasRunOut(session.id(), now)) return false;
  session.Reattach(stream);
  for (const TableUid& table : open.tables) session.AddTable(table);
  by_stream_[stream] = session.id();
  Welcome(now, session, out);
  return true;
}

void NodeState::Welcome(Instant now, NodeSession& session, Actions& out) {
  leases_.Grant(session.id(), now);
  // One that comes back may have been dismissed meanwhile, while its client was revoked.
  out.push_back(AdmitSession{session.token(), session.tenant()});
  SessionOpened opened;
  opened.session = session.id();
  opened.token = session.token();
  opened.node = options_.node;
  opened.incarnation = link_.incarnation();
  opened.lease = leases_.lease();
  opened.margin = leases_.margin();
  opened.paths = options_.paths;
  out.push_back(SendToClient{*session.stream(), std::move(opened)});
  GrantTables(session);
}

void NodeState::GrantTables(NodeSession& session) {
  for (auto& [shard, replica] : replicas_) {
    const bool serves = replica.step() == Replica::Step::kServing;
    if (serves && MayRead(session, shard.table) && !session.Holds(shard) &&
        !session.IsWithdrawing(shard)) {
      Give(session, replica);
    }
  }
}

void NodeState::Give(NodeSession& session, Replica& replica) {
  const std::optional<Identity>& proven = session.proven();
  const bool client = proven && proven->role == Role::kClient;
  replica.AddReader(session.id(), client ? &proven->tenant : nullptr);
  const Registration& registration = replica.current();
  for (const GrantPath& path : registration.paths) {
    const auto more = more_paths_.find(path.path);
    if (more != more_paths_.end()) session.AddPath(path.path, more->second);
  }
  if (session.Holds(replica.shard())) {
    session.Replace(replica.MakeGrant(), registration.id);
  } else {
    session.AddGrant(replica.MakeGrant(), registration.id);
  }
}

void NodeState::Renew(Instant now, NodeSession& session, const RenewLease& renew, Actions& out) {
  const StreamId stream = *session.stream();
  const absl::StatusOr<std::vector<RegistrationKey>> quiet = session.Apply(renew.applied);
  if (!quiet.ok()) {
    RefuseStream(stream, quiet.status(), out);
    return;
  }
  StopReading(session, *quiet, out);
  // What was withdrawn from its tenant may be granted again by now.
  if (!quiet->empty()) GrantTables(session);
  LeaseRenewed renewed{renew.sequence, Duration(0)};
  if (session.HasUnapplied() && switches_.hold_lease_while_unapplied) {
    ++counters_.renewals_not_extended;
  } else {
    ++counters_.renewals_extended;
    leases_.Grant(session.id(), now);
    renewed.lease = leases_.lease();
  }
  out.push_back(SendToClient{stream, renewed});
}

void NodeState::StopReading(NodeSession& session, const std::vector<RegistrationKey>& ended,
                            Actions& out) {
  if (ended.empty()) return;
  DisallowReplicas disallow{session.token(), {}};
  for (const RegistrationKey& one : ended) {
    disallow.ended.push_back({one, session.MayRead(one.shard)});
  }
  out.push_back(std::move(disallow));
  for (const RegistrationKey& one : ended) {
    const auto it = replicas_.find(one.shard);
    if (it == replicas_.end() && !switches_.wait_for_sessions) continue;
    ENGRAM_CHECK(it != replicas_.end());
    it->second.RemoveReader(session.id(), one.registration);
    HideIfUnread(it->second, out);
  }
}

void NodeState::EndSession(SessionId id, Actions& out) {
  const auto it = sessions_.find(id);
  ENGRAM_CHECK(it != sessions_.end());
  NodeSession& session = it->second;
  if (session.stream()) {
    out.push_back(CloseStream{*session.stream()});
    by_stream_.erase(*session.stream());
  }
  out.push_back(DismissSession{session.token()});
  const auto request = by_request_.find(session.request_id());
  if (request != by_request_.end() && request->second == id) by_request_.erase(request);
  sessions_.erase(it);
  for (auto& [shard, replica] : replicas_) {
    replica.RemoveReader(id);
    HideIfUnread(replica, out);
  }
}

void NodeState::RefuseStream(StreamId stream, absl::Status why, Actions& out) {
  ++counters_.sessions_refused;
  // A session that misbehaved is treated as broken: it keeps its lease to the end.
  if (NodeSession* session = SessionOf(stream)) session->StreamBroken();
  by_stream_.erase(stream);
  out.push_back(SendToClient{stream, SessionRefused{std::move(why)}});
  out.push_back(CloseStream{stream});
}

void NodeState::FlushUpdates(Actions& out) {
  for (auto& [stream, id] : by_stream_) {
    NodeSession& session = sessions_.at(id);
    std::optional<GrantUpdate> update = session.TakeUpdate();
    if (!update) continue;
    if (!update->granted.empty()) {
      AllowReplicas allow{session.token(), {}};
      for (const Grant& grant : update->granted) {
        allow.registrations.push_back({grant.shard, session.granted().at(grant.shard)});
      }
      out.push_back(std::move(allow));
    }
    out.push_back(SendToClient{stream, *std::move(update)});
  }
}

}  // namespace engram::poolserver
