#include "fabric/stream/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace engram::fabric::stream {
namespace {

constexpr int kEventsPerLook = 64;

}  // namespace

Poller::Poller(const PollerOptions& options, Grants* grants, Throttle* throttle,
               Descriptor listener, std::function<Poller*(const SessionToken&)> route)
    : options_(options),
      grants_(grants),
      throttle_(throttle),
      route_(std::move(route)),
      listener_(std::move(listener)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &wake_;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  if (listener_.get() >= 0) {
    event.data.ptr = &listener_;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event);
  }
}

Poller::~Poller() { Stop(); }

void Poller::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Poller::Wake() {
  inbox_filled_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0) {
    // EAGAIN: the counter is full of wake-ups already.
  }
}

void Poller::Adopt(std::unique_ptr<PeerConnection> connection) {
  {
    MutexLock lock(&inbox_mutex_);
    inbox_connections_.push_back(std::move(connection));
  }
  Wake();
}

void Poller::Stop() {
  stop_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) thread_.join();
}

LaneCounters Poller::counters(Lane lane) const {
  const auto i = static_cast<std::size_t>(lane);
  return {rows_[i].load(std::memory_order_relaxed), messages_[i].load(std::memory_order_relaxed)};
}

void Poller::Run() {
  Instant last_work = clock_.Now();
  while (!stop_.load(std::memory_order_acquire)) {
    bool worked = false;
    for (std::size_t i = 0; i < hot_.size(); ++i) worked |= ReadFrom(hot_[i]);
    if (throttle_->active()) throttle_->Release(clock_.Now());
    const bool bulk = !bulk_.empty();
    if (bulk) ServeBulkSlice();
    bool blocked = false;
    if (bulk || hot_.empty() || ++turns_ % kTurnsPerLook == 0) {
      const bool spinning =
          options_.wait.spin == Duration::max() ||
          (options_.wait.spin > Duration::zero() && clock_.Now() - last_work < options_.wait.spin);
      blocked = !worked && !bulk && !spinning;
      if (blocked) hot_.clear();
      worked |= LookAtSockets(blocked ? BlockTimeout() : 0);
    } else if (!worked && options_.wait.spin != Duration::max() &&
               clock_.Now() - last_work >= options_.wait.spin) {
      hot_.clear();
    }
    if (worked || bulk) last_work = clock_.Now();
    if (any_closed_) SweepClosed();
  }
  listener_.Reset();
  for (auto& connection : connections_) CloseConnection(connection.get());
  throttle_->ReleaseAll();
  // A source that still works writes into its job's buffer: wait for it.
  while (asynchronous_ > 0) LookAtSockets(-1);
  SweepClosed();
  MutexLock lock(&inbox_mutex_);
  inbox_connections_.clear();
}

int Poller::BlockTimeout() {
  Instant earliest = throttle_->active() ? throttle_->Next() : Instant::max();
  for (const auto& connection : connections_) {
    earliest = std::min({earliest, connection->receive_deadline, connection->send_deadline});
  }
  if (earliest == Instant::max()) return -1;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(earliest - clock_.Now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left + 1, 1, 1000));
}

bool Poller::LookAtSockets(int timeout_ms) {
  epoll_event events[kEventsPerLook];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerLook, timeout_ms);
  bool worked = false;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == &wake_) {
      std::uint64_t ignored;
      if (read(wake_.get(), &ignored, sizeof ignored) < 0) continue;
    } else if (events[i].data.ptr == &listener_) {
      AcceptAll();
    } else {
      auto* connection = static_cast<PeerConnection*>(events[i].data.ptr);
      if (connection->closed) continue;
      worked |= Serve(connection, events[i].events);
    }
  }
  if (inbox_filled_.exchange(false, std::memory_order_acq_rel)) TakeInbox();
  DropStalled();
  return worked;
}

bool Poller::Serve(PeerConnection* connection, std::uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0) {
    CloseConnection(connection);
    return true;
  }
  if ((events & EPOLLOUT) != 0) {
    FlushTo(connection);
    Refill(connection);
  }
  if (connection->closed || (events & EPOLLIN) == 0) return false;
  MakeHot(connection);
  // May hand the connection to another poller: nothing touches it here afterwards.
  return ReadFrom(connection);
}

