// One node as a reader of this host sees it: the socket of the session and the slabs that are
// mapped. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"
#include "fabric/mapped/peer.h"
#include "fabric/mapped/wire.h"

namespace engram::fabric::mapped {

class MappedPeer final : public Peer {
 public:
  // Errors as Fabric::AddPeer.
  static absl::StatusOr<std::shared_ptr<MappedPeer>> Connect(const PeerAddress& address,
                                                             Instant deadline);
  ~MappedPeer() override;

  // FailedPrecondition: the descriptor that came is not a sealed, read-only slab of the said
  // length.
  absl::StatusOr<std::uint64_t> Import(const RemoteRegion& granted, Instant deadline) override;
  void Release(std::uint64_t address) override;

 private:
  struct Mapping {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t imports = 0;
  };
  MappedPeer(int socket, std::string name) : socket_(socket), name_(std::move(name)) {}
  absl::Status Greet(const PeerAddress& address, Instant deadline);
  absl::StatusOr<Mapping*> MapOnce(const Reply& reply, int fd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  int socket_;
  const std::string name_;  // for messages
  std::map<std::uint64_t, Mapping> slabs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::fabric::mapped
