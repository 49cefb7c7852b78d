// A read queue over links, one a peer: sorts reads by peer, lets each peer's link post and collect
// them. What ofi and ucx have in common; what a link does and how to sleep are theirs.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace engram::fabric {

inline constexpr std::uint32_t kMaxLinkQueueDepth = 1 << 16;

// Receives the outcome of reads. Implemented by the queue.
class ReadSink {
 public:
  virtual ~ReadSink() = default;
  virtual void Complete(std::uint64_t cookie, ReadStatus status) = 0;
};

// One peer as one queue sees it.
class ReadLink {
 public:
  explicit ReadLink(ReadSink* sink) : sink_(sink) {}
  virtual ~ReadLink() = default;
  ReadLink(const ReadLink&) = delete;
  ReadLink& operator=(const ReadLink&) = delete;

  // REQUIRES: the read is inside its region, not empty and not longer than the fabric's limit.
  void Add(const ReadOp& op) { waiting_.push_back(op); }
  // Connects if need be, posts what the transport takes, collects completions.
  virtual void Drive() = 0;
  // Ends everything with `status`. No byte lands afterwards.
  virtual void End(ReadStatus status) = 0;
  // Ends every read with kFlushed, without closing what need not be closed for that.
  virtual void Abandon() = 0;
  // It has reads that wait or are in flight.
  virtual bool active() const = 0;

 protected:
  bool waits() const { return waiting_head_ < waiting_.size(); }
  // Reads that are not posted, in order.
  std::span<const ReadOp> waiting() const { return std::span(waiting_).subspan(waiting_head_); }
  // The first `count` of them are posted.
  void Posted(std::size_t count);
  void EndWaiting(ReadStatus status);

  ReadSink* const sink_;

 private:
  friend class LinkQueue;
  std::vector<ReadOp> waiting_;  // from waiting_head_ on: not posted
  std::size_t waiting_head_ = 0;
  bool in_active_list_ = false;
};

class LinkQueue : public ReadQueue, public ReadSink {
 public:
  ~LinkQueue() override;

  std::size_t Submit(std::span<const ReadOp> ops) override;
  std::size_t Poll(std::span<ReadCompletion> out) override;
  void Abandon(PeerId peer) override;
  void Close() override;

  void Complete(std::uint64_t cookie, ReadStatus status) override;

 protected:
  LinkQueue(std::uint32_t depth, std::uint64_t max_op_bytes);
  // Null: no such peer.
  virtual std::unique_ptr<ReadLink> OpenLink(PeerId peer) = 0;
  // Poll has something now, or nothing can be outstanding.
  bool NeedNotSleep() const { return closed_ || outstanding_ == 0 || ready_count_ > 0; }
  std::span<ReadLink* const> active_links() const { return active_; }

 private:
  ReadLink* LinkTo(PeerId peer);
  void Add(const ReadOp& op);

  const std::uint32_t depth_;
  const std::uint64_t max_op_bytes_;
  bool closed_ = false;
  std::uint32_t outstanding_ = 0;                 // accepted and not yet polled
  std::vector<std::unique_ptr<ReadLink>> links_;  // by peer id
  std::vector<ReadLink*> active_;
  std::vector<ReadCompletion> ready_;  // a ring of depth_
  std::uint32_t ready_head_ = 0;
  std::uint32_t ready_count_ = 0;
};

}  // namespace engram::fabric
