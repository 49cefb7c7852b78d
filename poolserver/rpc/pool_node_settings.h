// The settings of engram-poolserver and what they mean. Pure but for looking at the machine's huge
// pages: Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engram/settings/settings.h"
#include "poolserver/rpc/pool_node.h"

namespace engram::poolserver {

Program PoolServerProgram();

// InvalidArgument or ResourceExhausted names the setting, its value, the limit and the next step.
absl::StatusOr<PoolNodeOptions> OptionsFrom(const Settings& settings);

}  // namespace engram::poolserver