void Poller::AcceptAll() {
  while (true) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) return;
    // Beyond the bound a connection is closed at once: the client sees it as unreachable.
    if (connections_.size() >= options_.max_connections) continue;
    connections_.push_back(
        std::make_unique<PeerConnection>(std::move(fd), clock_.Now() + options_.limits.hello));
    Watch(connections_.back().get(), EPOLLIN);
  }
}

void Poller::Watch(PeerConnection* connection, std::uint32_t interest) {
  if (connection->interest == interest) return;
  epoll_event event{};
  event.events = interest;
  event.data.ptr = connection;
  const bool known = connection->interest != 0;
  // Interest 0 keeps errors reported; a connection always has at least one event set.
  epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, connection->fd(), &event);
  connection->interest = interest;
}

void Poller::TakeInbox() {
  std::vector<std::unique_ptr<PeerConnection>> connections;
  std::vector<Job*> jobs;
  {
    MutexLock lock(&inbox_mutex_);
    connections.swap(inbox_connections_);
    jobs.swap(inbox_jobs_);
  }
  for (auto& connection : connections) {
    connections_.push_back(std::move(connection));
    Watch(connections_.back().get(), EPOLLIN);
    ParseFrom(connections_.back().get());
  }
  for (Job* job : jobs) Resumed(job);
  for (auto& connection : connections_) {
    if (connection->session != nullptr && !connection->closed &&
        grants_->Dismissed(*connection->session)) {
      CloseConnection(connection.get());
    }
  }
}

void Poller::MakeHot(PeerConnection* connection) {
  if (std::find(hot_.begin(), hot_.end(), connection) != hot_.end()) return;
  if (hot_.size() == kMaxHot) hot_.erase(hot_.begin());
  hot_.push_back(connection);
}

void Poller::CloseConnection(PeerConnection* connection) {
  if (connection->closed) return;
  connection->closed = true;
  any_closed_ = true;
  connection->receive_deadline = connection->send_deadline = Instant::max();
  std::erase(hot_, connection);
  std::erase(bulk_, connection);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
  shutdown(connection->fd(), SHUT_RDWR);
  while (connection->sending()) ReturnJob(connection->PopReply());
  for (Job* job : connection->waiting) {
    job->gather.Drop(grants_);
    ReturnJob(job);
  }
  connection->waiting.clear();
}

void Poller::SweepClosed() {
  any_closed_ = false;
  for (auto it = connections_.begin(); it != connections_.end();) {
    if ((*it)->closed && (*it)->jobs == 0) {
      it = connections_.erase(it);
    } else {
      any_closed_ |= (*it)->closed;
      ++it;
    }
  }
}

void Poller::DropStalled() {
  const Instant now = clock_.Now();
  // Deadlines are seconds; looking at all of them more often than this buys nothing.
  if (now - last_stall_check_ < std::chrono::milliseconds(20)) return;
  last_stall_check_ = now;
  for (auto& connection : connections_) {
    if (now >= connection->receive_deadline || now >= connection->send_deadline) {
      CloseConnection(connection.get());
    }
  }
}

Job* Poller::TakeJob(PeerConnection* connection) {
  if (free_jobs_.empty()) {
    all_jobs_.push_back(std::make_unique<Job>());
    Job* job = all_jobs_.back().get();
    job->resume = [this, job] {
      // Wakes under the lock: the poller may go away as soon as it has seen the last job.
      MutexLock lock(&inbox_mutex_);
      inbox_jobs_.push_back(job);
      Wake();
    };
    free_jobs_.push_back(job);
  }
  Job* job = free_jobs_.back();
  free_jobs_.pop_back();
  job->connection = connection;
  ++connection->jobs;
  return job;
}

void Poller::ReturnJob(Job* job) {
  --job->connection->jobs;
  job->connection = nullptr;
  free_jobs_.push_back(job);
}

}  // namespace engram::fabric::stream
