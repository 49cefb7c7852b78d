#include "fabric/stream/stream_queue.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace engram::fabric::stream {
namespace {

constexpr int kEventsPerPoll = 64;

Shape ShapeOf(const ReadOp& op) {
  Shape shape;
  shape.segments = op.segments;
  for (std::uint32_t s = 0; s < op.segments; ++s) shape.bytes[s] = op.local[s].bytes;
  return shape;
}

bool InsideRegion(const ReadOp& op) {
  return op.offset <= op.region.length && op.region.length - op.offset >= op.length &&
         op.length <= kMaxOpBytes && op.region.address + op.offset <= kMaxOffset;
}

}  // namespace

StreamQueue::StreamQueue(std::shared_ptr<PeerTable> peers, std::uint32_t depth,
                         Duration connect_timeout)
    : peers_(std::move(peers)),
      depth_(depth),
      connect_timeout_(connect_timeout),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      ready_(depth) {}

StreamQueue::~StreamQueue() { Close(); }

ClientConnection* StreamQueue::ConnectionTo(PeerId peer, Lane lane) {
  const std::size_t index = peer.value();
  const auto l = static_cast<std::size_t>(lane);
  if (index < connections_.size() && connections_[index].lane[l] != nullptr) {
    return connections_[index].lane[l].get();
  }
  std::shared_ptr<const Peer> known = peers_->Find(peer);
  if (known == nullptr) return nullptr;
  if (index >= connections_.size()) connections_.resize(index + 1);
  connections_[index].lane[l] = std::make_unique<ClientConnection>(
      std::move(known), lane, epoll_.get(), connect_timeout_, static_cast<MessageSink*>(this));
  return connections_[index].lane[l].get();
}

void StreamQueue::ForgetRemovedPeers() {
  const std::uint64_t removals = peers_->removals();
  if (removals == seen_removals_) return;
  seen_removals_ = removals;
  for (Lanes& lanes : connections_) {
    for (auto& connection : lanes.lane) {
      if (connection == nullptr || !connection->peer().removed.load(std::memory_order_acquire)) {
        continue;
      }
      connection->Fail(ReadStatus::kUnreachable);
      std::erase(active_, connection.get());
      connection.reset();
    }
  }
}

Message* StreamQueue::TakeMessage() {
  if (free_messages_.empty()) {
    // One message a read is the worst case, when every read has another shape than the one before.
    if (all_messages_.size() >= depth_) return nullptr;
    all_messages_.push_back(std::make_unique<Message>());
    free_messages_.push_back(all_messages_.back().get());
  }
  Message* message = free_messages_.back();
  free_messages_.pop_back();
  return message;
}

void StreamQueue::MakeActive(ClientConnection* connection) {
  if (connection->in_active_list) return;
  connection->in_active_list = true;
  active_.push_back(connection);
}

// Opens a message for `op`, whose connection is known, or finds the one that is open.
Message* StreamQueue::MessageFor(ClientConnection* connection, const Shape& shape) {
  Message* message = connection->OpenFor(shape);
  if (message != nullptr) return message;
  message = TakeMessage();
  if (message == nullptr) return nullptr;
  message->Begin(shape);
  connection->Queue(message);
  MakeActive(connection);
  if (std::find(touched_.begin(), touched_.end(), connection) == touched_.end()) {
    touched_.push_back(connection);
  }
  return message;
}

// Takes ops[0] and those after it that go into the same message; returns how many, 0 for back
// pressure.
std::size_t StreamQueue::AddSome(std::span<const ReadOp> ops) {
  const ReadOp& op = ops[0];
  if (!InsideRegion(op) || op.length == 0) {
    Complete(op.cookie, InsideRegion(op) ? ReadStatus::kOk : ReadStatus::kRefused);
    return 1;
  }
  ClientConnection* connection = ConnectionTo(op.region.peer, op.lane);
  if (connection == nullptr) {
    Complete(op.cookie, ReadStatus::kUnreachable);
    return 1;
  }
  Message* message = MessageFor(connection, ShapeOf(op));
  if (message == nullptr) return 0;
  std::size_t count = 0;
  do {
    message->Add(ops[count++]);
  } while (count < ops.size() && !message->full() && ops[count].region.peer == op.region.peer &&
           ops[count].lane == op.lane && ops[count].length > 0 && InsideRegion(ops[count]) &&
           message->Fits(ops[count]));
  if (message->full()) connection->Send();
  return count;
}

