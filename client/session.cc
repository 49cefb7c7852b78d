#include "client/session.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::client {
namespace {

// Renewals without an answer that are worth remembering: a lease older than these has run out.
constexpr std::size_t kMaxSent = 64;

}  // namespace

using session::Action;

ClientSession::ClientSession(ClientSessionOptions options, const Quiescence* quiescence,
                             Random* random, ProtocolSwitches switches)
    : options_(std::move(options)), quiescence_(quiescence), random_(random), switches_(switches) {}

std::vector<Action> ClientSession::OnEvent(Instant now, session::Event event) {
  Actions out;
  last_event_ = now;
  std::visit([&](const auto& what) { On(now, what, out); }, event);
  return out;
}

std::optional<Instant> ClientSession::NextTimer() const {
  const Instant poll = last_event_ + options_.quiescence_poll;
  switch (state_) {
    case State::kIdle:
    case State::kStopped: return std::nullopt;
    case State::kOpening:
    case State::kBackoff: return deadline_;
    case State::kVoiding:
      if (voided_ && !releasing_all_) return poll;
      return std::nullopt;
    case State::kOpen: break;
  }
  Instant next = std::min(lease_->until(), reopening_ ? deadline_ : next_renewal_);
  for (const Revision& revision : revisions_) {
    if (revision.step == Revision::Step::kReaching) next = std::min(next, revision.reach_until);
    if (revision.step == Revision::Step::kDraining) next = std::min(next, poll);
  }
  return next;
}

// ---- opening and leaving ----

void ClientSession::On(Instant now, const session::Start&, Actions& out) {
  if (state_ == State::kIdle) Open(now, out);
}

void ClientSession::Open(Instant now, Actions& out) {
  opening_ = session::Opening(last_opening_.value() + 1);
  state_ = State::kOpening;
  stream_up_ = true;
  received_ = applied_ = GrantRevision(0);
  sequence_ = 0;
  sent_.clear();
  Ask(now, opening_, out);
}

void ClientSession::Ask(Instant now, session::Opening opening, Actions& out) {
  last_opening_ = opening;
  opened_at_ = now;
  deadline_ = now + options_.open_timeout;
  late_tables_.clear();
  // An opening that was never answered is asked for again under the same id.
  if (request_id_.empty()) {
    request_id_ = absl::StrCat(options_.client, "-", absl::Hex(random_->Next(), absl::kZeroPad16));
  }
  out.push_back(session::OpenStream{opening, options_.endpoint});
  OpenSession open;
  open.client = options_.client;
  open.tenant = options_.tenant;
  open.request_id = request_id_;
  open.node = options_.node;
  open.incarnation = options_.incarnation;
  open.tables = options_.tables;
  out.push_back(session::SendToNode{opening, std::move(open)});
}

void ClientSession::On(Instant now, const session::Stop&, Actions& out) {
  stopping_ = true;
  if (reopening_ && reopening_->up)
    out.push_back(session::SendToNode{reopening_->opening, Goodbye{}});
  DropReopened(out);
  switch (state_) {
    case State::kOpening:
      // Nothing was read under this session: it is as quiet as it can be.
      out.push_back(session::SendToNode{opening_, Goodbye{}});
      out.push_back(session::CloseStream{opening_});
      stream_up_ = false;
      [[fallthrough]];
    case State::kIdle:
    case State::kBackoff:
      state_ = State::kStopped;
      out.push_back(session::Stopped{});
      break;
    case State::kOpen: Lose(now, absl::CancelledError("the client leaves"), out); break;
    case State::kVoiding:
    case State::kStopped: break;
  }
}

void ClientSession::Lose(Instant now, absl::Status why, Actions& out) {
  last_error_ = why;
  if (state_ == State::kOpening) {
    if (stream_up_) out.push_back(session::CloseStream{opening_});
    stream_up_ = false;
    BackOff(now);
    return;
  }
  ENGRAM_CHECK(state_ == State::kOpen);
  state_ = State::kVoiding;
  revisions_.clear();
  held_.Clear();
  voided_.reset();
  releasing_all_ = false;
  out.push_back(session::VoidRoutes{opening_, std::move(why)});
}

