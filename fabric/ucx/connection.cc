#include "fabric/ucx/connection.h"

#include <utility>

namespace engram::fabric::ucx {
namespace {

// A forced close needs nothing of the peer; should UCX take longer all the same, destroying the
// worker ends it.
constexpr Duration kCloseAtMost = std::chrono::seconds(2);
// For the target to answer a hello before the reader leaves.
constexpr Duration kSettleAtMost = std::chrono::seconds(1);
// Turns that a goodbye gets to leave.
constexpr int kGoodbyeTurns = 16;
// Of one Progress: enough for what arrived, few enough for other peers to have their turn.
constexpr int kMostTurns = 8;

}  // namespace

Connection::Connection(std::shared_ptr<const Transport> transport, TargetLocation location,
                       SessionToken token, AnswerSink* rows)
    : transport_(std::move(transport)),
      library_(transport_->library()),
      location_(std::move(location)),
      token_(token),
      rows_(rows) {}

bool Connection::Open() {
  if (Connect()) return true;
  Close();
  return false;
}

bool Connection::Connect() {
  MutexLock lock(&DescriptorTurn());
  auto worker = transport_->OpenWorker();
  if (!worker.ok()) return false;
  const bool by_worker = location_.kind == TargetLocation::Kind::kWorker;
  std::vector<std::byte> own;
  if (by_worker) {
    auto address = transport_->AddressOf(*worker);
    if (!address.ok()) return false;
    own = *std::move(address);
  }
  if (library_.worker_get_efd(worker->get(), &wait_fd_) != UCS_OK) return false;
  SetReceiver(library_, worker->get(), kAnswerId, &Connection::Receive, this);
  refusal_ = Outcome::kOk;
  answer_.reset();
  ++generation_;
  id_ = random_.Next();
  state_ = State::kGreeting;
  endpoint_ = OpenEndpoint(library_, worker->get(),
                           by_worker ? ToWorker(location_.address) : ToSocket(location_.address),
                           &Connection::Failed, this);
  worker_ = *std::move(worker);
  if (endpoint_ == nullptr) return false;
  Send(library_, endpoint_, kAskId, Pack(NewAsk(Verb::kHello), own), nullptr);
  return true;
}

Ask Connection::NewAsk(Verb verb) const {
  Ask ask;
  ask.verb = verb;
  ask.incarnation = location_.incarnation.value();
  ask.token = token_;
  ask.connection = id_;
  return ask;
}

void Connection::Progress() {
  if (state_ != State::kGreeting) return Turn();
  MutexLock lock(&DescriptorTurn());  // sockets are made meanwhile
  Turn();
}

void Connection::Turn() {
  for (int turn = 0; turn < kMostTurns && library_.worker_progress(worker_.get()) != 0; ++turn) {
  }
}

bool Connection::Arm() { return library_.worker_arm(worker_.get()) == UCS_OK; }

void Connection::AskForKey(std::uint64_t key) {
  answer_.reset();
  Ask ask = NewAsk(Verb::kImport);
  ask.request = key;
  Send(library_, endpoint_, kAskId, Pack(ask, {}), nullptr);
}

std::optional<Received<Answer>> Connection::TakeAnswer() {
  return std::exchange(answer_, std::nullopt);
}

ucs_status_t Connection::Receive(void* connection, const void*, std::size_t, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t*) {
  Answer head;
  std::span<const std::byte> tail;
  if (Unpack(data, bytes, &head, &tail)) static_cast<Connection*>(connection)->Take(head, tail);
  return UCS_OK;
}

void Connection::Failed(void* connection, ucp_ep_h, ucs_status_t) {
  static_cast<Connection*>(connection)->state_ = State::kFailed;
}

void Connection::Take(const Answer& head, std::span<const std::byte> tail) {
  switch (head.verb) {
    case Verb::kHello:
      if (state_ != State::kGreeting) return;
      refusal_ = head.outcome;
      state_ = refusal_ == Outcome::kOk ? State::kOpen : State::kFailed;
      return;
    case Verb::kImport: answer_ = {head, {tail.begin(), tail.end()}}; return;
    case Verb::kRead:
      if (rows_ != nullptr) rows_->Land(head, tail);
      return;
    case Verb::kGone: state_ = State::kFailed; return;
    case Verb::kGoodbye: return;
  }
}

// The target's copy of UCX 1.13 takes the end of a connection that is being made for a fault of its
// own, and ends its process.
void Connection::Settle() {
  const SystemClock clock;
  const Instant limit = clock.Now() + kSettleAtMost;
  while (state_ == State::kGreeting && clock.Now() < limit) Progress();
}

void Connection::CloseEndpoint() {
  const SystemClock clock;
  const Instant limit = clock.Now() + kCloseAtMost;
  if (void* const closing = CloseByForce(library_, std::exchange(endpoint_, nullptr))) {
    while (library_.request_check_status(closing) == UCS_INPROGRESS && clock.Now() < limit) {
      library_.worker_progress(worker_.get());
    }
    library_.request_free(closing);
  }
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  if (endpoint_ != nullptr) {
    Settle();
    if (state_ == State::kOpen) {
      Send(library_, endpoint_, kAskId, Pack(NewAsk(Verb::kGoodbye), {}), nullptr);
      for (int turn = 0; turn < kGoodbyeTurns; ++turn) library_.worker_progress(worker_.get());
    }
  }
  {
    MutexLock lock(&DescriptorTurn());
    if (endpoint_ != nullptr) CloseEndpoint();
    worker_.reset();
  }
  wait_fd_ = -1;
  state_ = State::kClosed;
}

}  // namespace engram::fabric::ucx
