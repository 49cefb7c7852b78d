#include <cmath>

#include "absl/strings/str_cat.h"
#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

// What one copy may cost its node, in bytes a second.
double MostOfOneCopy(const PlanState& state) {
  return std::max(state.MeanUse(), state.limits().target_load) * state.mean_strength();
}

std::uint32_t MostCopies(const PlanState& state, const ShardState& shard) {
  const PlanTable& table = state.table_view(shard.table);
  std::uint32_t most = std::max(state.limits().most_copies, table.replicas);
  if (table.max_nodes != 0) most = std::min(most, std::max(table.max_nodes, table.replicas));
  return most;
}

std::uint32_t CopiesAt(const PlanState& state, const ShardState& shard, double each) {
  const std::uint32_t replicas = state.table_view(shard.table).replicas;
  if (each <= 0 || shard.load <= each * replicas) return replicas;
  const double copies = std::ceil(shard.load / each);
  const std::uint32_t most = MostCopies(state, shard);
  return copies >= most ? most : std::max(replicas, static_cast<std::uint32_t>(copies));
}

}  // namespace

std::uint32_t CopiesForHeat(const PlanState& state, const ShardState& shard) {
  return CopiesAt(state, shard, MostOfOneCopy(state));
}

std::uint32_t CopiesToKeep(const PlanState& state, const ShardState& shard) {
  return CopiesAt(state, shard, MostOfOneCopy(state) / 2);
}

void CopyHot(PlanState& state) {
  std::vector<std::uint32_t> hot;
  for (std::uint32_t id = 0; id < state.shards().size(); ++id) {
    const ShardState& shard = state.shard(id);
    if (shard.moving || shard.load <= MostOfOneCopy(state)) continue;
    if (state.Settled(shard) < CopiesForHeat(state, shard)) hot.push_back(id);
  }
  std::sort(hot.begin(), hot.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(-state.shard(a).load, a) < std::pair(-state.shard(b).load, b);
  });
  const double most = state.limits().goal * std::max(state.Bound(), state.limits().target_load);
  for (std::uint32_t id : hot) {
    const std::uint32_t replicas = state.table_view(state.shard(id).table).replicas;
    const std::uint32_t wanted = CopiesForHeat(state, state.shard(id));
    if (state.Settled(state.shard(id)) < replicas) continue;
    while (state.Settled(state.shard(id)) < wanted) {
      const ShardState& shard = state.shard(id);
      const std::uint32_t to =
          state.TargetOrNew(id, PlanState::kNone, most, state.FastestTier(shard), wanted);
      if (to == PlanState::kNone) break;
      state.Put(id, to,
                {PlanGoal::kHotCopies, to, state.shard_view(id).reads_per_second,
                 shard.load / state.mean_strength()});
    }
  }
}

}  // namespace engram::placement
