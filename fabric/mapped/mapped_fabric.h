// The reader's side of mapped memory: slabs of nodes on this host, mapped read-only, read with
// plain loads (fabric/mapped/mapped_queue.h).
//
// A node whose replicas lie on a DAX device that this host has attached, too, is read the same way:
// the device is mapped, and no message is sent (fabric/dax/device_peer.h).
//
// Import asks the node for the slab of a granted region, checks what came (length, the seals of
// kSlabSeals, that it is read-only) and maps it once per slab; Release unmaps it after its last
// region. Imported regions carry local addresses and one key of this fabric's own, so a region that
// was not imported is refused rather than dereferenced. A region that was released and is read all
// the same cannot be told: WrongKey::kUndetected.
#pragma once

#include <memory>
#include <string>

#include "fabric/dax/device_peer.h"
#include "fabric/fabric.h"

namespace engram::fabric {

// `devices` are those of this host that a reader may look at; by default all DAX devices.
std::unique_ptr<Fabric> OpenMappedFabric(dax::DeviceFinder devices = [] {
  return dax::FindDevices("auto");
});

}  // namespace engram::fabric
