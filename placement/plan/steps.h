// From the shards that the goals touched to the steps of a plan, with their reasons in words.
// Internal to placement/plan. Thread-compatible.
#pragma once

#include "placement/plan/plan_state.h"

namespace engram::placement {

// In the order in which to carry them out; not limited.
Plan StepsOf(const PlanState& state);

}  // namespace engram::placement
