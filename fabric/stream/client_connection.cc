#include "fabric/stream/client_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "fabric/copy.h"

namespace engram::fabric::stream {
namespace {

constexpr std::size_t kScratchBytes = 64 << 10;

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN ||
         error == EINPROGRESS;
}

}  // namespace

ClientConnection::ClientConnection(std::shared_ptr<const Peer> peer, Lane lane, int epoll_fd,
                                   Duration connect_timeout, MessageSink* sink)
    : peer_(std::move(peer)),
      lane_(lane),
      epoll_fd_(epoll_fd),
      connect_timeout_(connect_timeout),
      sink_(sink) {
  in_flight_.reserve(kMaxRequestsInFlight);
}

ClientConnection::~ClientConnection() { CloseSocket(); }

Message* ClientConnection::OpenFor(const Shape& shape) {
  return !queued_.empty() && queued_.back()->Takes(shape) ? queued_.back() : nullptr;
}

void ClientConnection::Queue(Message* message) { queued_.push_back(message); }

void ClientConnection::Connect() {
  const int error = StartConnect(peer_->address, &fd_);
  if (error != 0 && error != EINPROGRESS) return Fail(ReadStatus::kUnreachable);
  state_ = State::kConnecting;
  connect_deadline_ = clock_.Now() + connect_timeout_;
  greeting_got_ = 0;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT;
  event.data.ptr = this;
  watching_writable_ = true;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd_.get(), &event);
  Greet();
}

// A send on a socket that still connects fails with EAGAIN, on one that failed with the reason.
void ClientConnection::Greet() {
  std::byte hello[kHelloBytes];
  WriteHello({lane_, peer_->incarnation, peer_->token}, hello);
  const ssize_t sent = send(fd_.get(), hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(sizeof hello)) {
    state_ = State::kGreeting;
    Watch(false);
  } else if (sent >= 0 || !WouldBlock(errno) || clock_.Now() >= connect_deadline_) {
    Fail(ReadStatus::kUnreachable);
  }
}

void ClientConnection::ReceiveGreeting() {
  const ssize_t got = recv(fd_.get(), greeting_.data() + greeting_got_,
                           greeting_.size() - greeting_got_, MSG_DONTWAIT);
  if (got < 0 && WouldBlock(errno)) {
    if (clock_.Now() >= connect_deadline_) Fail(ReadStatus::kUnreachable);
    return;
  }
  if (got <= 0) return Fail(ReadStatus::kUnreachable);
  greeting_got_ += static_cast<std::size_t>(got);
  HelloReply reply;
  const Parsed parsed = ParseHelloReply({greeting_.data(), greeting_got_}, &reply);
  if (parsed == Parsed::kShort) return;
  // Another incarnation or a refused token: this peer will not come back as the one it was.
  if (parsed == Parsed::kGarbage || reply.result != HelloResult::kWelcome) {
    return Fail(ReadStatus::kUnreachable);
  }
  state_ = State::kOpen;
  Send();
}

void ClientConnection::Watch(bool writable) {
  if (writable == watching_writable_) return;
  epoll_event event{};
  event.events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = this;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd_.get(), &event);
  watching_writable_ = writable;
}

void ClientConnection::CloseSocket() {
  // Closing takes the descriptor out of the epoll set.
  fd_.Reset();
  state_ = State::kClosed;
}

void ClientConnection::Send() {
  if (state_ == State::kClosed && !queued_.empty()) Connect();
  if (state_ != State::kOpen) return;
  while (true) {
    if (sending_.empty()) {
      if (queued_.empty() || in_flight_.size() == kMaxRequestsInFlight) break;
      in_flight_.push_back(queued_.front());
      queued_.pop_front();
      sending_ = in_flight_.back()->Encode(next_id_++);
    }
    const ssize_t sent =
        send(fd_.get(), sending_.data(), sending_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (WouldBlock(errno)) break;
      return Fail(ReadStatus::kUnreachable);
    }
    sending_ = sending_.subspan(static_cast<std::size_t>(sent));
    if (!sending_.empty()) break;
  }
  Watch(!sending_.empty());
}

