// The read queue of ofi: a link for each peer, see link.h.
//
// ArmWait gives a timer, not the provider's own descriptor: a completion queue with a wait object
// costs some providers a system call a completion, and others have none. Who sleeps on it looks
// again every kLookAgain.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "fabric/link_queue.h"
#include "fabric/ofi/link.h"
#include "fabric/ofi/ofi_fabric.h"

namespace engram::fabric::ofi {

inline constexpr Duration kLookAgain = std::chrono::microseconds(50);

class OfiQueue final : public LinkQueue {
 public:
  OfiQueue(std::shared_ptr<const Provider> provider, std::shared_ptr<OfiPeers> peers,
           std::uint32_t depth, Duration connect_timeout);
  ~OfiQueue() override;

  int ArmWait() override;

  const PostCounters& posts() const { return posts_; }

 protected:
  std::unique_ptr<ReadLink> OpenLink(PeerId peer) override;

 private:
  const std::shared_ptr<const Provider> provider_;
  const std::shared_ptr<OfiPeers> peers_;
  const Duration connect_timeout_;
  PostCounters posts_;
  int timer_ = -1;
};

}  // namespace engram::fabric::ofi
