// The part of Poller that turns received bytes into replies.
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "fabric/stream/poller.h"

namespace engram::fabric::stream {

bool Poller::ReadFrom(PeerConnection* connection) {
  if (connection->jobs >= kMaxRequestsInFlight) {
    // At its bound: stop listening to it until an answer is sent.
    Watch(connection, EPOLLOUT * connection->sending() | EPOLLRDHUP);
    std::erase(hot_, connection);
    return false;
  }
  const PeerConnection::Read read = connection->Receive();
  if (read == PeerConnection::Read::kNothing) return false;
  if (read == PeerConnection::Read::kClosed) {
    CloseConnection(connection);
    return true;
  }
  ParseFrom(connection);
  return true;
}

void Poller::ParseFrom(PeerConnection* connection) {
  if (!connection->welcome && !TakeHello(connection)) return;
  while (!connection->closed && connection->jobs < kMaxRequestsInFlight) {
    RequestView view;
    const Parsed parsed = ParseRequest(connection->unread(), &view);
    if (parsed == Parsed::kGarbage) return CloseConnection(connection);
    if (parsed == Parsed::kShort) break;
    connection->receive_deadline = Instant::max();
    Accept(connection, view);
  }
  if (!connection->closed) SetDeadlines(connection);
}

// A half-received request has a deadline; one that waits for our own bound has none.
void Poller::SetDeadlines(PeerConnection* connection) {
  const bool partial = !connection->unread().empty() && connection->jobs < kMaxRequestsInFlight;
  if (!partial) {
    connection->receive_deadline = Instant::max();
  } else if (connection->receive_deadline == Instant::max()) {
    connection->receive_deadline = clock_.Now() + options_.limits.request;
  }
}

// True when requests may be parsed.
bool Poller::TakeHello(PeerConnection* connection) {
  Hello hello;
  std::uint16_t version = 0;
  const Parsed parsed = ParseHello(connection->unread(), &hello, &version);
  if (parsed == Parsed::kShort) return false;
  if (parsed == Parsed::kGarbage) {
    CloseConnection(connection);
    return false;
  }
  connection->Consume(kHelloBytes);
  HelloResult result = HelloResult::kWelcome;
  if (version != kVersion) {
    result = HelloResult::kOtherVersion;
  } else if ((connection->session = grants_->Find(hello.token)) == nullptr) {
    result = HelloResult::kTokenRefused;
  } else if (hello.incarnation.value() != incarnation_.load()) {
    result = HelloResult::kOtherIncarnation;
  }
  Welcome(connection, result);
  if (connection->closed) return false;
  connection->welcome = true;
  connection->lane = hello.lane;
  connection->receive_deadline = Instant::max();
  Poller* owner = route_(hello.token);
  if (owner == this) return true;
  auto held = std::find_if(connections_.begin(), connections_.end(),
                           [&](const auto& held) { return held.get() == connection; });
  std::unique_ptr<PeerConnection> moved = std::move(*held);
  connections_.erase(held);
  std::erase(hot_, connection);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
  connection->interest = 0;
  owner->Adopt(std::move(moved));
  return false;
}

void Poller::Welcome(PeerConnection* connection, HelloResult result) {
  std::byte bytes[kHelloBytes];
  const bool token_good =
      result != HelloResult::kTokenRefused && result != HelloResult::kOtherVersion;
  WriteHelloReply({result, token_good ? Incarnation(incarnation_.load()) : Incarnation()}, bytes);
  const ssize_t sent = send(connection->fd(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  // The first bytes of a connection always fit its send buffer.
  if (sent != sizeof bytes || result != HelloResult::kWelcome) CloseConnection(connection);
}

void Poller::Accept(PeerConnection* connection, const RequestView& view) {
  Job* job = TakeJob(connection);
  job->gather.Begin(view);
  connection->Consume(view.bytes);
  if (!MayGather(job)) return;
  if (connection->lane == Lane::kUrgent) {
    ServeUrgent(job);
  } else {
    connection->waiting.push_back(job);
    EnqueueBulk(connection);
  }
}

bool Poller::MayGather(Job* job) {
  Grants::Session& session = *job->connection->session;
  if (session.meter == nullptr || !throttle_->active()) return true;
  std::uint64_t turn;
  static_assert(sizeof turn <= sizeof session.token.bytes);
  memcpy(&turn, session.token.bytes.data(), sizeof turn);
  if (throttle_->Ask(clock_.Now(), session.meter.get(), turn, job->gather.rows(), &job->resume)) {
    return true;
  }
  ++asynchronous_;
  return false;
}

void Poller::ServeUrgent(Job* job) {
  while (!job->gather.Done()) {
    if (!job->gather.Advance(grants_, *job->connection->session, kMaxRows, job->resume)) {
      ++asynchronous_;
      return;
    }
  }
  FinishJob(job);
}

void Poller::EnqueueBulk(PeerConnection* connection) {
  if (connection->queued_for_bulk || connection->waiting.empty()) return;
  connection->queued_for_bulk = true;
  bulk_.push_back(connection);
}

void Poller::ServeBulkSlice() {
  PeerConnection* connection = bulk_.front();
  bulk_.erase(bulk_.begin());
  connection->queued_for_bulk = false;
  Job* job = connection->waiting.front();
  if (!job->gather.Advance(grants_, *connection->session, kBulkSliceRows, job->resume)) {
    connection->waiting.erase(connection->waiting.begin());
    ++asynchronous_;
  } else if (job->gather.Done()) {
    connection->waiting.erase(connection->waiting.begin());
    FinishJob(job);
  }
  if (connection->closed) return;
  EnqueueBulk(connection);
  Refill(connection);
}

void Poller::Resumed(Job* job) {
  --asynchronous_;
  PeerConnection* connection = job->connection;
  if (connection->closed) {
    job->gather.Drop(grants_);
    ReturnJob(job);
    any_closed_ = true;
  } else if (connection->lane == Lane::kUrgent) {
    ServeUrgent(job);
  } else if (job->gather.Done()) {
    FinishJob(job);
  } else {
    connection->waiting.insert(connection->waiting.begin(), job);
    EnqueueBulk(connection);
  }
  Refill(connection);
}

void Poller::FinishJob(Job* job) {
  PeerConnection* connection = job->connection;
  job->gather.Finish(grants_);
  if (TenantMeter* meter = connection->session->meter.get()) {
    meter->rows.fetch_add(job->gather.rows(), std::memory_order_relaxed);
  }
  const auto lane = static_cast<std::size_t>(connection->lane);
  rows_[lane].store(rows_[lane].load(std::memory_order_relaxed) + job->gather.rows(),
                    std::memory_order_relaxed);
  messages_[lane].store(messages_[lane].load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
  const bool blocked = connection->sending();
  connection->Queue(job);
  if (!blocked) FlushTo(connection);
}

void Poller::FlushTo(PeerConnection* connection) {
  sent_.clear();
  if (!connection->Flush(&sent_)) return CloseConnection(connection);
  for (Job* job : sent_) ReturnJob(job);
  if (!connection->sending()) {
    connection->send_deadline = Instant::max();
  } else if (!sent_.empty() || connection->send_deadline == Instant::max()) {
    connection->send_deadline = clock_.Now() + options_.limits.reply;
  }
  if (connection->jobs < kMaxRequestsInFlight) {
    Watch(connection, EPOLLIN | EPOLLOUT * connection->sending());
  } else {
    Watch(connection, EPOLLOUT * connection->sending() | EPOLLRDHUP);
  }
}

// Goes on with requests that were received while the connection was at its bound.
void Poller::Refill(PeerConnection* connection) {
  if (connection->closed || connection->unread().empty()) return;
  if (connection->jobs < kMaxRequestsInFlight) ParseFrom(connection);
}

}  // namespace engram::fabric::stream
