// The reader's side of mapped memory: slabs of nodes on this host, mapped read-only, read with
// plain loads (fabric/mapped/mapped_queue.h).
//
// Import asks the node for the slab of a granted region, checks what came (length, the seals of
// kSlabSeals, that it is read-only) and maps it once per slab; Release unmaps it after its last
// region. Imported regions carry local addresses and one key of this fabric's own, so a region that
// was not imported is refused rather than dereferenced. A region that was released and is read all
// the same cannot be told: WrongKey::kUndetected.
#pragma once

#include <memory>

#include "fabric/fabric.h"

namespace engram::fabric {

std::unique_ptr<Fabric> OpenMappedFabric();

}  // namespace engram::fabric