std::size_t StreamQueue::Submit(std::span<const ReadOp> ops) {
  if (closed_) return 0;
  ForgetRemovedPeers();
  touched_.clear();
  const std::size_t room = std::min<std::size_t>(ops.size(), depth_ - outstanding_);
  std::size_t accepted = 0;
  while (accepted < room) {
    const std::size_t added = AddSome(ops.subspan(accepted, room - accepted));
    if (added == 0) break;
    accepted += added;
    outstanding_ += static_cast<std::uint32_t>(added);
  }
  for (ClientConnection* connection : touched_) connection->Send();
  return accepted;
}

void StreamQueue::Complete(std::uint64_t cookie, ReadStatus status) {
  std::uint32_t at = ready_head_ + ready_count_;
  if (at >= depth_) at -= depth_;
  ready_[at] = {cookie, status};
  ++ready_count_;
}

void StreamQueue::Done(Message* message, ReadStatus status, std::span<const ReadStatus> statuses) {
  if (!message->abandoned && !closed_) {
    const std::span<const std::uint64_t> cookies = message->cookies();
    for (std::size_t i = 0; i < cookies.size(); ++i) {
      Complete(cookies[i], statuses.empty() ? status : statuses[i]);
    }
  }
  free_messages_.push_back(message);
}

void StreamQueue::Flushed(Message* message) {
  if (closed_) return;
  for (std::uint64_t cookie : message->cookies()) Complete(cookie, ReadStatus::kFlushed);
}

void StreamQueue::Progress() {
  if (armed_ || active_.size() > kMaxDirectlyDriven) {
    armed_ = false;
    epoll_event events[kEventsPerPoll];
    const int count = epoll_wait(epoll_.get(), events, kEventsPerPoll, 0);
    for (int i = 0; i < count; ++i) static_cast<ClientConnection*>(events[i].data.ptr)->Drive();
  } else {
    for (ClientConnection* connection : active_) connection->Drive();
  }
  std::erase_if(active_, [](ClientConnection* connection) {
    if (connection->active()) return false;
    connection->in_active_list = false;
    return true;
  });
}

std::size_t StreamQueue::Poll(std::span<ReadCompletion> out) {
  if (closed_ || out.empty()) return 0;
  if (ready_count_ < out.size() && (armed_ || !active_.empty())) Progress();
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), ready_count_));
  const std::uint32_t first = std::min(count, depth_ - ready_head_);
  std::copy_n(ready_.begin() + ready_head_, first, out.begin());
  std::copy_n(ready_.begin(), count - first, out.begin() + first);
  ready_head_ = (ready_head_ + count) % depth_;
  ready_count_ -= count;
  outstanding_ -= count;
  return count;
}

int StreamQueue::ArmWait() {
  if (closed_ || outstanding_ == 0 || ready_count_ > 0) return -1;
  armed_ = true;
  return epoll_.get();
}

void StreamQueue::Abandon(PeerId peer) {
  if (closed_ || peer.value() >= connections_.size()) return;
  for (auto& connection : connections_[peer.value()].lane) {
    if (connection != nullptr) connection->Abandon();
  }
}

void StreamQueue::Close() {
  if (std::exchange(closed_, true)) return;
  for (Lanes& lanes : connections_) {
    for (auto& connection : lanes.lane) {
      if (connection != nullptr) connection->Fail(ReadStatus::kFlushed);
    }
  }
  active_.clear();
  connections_.clear();
}

}  // namespace engram::fabric::stream
