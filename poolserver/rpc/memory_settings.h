// The settings of a pool node's tiers of memory and what they mean: kernel memory, that of a NUMA
// node, DAX devices. Looks at the machine, opens devices. Free functions: Thread-safe.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engram/settings/settings.h"
#include "poolserver/arena.h"

namespace engram::poolserver {

std::vector<Setting> MemorySettings();

// Fastest first. InvalidArgument, ResourceExhausted or what a device refuses with: names the
// setting, its value, the limit and the next step.
absl::StatusOr<std::vector<Arena::Options>> MemoryTiersFrom(const Settings& settings);

}  // namespace engram::poolserver