void ClientSession::BackOff(Instant now) {
  state_ = State::kBackoff;
  Delay(now);
}

void ClientSession::Delay(Instant now) {
  backoff_ = std::clamp(backoff_ * 2, options_.backoff_min, options_.backoff_max);
  const auto half = static_cast<std::uint64_t>(backoff_.count() / 2);
  deadline_ = now + backoff_ / 2 + Duration(random_->Below(half + 1));
}

void ClientSession::On(Instant, const session::RoutesVoided& event, Actions& out) {
  if (state_ != State::kVoiding || event.session != opening_) return;
  voided_ = event.version;
  StepVoiding(out);
}

void ClientSession::StepVoiding(Actions& out) {
  if (!voided_ || releasing_all_ || !quiescence_->Past(*voided_)) return;
  releasing_all_ = true;
  out.push_back(session::ReleaseAll{opening_});
}

void ClientSession::On(Instant now, const session::AllReleased& event, Actions& out) {
  if (state_ != State::kVoiding || event.session != opening_) return;
  ENGRAM_CHECK(releasing_all_);
  if (stream_up_) {
    // Quiescent: the node need not wait for the lease to run out.
    out.push_back(session::SendToNode{opening_, Goodbye{}});
    out.push_back(session::CloseStream{opening_});
    stream_up_ = false;
  }
  lease_.reset();
  if (stopping_) {
    state_ = State::kStopped;
    out.push_back(session::Stopped{});
  } else if (reopening_ && reopening_->up) {
    TakeReopened(now, out);
  } else {
    reopening_.reset();
    BackOff(now);
  }
}

void ClientSession::On(Instant now, const session::StreamLost& event, Actions& out) {
  if (reopening_ && reopening_->up && event.session == reopening_->opening)
    return LoseReopened(now, event.why, out);
  if (event.session != opening_ || !stream_up_) return;
  stream_up_ = false;
  // Where the node had a reason it has judged the session; else only the connection is gone.
  if (state_ == State::kOpen && absl::IsUnavailable(event.why) && lease_->ValidAt(now)) {
    Cut(now, event.why, out);
  } else if (state_ == State::kOpening || state_ == State::kOpen) {
    Lose(now, event.why, out);
  }
}

void ClientSession::On(Instant now, const session::NodeMoved& event, Actions& out) {
  const bool anew = event.incarnation != options_.incarnation;
  if (!anew && event.endpoint == options_.endpoint) return;
  options_.incarnation = event.incarnation;
  options_.endpoint = event.endpoint;
  backoff_ = Duration(0);
  if (reopening_) {
    DropReopened(out);
    if (state_ == State::kOpen && !anew) {
      reopening_.emplace();
      deadline_ = now;
    }
  }
  if (state_ == State::kOpening || (state_ == State::kOpen && anew)) {
    Lose(now,
         absl::UnavailableError(absl::StrCat("node \"", options_.node.name,
                                             "\" runs as incarnation ", event.incarnation.value(),
                                             " now; reading goes on with a new session")),
         out);
  }
  if (state_ == State::kBackoff) Open(now, out);
}

void ClientSession::On(Instant, const session::WantTable& event, Actions& out) {
  auto& tables = options_.tables;
  if (std::find(tables.begin(), tables.end(), event.table) != tables.end()) return;
  tables.push_back(event.table);
  if (state_ == State::kOpening || (reopening_ && reopening_->up))
    late_tables_.push_back(event.table);
  if (state_ == State::kOpen && stream_up_) {
    out.push_back(session::SendToNode{opening_, AddTable{event.table}});
  }
}

// ---- time ----

void ClientSession::On(Instant now, const session::Timer&, Actions& out) {
  switch (state_) {
    case State::kOpening:
      if (now >= deadline_) {
        Lose(now,
             absl::DeadlineExceededError(absl::StrCat("node \"", options_.node.name, "\" at ",
                                                      options_.endpoint,
                                                      " did not open a session in time")),
             out);
      }
      break;
    case State::kBackoff:
      if (now >= deadline_) Open(now, out);
      break;
    case State::kVoiding: StepVoiding(out); break;
    case State::kOpen:
      if (!lease_->ValidAt(now)) {
        Lose(now,
             absl::DeadlineExceededError(absl::StrCat(
                 "the read lease of node \"", options_.node.name, "\" ran out without a renewal")),
             out);
        break;
      }
      Advance(now, out);
      if (reopening_) {
        if (now >= deadline_) Reopen(now, out);
      } else if (now >= next_renewal_) {
        Renew(now, out);
      }
      break;
    case State::kIdle:
    case State::kStopped: break;
  }
}

