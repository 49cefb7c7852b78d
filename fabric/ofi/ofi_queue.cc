#include "fabric/ofi/ofi_queue.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace engram::fabric::ofi {

OfiQueue::OfiQueue(std::shared_ptr<const Provider> provider, std::shared_ptr<OfiPeers> peers,
                   std::uint32_t depth, Duration connect_timeout)
    : provider_(std::move(provider)),
      peers_(std::move(peers)),
      depth_(depth),
      max_op_bytes_(provider_->max_message_bytes()),
      connect_timeout_(connect_timeout),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      ready_(depth) {}

OfiQueue::~OfiQueue() {
  Close();
  if (timer_ >= 0) close(timer_);
}

Link* OfiQueue::LinkTo(PeerId peer) {
  const std::size_t index = peer.value();
  std::shared_ptr<const OfiPeer> known;
  if (index < links_.size() && links_[index] != nullptr) return links_[index].get();
  known = peers_->Find(peer);
  if (known == nullptr) return nullptr;
  if (index >= links_.size()) links_.resize(index + 1);
  links_[index] = std::make_unique<Link>(provider_, std::move(known), connect_timeout_, this);
  return links_[index].get();
}

void OfiQueue::Add(const ReadOp& op) {
  if (op.offset > op.region.length || op.region.length - op.offset < op.length ||
      op.length > max_op_bytes_) {
    return Complete(op.cookie, ReadStatus::kRefused);
  }
  if (op.length == 0) return Complete(op.cookie, ReadStatus::kOk);
  Link* link = LinkTo(op.region.peer);
  if (link == nullptr) return Complete(op.cookie, ReadStatus::kUnreachable);
  link->Add(op);
  if (!link->in_active_list) {
    link->in_active_list = true;
    active_.push_back(link);
  }
}

std::size_t OfiQueue::Submit(std::span<const ReadOp> ops) {
  if (closed_) return 0;
  const std::size_t accepted = std::min<std::size_t>(ops.size(), depth_ - outstanding_);
  outstanding_ += static_cast<std::uint32_t>(accepted);
  for (const ReadOp& op : ops.first(accepted)) Add(op);
  if (accepted > 0) {
    for (Link* link : active_) link->Drive();
  }
  return accepted;
}

void OfiQueue::Complete(std::uint64_t cookie, ReadStatus status) {
  if (closed_) return;
  std::uint32_t at = ready_head_ + ready_count_;
  if (at >= depth_) at -= depth_;
  ready_[at] = {cookie, status};
  ++ready_count_;
}

std::size_t OfiQueue::Poll(std::span<ReadCompletion> out) {
  if (closed_ || out.empty()) return 0;
  if (ready_count_ < out.size()) {
    for (Link* link : active_) link->Drive();
    std::erase_if(active_, [](Link* link) {
      if (link->active()) return false;
      link->in_active_list = false;
      return true;
    });
  }
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), ready_count_));
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i] = ready_[ready_head_];
    if (++ready_head_ == depth_) ready_head_ = 0;
  }
  ready_count_ -= count;
  outstanding_ -= count;
  return count;
}

int OfiQueue::ArmWait() {
  if (closed_ || outstanding_ == 0 || ready_count_ > 0) return -1;
  itimerspec when{};
  when.it_value.tv_nsec = kLookAgain.count();
  timerfd_settime(timer_, 0, &when, nullptr);
  return timer_;
}

void OfiQueue::Abandon(PeerId peer) {
  if (closed_ || peer.value() >= links_.size() || links_[peer.value()] == nullptr) return;
  Link& link = *links_[peer.value()];
  // An idle endpoint has nothing to flush, and its connection is worth keeping.
  if (link.active()) link.Abandon();
}

void OfiQueue::Close() {
  if (std::exchange(closed_, true)) return;
  for (auto& link : links_) {
    if (link != nullptr) link->End(ReadStatus::kFlushed);
  }
  active_.clear();
  links_.clear();
}

}  // namespace engram::fabric::ofi
