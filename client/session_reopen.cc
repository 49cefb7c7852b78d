// ClientSession: from a stream that broke to the next session, while the lease lets reads go on.
#include <utility>

#include "client/session.h"

namespace engram::client {
namespace {

// Grants that come while readers of the older session end their reads; a node says one thing.
constexpr std::size_t kMaxSaid = 64;

}  // namespace

void ClientSession::Cut(Instant now, absl::Status why, Actions& out) {
  last_error_ = why;
  sent_.clear();
  reopening_.emplace();
  Delay(now);
  out.push_back(session::StreamCut{opening_, std::move(why)});
}

// Asks, or gives up what was asked and waits to ask again. REQUIRES: reopening_, `deadline_` is
// over.
void ClientSession::Reopen(Instant now, Actions& out) {
  if (reopening_->up) {
    DropReopened(out);
    reopening_.emplace();
    Delay(now);
    return;
  }
  reopening_->opening = session::Opening(last_opening_.value() + 1);
  reopening_->up = true;
  Ask(now, reopening_->opening, out);
}

// The node speaks again: it judged the session, or opened the next one. Either way the older grants
// give way; what was said is for the session that is taken up then.
void ClientSession::HearReopened(Instant now, const NodeMessage& message, Actions& out) {
  if (reopening_->said.size() == kMaxSaid) {
    DropReopened(out);
    return;
  }
  reopening_->said.push_back(message);
  if (state_ != State::kOpen) return;
  const auto* refused = std::get_if<SessionRefused>(&message);
  Lose(now,
       refused != nullptr && !refused->status.ok()
           ? refused->status
           : absl::UnavailableError("the stream broke; reading goes on with a new session"),
       out);
}

void ClientSession::LoseReopened(Instant now, const absl::Status& why, Actions& out) {
  reopening_.emplace();
  if (state_ != State::kOpen) return;
  if (!absl::IsUnavailable(why)) return Lose(now, why, out);
  last_error_ = why;
  Delay(now);
}

// REQUIRES: nothing of the older session is held, and reopening_->up.
void ClientSession::TakeReopened(Instant now, Actions& out) {
  const session::Reopening next = *std::exchange(reopening_, std::nullopt);
  opening_ = next.opening;
  state_ = State::kOpening;
  stream_up_ = true;
  received_ = applied_ = GrantRevision(0);
  sequence_ = 0;
  sent_.clear();
  for (const NodeMessage& message : next.said)
    On(now, session::NodeSaid{next.opening, message}, out);
}

void ClientSession::DropReopened(Actions& out) {
  if (reopening_ && reopening_->up) out.push_back(session::CloseStream{reopening_->opening});
  reopening_.reset();
}

}  // namespace engram::client