void ClientConnection::Drive() {
  switch (state_) {
    case State::kClosed: return;
    case State::kConnecting: return Greet();
    case State::kGreeting: return ReceiveGreeting();
    case State::kOpen: break;
  }
  while (ReceiveOnce()) {
  }
  if (state_ == State::kOpen && (!sending_.empty() || !queued_.empty())) Send();
}

// Puts the places of the next payload bytes into slots_[*slots...] and returns how many bytes.
std::size_t ClientConnection::PlanPayload(const Message* message, std::size_t* slots) {
  const std::uint64_t left =
      (header_got_ == kReplyHeaderBytes ? header_.payload_bytes : message->payload_bytes()) -
      payload_got_;
  if (landing_ == Landing::kDiscard) {
    if (staging_.size() < kScratchBytes) staging_.resize(kScratchBytes);
    const std::size_t bytes = std::min<std::uint64_t>(left, staging_.size());
    slots_[(*slots)++] = {staging_.data(), bytes};
    return bytes;
  }
  if (landing_ == Landing::kStaged) {
    if (staging_.size() < payload_got_ + left) staging_.resize(payload_got_ + left);
    slots_[(*slots)++] = {staging_.data() + payload_got_, left};
    return left;
  }
  const std::span<const iovec> runs = message->runs();
  for (std::size_t i = run_; i < runs.size(); ++i) {
    const std::size_t skip = i == run_ ? run_offset_ : 0;
    slots_[(*slots)++] = {static_cast<std::byte*>(runs[i].iov_base) + skip, runs[i].iov_len - skip};
  }
  return left;
}

bool ClientConnection::ReceiveOnce() {
  if (in_flight_.empty()) {
    // Nothing is expected: only the end of the connection can be seen here.
    std::byte byte;
    const ssize_t got = recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (got >= 0 || !WouldBlock(errno)) Fail(ReadStatus::kUnreachable);
    return false;
  }
  std::size_t slots = 0;
  const std::size_t header_left = kReplyHeaderBytes - header_got_;
  const Message* guess = landing_message_;
  if (guess == nullptr) {
    guess = in_flight_.front();
    slots_[slots++] = {header_bytes_.data() + header_got_, header_left};
    landing_ = guess->abandoned        ? Landing::kDiscard
               : guess->runs().empty() ? Landing::kStaged
                                       : Landing::kDirect;
    payload_got_ = run_ = run_offset_ = 0;
  }
  const std::size_t wanted = header_left + PlanPayload(guess, &slots);
  const ssize_t got = readv(fd_.get(), slots_.data(), static_cast<int>(slots));
  if (got <= 0) {
    if (got == 0 || !WouldBlock(errno)) Fail(ReadStatus::kUnreachable);
    return false;
  }
  const auto bytes = static_cast<std::size_t>(got);
  const bool full = bytes == wanted;
  if (landing_message_ != nullptr) {
    Advance(bytes);
    if (payload_got_ == header_.payload_bytes) EndReply();
    return full && !in_flight_.empty() && state_ == State::kOpen;
  }
  header_got_ += std::min(bytes, header_left);
  if (header_got_ < kReplyHeaderBytes) return false;
  const std::size_t payload = bytes - std::min(bytes, header_left);
  const Landing guessed = landing_;
  if (!BeginReply()) return false;
  if (landing_message_ == guess && landing_ == guessed && payload <= header_.payload_bytes) {
    Advance(payload);
    if (payload_got_ == header_.payload_bytes) EndReply();
    return full && !in_flight_.empty() && state_ == State::kOpen;
  }
  stray_.clear();
  std::size_t left = payload;
  for (std::size_t i = 1; i < slots && left > 0; ++i) {
    const std::size_t part = std::min(left, slots_[i].iov_len);
    const auto* from = static_cast<const std::byte*>(slots_[i].iov_base);
    stray_.insert(stray_.end(), from, from + part);
    left -= part;
  }
  return Feed(stray_) && full && !in_flight_.empty();
}

