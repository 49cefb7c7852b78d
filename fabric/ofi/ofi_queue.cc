#include "fabric/ofi/ofi_queue.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <utility>

#include "fabric/ofi/link.h"

namespace engram::fabric::ofi {

OfiQueue::OfiQueue(std::shared_ptr<const Provider> provider, std::shared_ptr<OfiPeers> peers,
                   std::uint32_t depth, Duration connect_timeout)
    : LinkQueue(depth, provider->max_message_bytes()),
      provider_(std::move(provider)),
      peers_(std::move(peers)),
      connect_timeout_(connect_timeout),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

OfiQueue::~OfiQueue() {
  Close();  // the links look at posts_
  if (timer_ >= 0) close(timer_);
}

std::unique_ptr<ReadLink> OfiQueue::OpenLink(PeerId peer) {
  std::shared_ptr<const OfiPeer> known = peers_->Find(peer);
  if (known == nullptr) return nullptr;
  return std::make_unique<Link>(provider_, std::move(known), connect_timeout_, this, &posts_);
}

int OfiQueue::ArmWait() {
  if (NeedNotSleep()) return -1;
  itimerspec when{};
  when.it_value.tv_nsec = kLookAgain.count();
  timerfd_settime(timer_, 0, &when, nullptr);
  return timer_;
}

}  // namespace engram::fabric::ofi