void ClientSession::Renew(Instant now, Actions& out) {
  ++sequence_;
  sent_.emplace_back(sequence_, now);
  if (sent_.size() > kMaxSent) sent_.pop_front();
  next_renewal_ = now + lease_length_ / 3;
  out.push_back(session::SendToNode{opening_, RenewLease{sequence_, applied_}});
}

// ---- what the node says ----

void ClientSession::On(Instant now, const session::NodeSaid& event, Actions& out) {
  if (reopening_ && reopening_->up && event.session == reopening_->opening)
    return HearReopened(now, event.message, out);
  if (event.session != opening_ || !stream_up_) return;
  std::visit([&](const auto& message) { Hear(now, message, out); }, event.message);
}

void ClientSession::Hear(Instant now, const SessionOpened& opened, Actions& out) {
  if (state_ != State::kOpening) return;
  if (opened.node != options_.node || opened.incarnation != options_.incarnation) {
    Lose(now,
         absl::FailedPreconditionError(absl::StrCat(
             options_.endpoint, " is node \"", opened.node.name, "\" incarnation ",
             opened.incarnation.value(), ", not \"", options_.node.name, "\" incarnation ",
             options_.incarnation.value(), "; the map will say where it is")),
         out);
    return;
  }
  if (opened_at_ + opened.lease <= now) {
    Lose(now, absl::DeadlineExceededError("the session was opened too late to be used"), out);
    return;
  }
  state_ = State::kOpen;
  request_id_.clear();
  backoff_ = Duration(0);
  lease_length_ = opened.lease;
  const Instant counted_from = switches_.count_lease_from_request ? opened_at_ : now;
  lease_ = std::make_shared<ReadLease>(counted_from + opened.lease);
  next_renewal_ = opened_at_ + opened.lease / 3;
  out.push_back(session::SessionStarted{opening_, opened, lease_});
  for (const TableUid& table : late_tables_) {
    out.push_back(session::SendToNode{opening_, AddTable{table}});
  }
}

void ClientSession::Hear(Instant now, const LeaseRenewed& renewed, Actions&) {
  if (state_ != State::kOpen) return;
  while (!sent_.empty() && sent_.front().first < renewed.sequence) sent_.pop_front();
  if (sent_.empty() || sent_.front().first != renewed.sequence) return;
  // Counted from when the request was sent, which is before the node granted it.
  const Instant from = switches_.count_lease_from_request ? sent_.front().second : now;
  if (renewed.lease > Duration(0)) lease_->Extend(from + renewed.lease);
  sent_.pop_front();
}

void ClientSession::Hear(Instant now, const SessionRefused& refused, Actions& out) {
  if (state_ != State::kOpening && state_ != State::kOpen) return;
  absl::Status why = refused.status;
  if (why.ok()) why = absl::UnavailableError("the node refused the session");
  if (absl::IsAlreadyExists(why)) request_id_.clear();
  Lose(now, std::move(why), out);
}

