// A node whose replicas lie on a DAX device that this host has attached, too, as a reader sees it:
// the device, found by the UUID of its superblock and mapped read-only while something on it is
// imported. No message is sent: who may read is the file mode of the device (docs/shared-cxl.md).
//
// The grant came over the read session; what makes it safe here is checked on the device: that its
// superblock is the one of the node's claim (nonce, owner, incarnation), and that the directory
// lists the replica under the key. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "fabric/dax/cache_lines.h"
#include "fabric/dax/superblock.h"
#include "fabric/dax_device.h"
#include "fabric/fabric.h"
#include "fabric/mapped/peer.h"

namespace engram::fabric::dax {

// The devices that a reader may look at, asked each time one is wanted.
using DeviceFinder = std::function<std::vector<DaxDescription>()>;

// "auto": every DAX device of this host; else those named, with commas: /dev/dax0.0, or file:PATH
// for a file in the place of a device. What is not there is left out.
std::vector<DaxDescription> FindDevices(const std::string& wanted);

class DevicePeer final : public mapped::Peer {
 public:
  // FailedPrecondition: no device here has that superblock, or another claim is on it;
  // Unavailable: its owner has ended.
  static absl::StatusOr<std::shared_ptr<DevicePeer>> Attach(
      const PeerAddress& address, const DeviceFinder& find,
      const CacheLines& lines = CacheLines::OfThisProcessor());
  // What a device says of its owner, without taking it; nothing when it never had one. Errors as
  // DecodeSuperblock, or the kernel's where the device may not be read.
  static absl::StatusOr<std::optional<Superblock>> Look(const DaxDescription& device);
  ~DevicePeer() override;

  absl::StatusOr<std::uint64_t> Import(const RemoteRegion& granted, Instant deadline) override;
  void Release(std::uint64_t address) override;

 private:
  class View;
  DevicePeer(const DaxDescription& device, const PeerAddress& address, const CacheLines& lines);
  absl::Status CheckClaim(const View& view, Superblock* superblock) const;

  const DaxDescription device_;
  const PeerAddress address_;
  const CacheLines& lines_;
  Mutex mutex_;
  std::unique_ptr<View> view_ ABSL_GUARDED_BY(mutex_);  // while imports_ > 0
  std::uint64_t imports_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::fabric::dax
