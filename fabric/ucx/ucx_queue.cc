#include "fabric/ucx/ucx_queue.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fabric/ucx/link.h"

namespace engram::fabric::ucx {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(20);

bool Watch(int poller, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReadQueue>> UcxQueue::Open(
    std::shared_ptr<const Transport> transport, std::shared_ptr<UcxPeers> peers,
    std::uint32_t depth, Duration connect_timeout) {
  std::unique_ptr<UcxQueue> queue(
      new UcxQueue(std::move(transport), std::move(peers), depth, connect_timeout));
  queue->poller_ = epoll_create1(EPOLL_CLOEXEC);
  queue->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (queue->poller_ < 0 || queue->timer_ < 0 || !Watch(queue->poller_, queue->timer_)) {
    return absl::ErrnoToStatus(errno, "a queue of ucx needs an epoll and a timer descriptor");
  }
  return queue;
}

UcxQueue::~UcxQueue() {
  if (timer_ >= 0) close(timer_);
  if (poller_ >= 0) close(poller_);
}

std::unique_ptr<ReadLink> UcxQueue::OpenLink(PeerId peer) {
  std::shared_ptr<const UcxPeer> known = peers_->Find(peer);
  if (known == nullptr) return nullptr;
  return MakeLink({transport_, std::move(known), connect_timeout_, this});
}

int UcxQueue::ArmWait() {
  if (NeedNotSleep()) return -1;
  for (ReadLink* one : active_links()) {
    auto* const link = static_cast<Link*>(one);
    Connection* const connection = link->connection();
    if (connection == nullptr) return -1;
    // The kernel forgets a descriptor when UCX closes it.
    if (link->watched_generation != connection->generation()) {
      if (!Watch(poller_, connection->wait_fd())) return -1;
      link->watched_generation = connection->generation();
    }
    if (!connection->Arm()) return -1;
  }
  itimerspec when{};
  when.it_value.tv_nsec = kLookAgain.count();
  timerfd_settime(timer_, 0, &when, nullptr);
  return poller_;
}

}  // namespace engram::fabric::ucx
