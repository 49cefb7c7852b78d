// The owner's side of mapped memory on a DAX device: replicas are listed in the directory of the
// device, and readers of any host that has it attached map it themselves (device_peer.h). Its
// address is the UUID of the superblock, a region's address its offset on the device.
//
// Nobody is let in or kept out here: sessions and keys say what honest readers read, the device's
// file mode who can. One duty thread beats once a second, and says so when another node has claimed
// the device.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/dax/owned_device.h"
#include "fabric/target.h"

namespace engram::fabric::dax {

struct DeviceTargetOptions {
  std::shared_ptr<OwnedDevice> device;
  // The device is another node's now: nothing may be written to it any more. From the duty thread.
  std::function<void(const absl::Status&)> lost;
  Duration beat = std::chrono::seconds(1);
};

// Claims the device. Aborted: somebody wrote to it since it was opened.
// REQUIRES: device->wait() has passed.
absl::StatusOr<std::unique_ptr<Target>> OpenDeviceTarget(const DeviceTargetOptions& options);

}  // namespace engram::fabric::dax
