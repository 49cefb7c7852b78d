#include "fabric/link_queue.h"

#include <algorithm>
#include <utility>

namespace engram::fabric {

void ReadLink::Posted(std::size_t count) {
  waiting_head_ += count;
  if (waits()) return;
  waiting_.clear();
  waiting_head_ = 0;
}

void ReadLink::EndWaiting(ReadStatus status) {
  for (const ReadOp& op : waiting()) sink_->Complete(op.cookie, status);
  Posted(waiting().size());
}

LinkQueue::LinkQueue(std::uint32_t depth, std::uint64_t max_op_bytes)
    : depth_(std::clamp<std::uint32_t>(depth, 1, kMaxLinkQueueDepth)),
      max_op_bytes_(max_op_bytes),
      ready_(depth_) {}

LinkQueue::~LinkQueue() { LinkQueue::Close(); }

ReadLink* LinkQueue::LinkTo(PeerId peer) {
  const std::size_t index = peer.value();
  if (index < links_.size() && links_[index] != nullptr) return links_[index].get();
  std::unique_ptr<ReadLink> link = OpenLink(peer);
  if (link == nullptr) return nullptr;
  if (index >= links_.size()) links_.resize(index + 1);
  links_[index] = std::move(link);
  return links_[index].get();
}

void LinkQueue::Add(const ReadOp& op) {
  if (op.offset > op.region.length || op.region.length - op.offset < op.length ||
      op.length > max_op_bytes_) {
    return Complete(op.cookie, ReadStatus::kRefused);
  }
  if (op.length == 0) return Complete(op.cookie, ReadStatus::kOk);
  ReadLink* link = LinkTo(op.region.peer);
  if (link == nullptr) return Complete(op.cookie, ReadStatus::kUnreachable);
  link->Add(op);
  if (!link->in_active_list_) {
    link->in_active_list_ = true;
    active_.push_back(link);
  }
}

std::size_t LinkQueue::Submit(std::span<const ReadOp> ops) {
  if (closed_) return 0;
  const std::size_t accepted = std::min<std::size_t>(ops.size(), depth_ - outstanding_);
  outstanding_ += static_cast<std::uint32_t>(accepted);
  for (const ReadOp& op : ops.first(accepted)) Add(op);
  if (accepted > 0) {
    for (ReadLink* link : active_) link->Drive();
  }
  return accepted;
}

void LinkQueue::Complete(std::uint64_t cookie, ReadStatus status) {
  if (closed_) return;
  std::uint32_t at = ready_head_ + ready_count_;
  if (at >= depth_) at -= depth_;
  ready_[at] = {cookie, status};
  ++ready_count_;
}

std::size_t LinkQueue::Poll(std::span<ReadCompletion> out) {
  if (closed_ || out.empty()) return 0;
  if (ready_count_ < out.size()) {
    for (ReadLink* link : active_) link->Drive();
    std::erase_if(active_, [](ReadLink* link) {
      if (link->active()) return false;
      link->in_active_list_ = false;
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

void LinkQueue::Abandon(PeerId peer) {
  if (closed_ || peer.value() >= links_.size() || links_[peer.value()] == nullptr) return;
  ReadLink& link = *links_[peer.value()];
  // An idle connection has nothing to flush, and is worth keeping.
  if (link.active()) link.Abandon();
}

void LinkQueue::Close() {
  if (std::exchange(closed_, true)) return;
  for (auto& link : links_) {
    if (link != nullptr) link->End(ReadStatus::kFlushed);
  }
  active_.clear();
  links_.clear();
}

}  // namespace engram::fabric
