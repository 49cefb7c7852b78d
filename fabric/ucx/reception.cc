#include "fabric/ucx/reception.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace engram::fabric::ucx {
namespace {

// How long a reader that is left may take to take what was sent to it.
constexpr Duration kLeaveAtMost = std::chrono::milliseconds(500);
// While somebody leaves.
constexpr Duration kLookAgainForReaders = std::chrono::milliseconds(1);
// In a row, before it naps.
constexpr int kMostRefusedSleeps = 1000;
// More than a reader of ours has asked for at one time, by far.
constexpr std::size_t kMostUnsent = std::size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Reception>> Reception::Open(
    std::shared_ptr<const Transport> transport, const std::string& host, Directory* directory) {
  std::unique_ptr<Reception> out(new Reception(std::move(transport), directory));
  if (absl::Status status = out->OpenDoor(host); !status.ok()) return status;
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
  for (auto& [endpoint, reader] : callers_) Leave(*reader);
  const Instant limit = clock_.Now() + kLeaveAtMost;
  while (!empty() && clock_.Now() < limit) Turn();
  {
    MutexLock lock(&DescriptorTurn());
    if (listener_ != nullptr) library_.listener_destroy(listener_);
    worker_.reset();
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status Reception::OpenDoor(const std::string& host) {
  MutexLock lock(&DescriptorTurn());
  auto worker = transport_->OpenWorker();
  if (!worker.ok()) return worker.status();
  worker_ = *std::move(worker);
  if (!transport_->in_shared_memory()) return Listen(host);
  auto address = transport_->AddressOf(worker_);
  if (!address.ok()) return address.status();
  address_ = *std::move(address);
  return absl::OkStatus();
}

absl::Status Reception::Listen(const std::string& host) {
  sockaddr_storage at{};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&at);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&at);
  const bool is_v4 = inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1;
  if (!is_v4 && inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ucx host \"", host, "\": wanted is the address of an interface"));
  }
  at.ss_family = is_v4 ? AF_INET : AF_INET6;
  const socklen_t bytes = is_v4 ? sizeof *v4 : sizeof *v6;
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&at), bytes};
  params.conn_handler = {&Reception::Called, this};
  if (ucs_status_t error = library_.listener_create(worker_.get(), &params, &listener_);
      error != UCS_OK) {
    listener_ = nullptr;
    return transport_->Failed(absl::StrCat("ucp_listener_create on ", host), error);
  }
  ucp_listener_attr_t listens{};
  listens.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (ucs_status_t error = library_.listener_query(listener_, &listens); error != UCS_OK) {
    return transport_->Failed("ucp_listener_query", error);
  }
  const auto* first = reinterpret_cast<const std::byte*>(&listens.sockaddr);
  address_.assign(first, first + bytes);
  return absl::OkStatus();
}

// Answered outside of the callbacks, where UCX may be called.
void Reception::Called(ucp_conn_request_h caller, void* reception) {
  static_cast<Reception*>(reception)->calls_.push_back(caller);
}

ucs_status_t Reception::Receive(void* reception, const void*, std::size_t, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* param) {
  Message message;
  std::span<const std::byte> tail;
  if (Unpack(data, bytes, &message.ask.head, &tail)) {
    message.ask.tail.assign(tail.begin(), tail.end());
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) message.from = param->reply_ep;
    static_cast<Reception*>(reception)->inbox_.push_back(std::move(message));
  }
  return UCS_OK;
}

void Reception::Accept(ucp_conn_request_h caller) {
  auto reader = std::make_unique<Reader>();
  reader->reception = this;
  MutexLock lock(&DescriptorTurn());
  reader->endpoint =
      OpenEndpoint(library_, worker_.get(), ToCaller(caller), &Reception::Failed, reader.get());
  if (reader->endpoint == nullptr) return;
  const ucp_ep_h endpoint = reader->endpoint;
  callers_[endpoint] = std::move(reader);
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
  if (busy) refused_sleeps_ = 0;
  for (ucp_conn_request_h caller : std::exchange(calls_, {})) Accept(caller);
  if (!inbox_.empty()) {
    busy = true;
    const std::vector<Message> messages = std::exchange(inbox_, {});
    for (const Message& message : messages) Take(message);
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
  if (library_.worker_arm(worker_.get()) != UCS_OK) {
    // Something came between Turn and here; or a reader in shared memory died while it wrote, and
    // UCX waits for the rest for ever.
    if (++refused_sleeps_ < kMostRefusedSleeps) return;
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
    return;
  }
  refused_sleeps_ = 0;
  if (look_after_readers_) most = std::min(most, kLookAgainForReaders);
  pollfd wait[] = {{wait_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  poll(wait, 2, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(most).count()));
  std::uint64_t count = 0;
  if ((wait[1].revents & POLLIN) != 0 && read(wake_fd_, &count, sizeof count) < 0) return;
}

void Reception::Wake() {
  const std::uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof one) < 0) return;  // it is full: awake already
}

void Reception::Take(const Message& message) {
  const Received<Ask>& ask = message.ask;
  if (ask.head.verb == Verb::kHello) return Welcome(message);
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

std::unique_ptr<Reception::Reader> Reception::SenderOf(const Message& hello) {
  if (listener_ != nullptr) {
    const auto caller = callers_.find(hello.from);
    if (caller == callers_.end() || caller->second->leaves) return nullptr;
    auto reader = std::move(caller->second);
    callers_.erase(caller);
    return reader;
  }
  if (hello.ask.tail.empty()) return nullptr;
  auto reader = std::make_unique<Reader>();
  reader->reception = this;
  MutexLock lock(&DescriptorTurn());
  reader->endpoint = OpenEndpoint(library_, worker_.get(), ToWorker(hello.ask.tail),
                                  &Reception::Failed, reader.get());
  return reader->endpoint == nullptr ? nullptr : std::move(reader);
}

void Reception::Welcome(const Message& hello) {
  const std::uint64_t id = hello.ask.head.connection;
  if (readers_.count(id) > 0) return;
  auto reader = SenderOf(hello);
  if (reader == nullptr) return;
  reader->id = id;
  reader->token = hello.ask.head.token;
  Answer answer;
  answer.outcome = directory_->Judge(hello.ask.head);
  Reply(*reader, answer, {});
  Reader& kept = *readers_.emplace(id, std::move(reader)).first->second;
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
  look_after_readers_ = true;
  if (reader.endpoint != nullptr &&
      (reader.failed || !reader.flushing || now >= reader.leave_deadline)) {
    MutexLock lock(&DescriptorTurn());
    reader.closing = CloseByForce(library_, std::exchange(reader.endpoint, nullptr));
    library_.worker_progress(worker_.get());
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
  for (auto& [endpoint, reader] : callers_) Leave(*reader);
  std::vector<SessionToken> sessions;
  for (const auto& [id, reader] : readers_) sessions.push_back(reader->token);
  for (const SessionToken& session : sessions) Dismiss(session);
}

}  // namespace engram::fabric::ucx
