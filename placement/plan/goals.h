// The goals of the planner, each a function that takes the steps it asks for. Each may be repeated:
// what it did once it finds done. Internal to placement/plan. Thread-compatible.
#pragma once

#include <utility>
#include <vector>

#include "placement/plan/plan_state.h"

namespace engram::placement {

struct Lacking {
  std::uint32_t shard = 0;
  std::uint32_t copies = 0;
};
// Copies that a table's shards lack, those of draining nodes counted as gone.
std::vector<Lacking> LackingCopies(const PlanState& state, std::uint32_t table);

// place_missing.cc: all copies that a table lacks, on the fewest nodes that can take them; false,
// and nothing done, where no nodes can.
bool PlaceWhole(PlanState& state, std::uint32_t table);
// As many of them as there is room for, and says what is missing.
void PlaceMissing(PlanState& state, std::uint32_t table);
// surplus.cc: copies on draining nodes that were replaced, and copies beyond those wanted, go.
void DropSurplus(PlanState& state);
// full_nodes.cc: nodes that hold more than they have room for give some up.
void EaseFullNodes(PlanState& state);
// few_nodes.cc: tables leave nodes that they do not need.
void KeepFewNodes(PlanState& state);
// hot_copies.cc: more copies of shards that one node cannot serve.
void CopyHot(PlanState& state);
// balance.cc: the most loaded nodes hand over the shards that help most a byte moved.
void BalanceLoad(PlanState& state);

// Copies that a shard's heat asks for, and how many of those it has are kept: fewer go than come,
// so that a load that swings does not.
std::uint32_t CopiesForHeat(const PlanState& state, const ShardState& shard);
std::uint32_t CopiesToKeep(const PlanState& state, const ShardState& shard);

}  // namespace engram::placement
