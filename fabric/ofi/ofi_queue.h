// The read queue of ofi: sorts reads by peer, lets each peer's link post and collect them.
//
// ArmWait gives a timer, not the provider's own descriptor: a completion queue with a wait object
// costs some providers a system call a completion, and others have none. Who sleeps on it looks
// again every kLookAgain.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/ofi/link.h"
#include "fabric/ofi/ofi_fabric.h"

namespace engram::fabric::ofi {

inline constexpr std::uint32_t kMaxQueueDepth = 1 << 16;
inline constexpr Duration kLookAgain = std::chrono::microseconds(50);

class OfiQueue final : public ReadQueue, public ReadSink {
 public:
  OfiQueue(std::shared_ptr<const Provider> provider, std::shared_ptr<OfiPeers> peers,
           std::uint32_t depth, Duration connect_timeout);
  ~OfiQueue() override;

  std::size_t Submit(std::span<const ReadOp> ops) override;
  std::size_t Poll(std::span<ReadCompletion> out) override;
  int ArmWait() override;
  void Abandon(PeerId peer) override;
  void Close() override;

  void Complete(std::uint64_t cookie, ReadStatus status) override;

 private:
  Link* LinkTo(PeerId peer);
  void Add(const ReadOp& op);

  const std::shared_ptr<const Provider> provider_;
  const std::shared_ptr<OfiPeers> peers_;
  const std::uint32_t depth_;
  const std::uint64_t max_op_bytes_;
  const Duration connect_timeout_;
  bool closed_ = false;
  int timer_ = -1;
  std::uint32_t outstanding_ = 0;             // accepted and not yet polled
  std::vector<std::unique_ptr<Link>> links_;  // by peer id
  std::vector<Link*> active_;
  std::vector<ReadCompletion> ready_;  // a ring of depth_
  std::uint32_t ready_head_ = 0;
  std::uint32_t ready_count_ = 0;
};

}  // namespace engram::fabric::ofi
