#include "fabric/ucx/reception.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"

namespace engram::fabric::ucx {
namespace {

// How long a reader that is left may take to take what was sent to it.
constexpr Duration kLeaveAtMost = std::chrono::milliseconds(500);
// While somebody leaves.
constexpr Duration kLookAgain = std::chrono::milliseconds(1);
// More than a reader of ours has asked for at one time, by far.
constexpr std::size_t kMostUnsent = std::size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Reception>> Reception::Open(
    std::shared_ptr<const Transport> transport, Directory* directory) {
  std::unique_ptr<Reception> out(new Reception(std::move(transport), directory));
  auto worker = out->transport_->OpenWorker();
  if (!worker.ok()) return worker.status();
  auto address = out->transport_->AddressOf(*worker);
  if (!address.ok()) return address.status();
  out->worker_ = *std::move(worker);
  out->address_ = *std::move(address);
  if (ucs_status_t error = out->library_.worker_get_efd(out->worker_.get(), &out->wait_fd_);
      error != UCS_OK) {
    return out->transport_->Failed("ucp_worker_get_efd", error);
  }
  out->wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (out->wake_fd_ < 0) return absl::ErrnoToStatus(errno, "ucx needs an eventfd");
  SetReceiver(out->library_, out->worker_.get(), kAskId, &Reception::Receive, out.get());
  return out;
}

Reception::~Reception() {
  for (auto& [id, reader] : readers_) {
    reader->failed = true;
    Leave(*reader);
  }
  const Instant limit = clock_.Now() + kLeaveAtMost;
  while (!readers_.empty() && clock_.Now() < limit) Turn();
  worker_.reset();
  if (wake_fd_ >= 0) close(wake_fd_);
}

ucs_status_t Reception::Receive(void* reception, const void*, std::size_t, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t*) {
  // Answered outside of the callback, where UCX may be called.
  Ask head;
  std::span<const std::byte> tail;
  if (Unpack(data, bytes, &head, &tail)) {
    static_cast<Reception*>(reception)->inbox_.push_back({head, {tail.begin(), tail.end()}});
  }
  return UCS_OK;
}

void Reception::Failed(void* reader, ucp_ep_h, ucs_status_t) {
  auto* const gone = static_cast<Reader*>(reader);
  gone->failed = true;
  gone->leaves = true;
  gone->reception->look_after_readers_ = true;
}

void Reception::Flushed(void* request, ucs_status_t, void* reader) {
  auto* const one = static_cast<Reader*>(reader);
  one->flushing = false;
  one->reception->library_.request_free(request);
}

bool Reception::Turn() {
  bool busy = library_.worker_progress(worker_.get()) != 0;
  if (!inbox_.empty()) {
    busy = true;
    const std::vector<Received<Ask>> asks = std::exchange(inbox_, {});
    for (const Received<Ask>& ask : asks) Take(ask);
  }
  if (look_after_readers_) {
    const Instant now = clock_.Now();
    std::erase_if(readers_, [&](auto& entry) { return SeeOff(*entry.second, now); });
    look_after_readers_ = std::any_of(readers_.begin(), readers_.end(),
                                      [](const auto& entry) { return entry.second->leaves; });
  }
  return busy;
}

void Reception::Sleep(Duration most) {
  if (library_.worker_arm(worker_.get()) != UCS_OK) return;
  if (look_after_readers_) most = std::min(most, kLookAgain);
  pollfd wait[] = {{wait_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  poll(wait, 2, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(most).count()));
  std::uint64_t count = 0;
  if ((wait[1].revents & POLLIN) != 0 && read(wake_fd_, &count, sizeof count) < 0) return;
}

void Reception::Wake() {
  const std::uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof one) < 0) return;  // it is full: awake already
}

void Reception::Take(const Received<Ask>& ask) {
  if (ask.head.verb == Verb::kHello) return Welcome(ask);
  const auto found = readers_.find(ask.head.connection);
  if (found == readers_.end() || found->second->leaves) return;
  Reader& reader = *found->second;
  if (ask.head.verb == Verb::kRead) AnswerRead(reader, ask);
  if (ask.head.verb == Verb::kImport) {
    const Received<Answer> found_key = directory_->Find(ask.head);
    Reply(reader, found_key.head, found_key.tail);
  }
  if (ask.head.verb == Verb::kGoodbye) {
    reader.failed = true;  // it takes no answers any more
    Leave(reader);
  }
}

void Reception::Welcome(const Received<Ask>& hello) {
  if (readers_.count(hello.head.connection) > 0 || hello.tail.empty()) return;
  auto reader = std::make_unique<Reader>();
  reader->reception = this;
  reader->id = hello.head.connection;
  reader->token = hello.head.token;
  ucs_status_t error = UCS_OK;
  reader->endpoint =
      OpenEndpoint(library_, worker_.get(), hello.tail, &Reception::Failed, reader.get(), &error);
  if (reader->endpoint == nullptr) return;
  Answer answer;
  answer.outcome = directory_->Judge(hello.head);
  Reply(*reader, answer, {});
  Reader& kept = *readers_.emplace(reader->id, std::move(reader)).first->second;
  if (answer.outcome != Outcome::kOk) Leave(kept);
}

void Reception::AnswerRead(Reader& reader, const Received<Ask>& ask) {
  if (ask.head.count > kMostRanges || ask.tail.size() != ask.head.count * sizeof(Range) ||
      reader.unsent > kMostUnsent) {
    reader.failed = true;
    return Leave(reader);
  }
  ranges_.resize(ask.head.count);
  if (!ranges_.empty()) std::memcpy(ranges_.data(), ask.tail.data(), ask.tail.size());
  Answer answer;
  answer.verb = Verb::kRead;
  answer.request = ask.head.request;
  Reply(reader, answer, directory_->Read(ask.head, ranges_));
}

void Reception::Reply(Reader& reader, const Answer& head, std::span<const std::byte> tail) {
  Send(library_, reader.endpoint, kAnswerId, Pack(head, tail), &reader.unsent);
}

void Reception::Leave(Reader& reader) {
  look_after_readers_ = true;
  if (std::exchange(reader.leaves, true) || reader.failed) return;
  reader.leave_deadline = clock_.Now() + kLeaveAtMost;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &Reception::Flushed;
  param.user_data = &reader;
  reader.flushing = UCS_PTR_IS_PTR(library_.ep_flush_nbx(reader.endpoint, &param));
}

bool Reception::SeeOff(Reader& reader, Instant now) {
  if (!reader.leaves) return false;
  if (reader.endpoint != nullptr &&
      (reader.failed || !reader.flushing || now >= reader.leave_deadline)) {
    reader.closing = CloseByForce(library_, std::exchange(reader.endpoint, nullptr));
  }
  if (reader.closing != nullptr &&
      library_.request_check_status(reader.closing) != UCS_INPROGRESS) {
    library_.request_free(std::exchange(reader.closing, nullptr));
  }
  return reader.endpoint == nullptr && reader.closing == nullptr && !reader.flushing &&
         reader.unsent == 0;
}

void Reception::Dismiss(const SessionToken& session) {
  for (auto& [id, reader] : readers_) {
    if (!(reader->token == session) || reader->leaves) continue;
    Answer gone;
    gone.verb = Verb::kGone;
    Reply(*reader, gone, {});
    Leave(*reader);
  }
}

void Reception::DismissAll() {
  std::vector<SessionToken> sessions;
  for (const auto& [id, reader] : readers_) sessions.push_back(reader->token);
  for (const SessionToken& session : sessions) Dismiss(session);
}

}  // namespace engram::fabric::ucx