// Reads the header and decides where the payload goes. False: the connection failed.
bool ClientConnection::BeginReply() {
  const bool sound = ParseReplyHeader(header_bytes_, &header_) == Parsed::kOk;
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const Message* m) { return m->id() == header_.id; });
  std::uint64_t expected = 0;
  if (found != in_flight_.end() && header_.form != ReplyForm::kAllRefused) {
    expected = (*found)->payload_bytes();
    if (header_.form == ReplyForm::kMixed) expected += StatusBytes((*found)->rows());
  }
  if (!sound || found == in_flight_.end() || header_.rows != (*found)->rows() ||
      header_.payload_bytes != expected) {
    Fail(ReadStatus::kUnreachable);
    return false;
  }
  landing_message_ = *found;
  payload_got_ = run_ = run_offset_ = 0;
  if (landing_message_->abandoned) {
    landing_ = Landing::kDiscard;
  } else if (header_.form == ReplyForm::kAllOk && !landing_message_->runs().empty()) {
    landing_ = Landing::kDirect;
  } else {
    landing_ = Landing::kStaged;
  }
  return true;
}

// Takes bytes that were received elsewhere: payloads, and headers between them. False: the
// connection failed.
bool ClientConnection::Feed(std::span<const std::byte> bytes) {
  while (true) {
    if (landing_message_ != nullptr) {
      const std::size_t part =
          std::min<std::uint64_t>(bytes.size(), header_.payload_bytes - payload_got_);
      Land(part, bytes.data());
      bytes = bytes.subspan(part);
      if (payload_got_ < header_.payload_bytes) return true;
      EndReply();
      continue;
    }
    if (bytes.empty()) return true;
    const std::size_t part = std::min(bytes.size(), kReplyHeaderBytes - header_got_);
    std::copy_n(bytes.data(), part, header_bytes_.data() + header_got_);
    header_got_ += part;
    bytes = bytes.subspan(part);
    if (header_got_ < kReplyHeaderBytes) return true;
    if (!BeginReply()) return false;
  }
}

void ClientConnection::Land(std::size_t bytes, const std::byte* from) {
  while (bytes > 0) {
    std::size_t slots = 0;
    PlanPayload(landing_message_, &slots);
    const std::size_t part = std::min(bytes, slots_[0].iov_len);
    CopyPiece(static_cast<std::byte*>(slots_[0].iov_base), from, part);
    Advance(part);
    from += part;
    bytes -= part;
  }
}

void ClientConnection::Advance(std::size_t bytes) {
  payload_got_ += bytes;
  if (landing_ != Landing::kDirect) return;
  const std::span<const iovec> runs = landing_message_->runs();
  run_offset_ += bytes;
  while (run_ < runs.size() && run_offset_ >= runs[run_].iov_len) {
    run_offset_ -= runs[run_].iov_len;
    ++run_;
  }
}

void ClientConnection::EndReply() {
  Message* message = landing_message_;
  header_got_ = 0;
  landing_message_ = nullptr;
  std::erase(in_flight_, message);
  if (message->abandoned) return sink_->Done(message, ReadStatus::kFlushed, {});
  if (header_.form == ReplyForm::kAllRefused) {
    return sink_->Done(message, ReadStatus::kRefused, {});
  }
  if (header_.form == ReplyForm::kMixed) {
    const auto* statuses = reinterpret_cast<const ReadStatus*>(staging_.data());
    message->Scatter(staging_.data() + StatusBytes(message->rows()), {statuses, message->rows()});
    return sink_->Done(message, ReadStatus::kOk, {statuses, message->rows()});
  }
  if (landing_ == Landing::kStaged) message->Scatter(staging_.data(), {});
  sink_->Done(message, ReadStatus::kOk, {});
}

void ClientConnection::DropQueued(ReadStatus status) {
  while (!queued_.empty()) {
    Message* const message = queued_.front();
    queued_.pop_front();
    sink_->Done(message, status, {});
  }
}

void ClientConnection::Abandon() {
  DropQueued(ReadStatus::kFlushed);
  for (Message* message : in_flight_) {
    if (message->abandoned) continue;
    sink_->Flushed(message);
    message->abandoned = true;
  }
  if (landing_message_ != nullptr) landing_ = Landing::kDiscard;
}

void ClientConnection::Fail(ReadStatus status) {
  CloseSocket();
  sending_ = {};
  header_got_ = 0;
  landing_message_ = nullptr;
  for (Message* message : in_flight_) sink_->Done(message, status, {});
  in_flight_.clear();
  DropQueued(status);
}

}  // namespace engram::fabric::stream
