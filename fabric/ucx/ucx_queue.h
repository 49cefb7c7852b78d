// The read queue of ucx: a link for each peer, see link.h. ArmWait gives a descriptor that collects
// those of the links' workers, and a timer, because deadlines and dead peers wake nobody.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "fabric/link_queue.h"
#include "fabric/ucx/ucx_fabric.h"

namespace engram::fabric::ucx {

class UcxQueue final : public LinkQueue {
 public:
  static absl::StatusOr<std::unique_ptr<ReadQueue>> Open(std::shared_ptr<const Transport> transport,
                                                         std::shared_ptr<UcxPeers> peers,
                                                         std::uint32_t depth,
                                                         Duration connect_timeout);
  ~UcxQueue() override;

  int ArmWait() override;

 protected:
  std::unique_ptr<ReadLink> OpenLink(PeerId peer) override;

 private:
  UcxQueue(std::shared_ptr<const Transport> transport, std::shared_ptr<UcxPeers> peers,
           std::uint32_t depth, Duration connect_timeout)
      : LinkQueue(depth, transport->max_read_bytes()),
        transport_(std::move(transport)),
        peers_(std::move(peers)),
        connect_timeout_(connect_timeout) {}

  const std::shared_ptr<const Transport> transport_;
  const std::shared_ptr<UcxPeers> peers_;
  const Duration connect_timeout_;
  int poller_ = -1;  // an epoll descriptor
  int timer_ = -1;
};

}  // namespace engram::fabric::ucx
