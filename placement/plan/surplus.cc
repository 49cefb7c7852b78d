#include <tuple>

#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

// The copy that is missed least: one that another shares a domain with, on a node that is too full,
// cordoned or the most loaded.
std::uint32_t LeastMissed(const PlanState& state, const ShardState& shard) {
  const std::vector<NodeState>& nodes = state.nodes();
  const auto doubled = [&](std::uint32_t node) {
    for (std::uint32_t other : shard.nodes) {
      if (other != node && nodes[other].stays() && nodes[other].domain == nodes[node].domain)
        return true;
    }
    return false;
  };
  const auto missed = [&](std::uint32_t node) {
    const NodeState& one = nodes[node];
    return std::tuple(!doubled(node), one.free >= 0, one.takes(), -one.Use(), ~one.rank);
  };
  std::uint32_t least = PlanState::kNone;
  for (std::uint32_t node : shard.nodes) {
    if (!nodes[node].stays()) continue;
    if (least == PlanState::kNone || missed(node) < missed(least)) least = node;
  }
  return least;
}

void DropFrom(PlanState& state, std::uint32_t id) {
  const std::vector<NodeState>& nodes = state.nodes();
  const std::uint32_t replicas = state.table_view(state.shard(id).table).replicas;
  if (state.Settled(state.shard(id)) < replicas) return;
  const std::vector<std::uint32_t> holders = state.shard(id).nodes;
  std::uint32_t staying = 0;
  for (std::uint32_t node : holders) {
    staying += nodes[node].stays();
    if (!nodes[node].stays()) state.Take(id, node, {PlanGoal::kDrain, node, 0, 0});
  }
  for (std::uint32_t node : state.shard_view(id).nodes) {
    if (nodes[node].mode == NodeMode::kDead) state.Forget(id, {PlanGoal::kSurplus, node, 0, 0});
  }
  const std::uint32_t keep = CopiesToKeep(state, state.shard(id));
  for (; staying > keep; --staying) {
    const std::uint32_t node = LeastMissed(state, state.shard(id));
    state.Take(id, node,
               {PlanGoal::kSurplus, node, static_cast<double>(staying), static_cast<double>(keep)});
  }
}

}  // namespace

void DropSurplus(PlanState& state) {
  for (std::uint32_t id = 0; id < state.shards().size(); ++id) {
    const ShardState& shard = state.shard(id);
    const std::uint32_t replicas = state.table_view(shard.table).replicas;
    if (shard.moving || (shard.nodes.size() <= replicas && !state.HadMore(id))) continue;
    DropFrom(state, id);
  }
}

}  // namespace engram::placement