void ClientSession::Hear(Instant now, const GrantUpdate& update, Actions& out) {
  if (state_ != State::kOpen) return;
  const bool first = received_ == GrantRevision(0);
  if (update.revision <= received_ || (!first && update.revision.value() != received_.value() + 1 &&
                                       switches_.refuse_missing_revisions)) {
    Lose(now,
         absl::InternalError(absl::StrCat("node \"", options_.node.name, "\" sent grant revision ",
                                          update.revision.value(), " after ", received_.value())),
         out);
    return;
  }
  received_ = update.revision;
  Revision& revision = revisions_.emplace_back();
  revision.number = update.revision;
  revision.reach_until = now;
  std::set<ShardKey> granted;
  for (const Grant& grant : update.granted) granted.insert(grant.shard);
  std::vector<Successor> successors;
  for (const Withdrawal& withdrawal : update.withdrawn) {
    if (!held_.Erase(withdrawal.shard)) continue;
    const bool replaced = granted.count(withdrawal.shard) != 0;
    (replaced ? revision.replaced : revision.withdrawn).push_back(withdrawal.shard);
    for (const Successor& successor : withdrawal.successors) {
      const bool known =
          std::find(successors.begin(), successors.end(), successor) != successors.end();
      if (!known) successors.push_back(successor);
    }
  }
  for (const ShardKey& shard : granted) held_.Insert(shard);
  if (!update.granted.empty()) {
    ++revision.routes_unanswered;
    out.push_back(
        session::ChangeRoutes{opening_, revision.number, update.granted, {}, update.paths});
  }
  if (!successors.empty()) {
    revision.reach_until = now + lease_length_ / 3;
    out.push_back(session::ReachSuccessors{opening_, revision.number, std::move(successors)});
  }
  if (!switches_.change_routes_before_ack) {
    applied_ = received_;
    Renew(now, out);
  }
  Advance(now, out);
}

// ---- revisions ----

ClientSession::Revision* ClientSession::Find(GrantRevision number) {
  if (state_ != State::kOpen) return nullptr;
  const auto it =
      std::find_if(revisions_.begin(), revisions_.end(),
                   [number](const Revision& revision) { return revision.number == number; });
  return it == revisions_.end() ? nullptr : &*it;
}

void ClientSession::On(Instant now, const session::SuccessorsReached& event, Actions& out) {
  if (event.session != opening_) return;
  if (Revision* revision = Find(event.revision)) {
    revision->reach_until = std::min(revision->reach_until, now);
    Advance(now, out);
  }
}

void ClientSession::On(Instant now, const session::RoutesChanged& event, Actions& out) {
  if (event.session != opening_) return;
  if (Revision* revision = Find(event.revision)) {
    ENGRAM_CHECK(revision->routes_unanswered > 0);
    --revision->routes_unanswered;
    revision->version = std::max(revision->version, event.version);
    Advance(now, out);
  }
}

void ClientSession::On(Instant now, const session::RegionsReleased& event, Actions& out) {
  if (event.session != opening_) return;
  if (Revision* revision = Find(event.revision)) {
    ENGRAM_CHECK(revision->step == Revision::Step::kReleasing);
    revision->step = Revision::Step::kDone;
    Advance(now, out);
  }
}

bool ClientSession::Step(Instant now, Revision& revision, Actions& out) {
  const Revision::Step before = revision.step;
  switch (revision.step) {
    case Revision::Step::kReaching:
      if (now < revision.reach_until) break;
      revision.step = Revision::Step::kRouting;
      if (!revision.withdrawn.empty()) {
        ++revision.routes_unanswered;
        out.push_back(session::ChangeRoutes{opening_, revision.number, {}, revision.withdrawn, {}});
      }
      break;
    case Revision::Step::kRouting:
      if (revision.routes_unanswered > 0) break;
      revision.step = revision.withdrawn.empty() && revision.replaced.empty()
                          ? Revision::Step::kDone
                          : Revision::Step::kDraining;
      break;
    case Revision::Step::kDraining:
      if (switches_.wait_for_started_reads && !quiescence_->Past(revision.version)) break;
      revision.step = Revision::Step::kReleasing;
      revision.withdrawn.insert(revision.withdrawn.end(), revision.replaced.begin(),
                                revision.replaced.end());
      out.push_back(session::ReleaseRegions{opening_, revision.number, revision.withdrawn});
      break;
    case Revision::Step::kReleasing:
    case Revision::Step::kDone: break;
  }
  return revision.step != before;
}

void ClientSession::Advance(Instant now, Actions& out) {
  for (Revision& revision : revisions_) {
    while (Step(now, revision, out)) {
    }
  }
  const GrantRevision before = applied_;
  while (!revisions_.empty() && revisions_.front().step == Revision::Step::kDone) {
    applied_ = std::max(applied_, revisions_.front().number);
    revisions_.pop_front();
  }
  if (applied_ != before && stream_up_) Renew(now, out);
}

}  // namespace engram::client
