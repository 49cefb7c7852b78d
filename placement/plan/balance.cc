// The most loaded nodes hand over what helps most a byte moved: the hottest shards first, to the
// least loaded nodes, until no node is above the goal or nobody can take more.
#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

constexpr int kMostPasses = 16;

class Balancer {
 public:
  explicit Balancer(PlanState& state) : state_(state), goal_(state.limits().goal * state.Bound()) {}

  void Run() {
    const PlanLimits& limits = state_.limits();
    const double most = state_.MaxUse();
    if (most <= limits.quiet_load || most <= goal_ * (1 + limits.hysteresis)) return;
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const std::uint64_t before = state_.changes();
      for (std::uint32_t node : Loaded()) Shed(node);
      if (state_.changes() == before) return;
    }
  }

 private:
  std::vector<std::uint32_t> Loaded() const {
    const std::vector<NodeState>& nodes = state_.nodes();
    std::vector<std::uint32_t> loaded;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      if (nodes[node].stays() && nodes[node].Use() > goal_) loaded.push_back(node);
    }
    std::sort(loaded.begin(), loaded.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(-nodes[a].Use(), nodes[a].rank) < std::pair(-nodes[b].Use(), nodes[b].rank);
    });
    return loaded;
  }

  double Heat(std::uint32_t id) const {
    const ShardState& shard = state_.shard(id);
    return shard.Share() / static_cast<double>(std::max<std::uint64_t>(1, shard.bytes));
  }

  void Shed(std::uint32_t from) {
    std::vector<std::pair<double, std::uint32_t>> hot;  // (-heat, shard)
    for (std::uint32_t id : state_.Held(from)) {
      const ShardState& shard = state_.shard(id);
      if (shard.moving || shard.load <= 0 || !PlanState::Holds(shard, from)) continue;
      hot.emplace_back(-Heat(id), id);
    }
    std::sort(hot.begin(), hot.end());
    hot.erase(std::unique(hot.begin(), hot.end()), hot.end());
    for (const bool any_node : {false, true}) {
      for (const auto& [heat, id] : hot) {
        const double use = state_.nodes()[from].Use();
        if (use <= goal_) return;
        if (!PlanState::Holds(state_.shard(id), from)) continue;
        // Nodes that lack the table help only where help is needed.
        if (any_node && use <= state_.limits().target_load) return;
        if (any_node && !state_.MayGrow(state_.shard(id).table)) continue;
        HandOver(id, from, any_node);
      }
    }
  }

  // To a node that stays below the goal, or at least well below what this one then has.
  void HandOver(std::uint32_t id, std::uint32_t from, bool any_node) {
    const NodeState& node = state_.nodes()[from];
    const double after = (node.load - state_.shard(id).Share()) / node.strength;
    const double most = std::max(goal_, after / (1 + state_.limits().hysteresis));
    const std::uint32_t to = state_.Target(id, from, most, any_node);
    if (to == PlanState::kNone) return;
    state_.Move(id, from, to, {PlanGoal::kLoad, from, node.Use(), state_.MeanUse()});
  }

  PlanState& state_;
  const double goal_;
};

}  // namespace

void BalanceLoad(PlanState& state) { Balancer(state).Run(); }

}  // namespace engram::placement
