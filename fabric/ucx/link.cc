#include "fabric/ucx/link.h"

#include "fabric/ucx/ask_link.h"
#include "fabric/ucx/get_link.h"

namespace engram::fabric::ucx {

Link::Link(const LinkParts& parts, AnswerSink* rows)
    : ReadLink(parts.sink),
      transport_(parts.transport),
      library_(transport_->library()),
      peer_(parts.peer),
      connection_(transport_, peer_->location, peer_->token, rows),
      connect_timeout_(parts.connect_timeout) {}

void Link::Drive() {
  if (!active()) return;
  if (connection_.state() == Connection::State::kClosed) {
    if (!connection_.Open()) return End(ReadStatus::kUnreachable);
    greet_deadline_ = clock_.Now() + connect_timeout_;
  }
  connection_.Progress();
  if (connection_.state() == Connection::State::kGreeting && clock_.Now() >= greet_deadline_) {
    broken_ = true;
  }
  if (!broken_ && connection_.state() == Connection::State::kOpen) PostWaiting();
  if (broken_ || connection_.state() == Connection::State::kFailed) {
    End(ReadStatus::kUnreachable);
  }
}

void Link::End(ReadStatus status) {
  BeforeClose(status);
  connection_.Close();
  EndInFlight(status);
  broken_ = false;
  EndWaiting(status);
}

std::unique_ptr<Link> MakeLink(const LinkParts& parts) {
  if (parts.transport->uses_get()) return std::make_unique<GetLink>(parts);
  return std::make_unique<AskLink>(parts);
}

}  // namespace engram::fabric::ucx
