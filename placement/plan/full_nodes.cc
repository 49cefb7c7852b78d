#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

void Ease(PlanState& state, std::uint32_t full) {
  std::vector<std::uint32_t> held = state.Held(full);
  std::sort(held.begin(), held.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(~state.shard(a).bytes, a) < std::pair(~state.shard(b).bytes, b);
  });
  const auto over = [&] { return -(state.nodes()[full].free + state.nodes()[full].freed); };
  for (std::uint32_t id : held) {
    if (over() <= 0) return;
    const ShardState& shard = state.shard(id);
    if (shard.moving || !PlanState::Holds(shard, full)) continue;
    std::uint32_t to = state.TargetOrNew(id, full, PlanState::kAnyLoad, state.nodes()[full].tier);
    if (to == PlanState::kNone) {
      to = state.TargetOrNew(id, full, PlanState::kAnyLoad, Tier::kNvme);
    }
    if (to == PlanState::kNone) continue;
    state.Move(id, full, to, {PlanGoal::kCapacity, full, static_cast<double>(over()), 0});
  }
  if (over() <= 0) return;
  state.Unmet(absl::StrCat(state.Named(full), " holds ",
                           RoundSize(static_cast<std::uint64_t>(over())),
                           " more than it has room for, and no other node can take it; start more "
                           "pool nodes or give them more memory"));
}

}  // namespace

void EaseFullNodes(PlanState& state) {
  for (std::uint32_t node : state.nodes_by_name()) {
    const NodeState& one = state.nodes()[node];
    if (one.stays() && one.free + one.freed < 0) Ease(state, node);
  }
}

}  // namespace engram::placement
