// The settings of a pool node's tiers of memory and what they mean: kernel memory, that of a NUMA
// node, DAX devices. Looks at the machine, opens devices. Free functions: Thread-safe.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engram/settings/settings.h"
#include "fabric/dax/owned_device.h"
#include "poolserver/arena.h"

namespace engram::poolserver {

std::vector<Setting> MemorySettings();

// Fastest first. InvalidArgument, ResourceExhausted or what a device refuses with: names the
// setting, its value, the limit and the next step.
// `devices`: those that tiers lie on, in force once they are claimed (fabric/dax/owned_device.h).
absl::StatusOr<std::vector<Arena::Options>> MemoryTiersFrom(
    const Settings& settings, std::vector<std::shared_ptr<fabric::dax::OwnedDevice>>* devices);

}  // namespace engram::poolserver
