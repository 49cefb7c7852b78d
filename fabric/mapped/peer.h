// A node as a reader of mapped memory sees it: over the socket of its host (mapped_peer.h), or on a
// device that this host has attached, too (fabric/dax/device_peer.h). Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "fabric/fabric.h"

namespace engram::fabric::mapped {

class Peer {
 public:
  virtual ~Peer() = default;
  // Where `granted` lies in this process. Each success takes one Release.
  // PermissionDenied: the node does not grant it; Unavailable: the node is gone;
  // FailedPrecondition: what came is not what a node of ours gives.
  virtual absl::StatusOr<std::uint64_t> Import(const RemoteRegion& granted, Instant deadline) = 0;
  // REQUIRES: `address` came from Import and is not read any more.
  virtual void Release(std::uint64_t address) = 0;
};

}  // namespace engram::fabric::mapped
