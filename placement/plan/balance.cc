// The most loaded nodes hand over what helps most a byte moved: the hottest shards first, to the
// least loaded nodes, until no node is above the goal or nobody can take more.
#include <span>
#include <tuple>

#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

constexpr int kMostPasses = 16;
constexpr std::size_t kMostTried = 4;
// Exchanges that came to nothing, in one pass: where many nodes are too hot and none can help, a
// plan must not take for ever to find that out.
constexpr int kMostExchangesInVain = 16;

class Balancer {
 public:
  explicit Balancer(PlanState& state) : state_(state), goal_(state.limits().goal * state.Bound()) {}

  void Run() {
    const PlanLimits& limits = state_.limits();
    const double most = state_.MaxUse();
    if (most <= limits.quiet_load || most <= goal_ * (1 + limits.hysteresis)) return;
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const std::uint64_t before = state_.changes();
      in_vain_ = 0;
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

  // What it holds: what comes to it by this plan first, for that moves anyway, then the hottest.
  std::vector<std::uint32_t> Hottest(std::uint32_t from) {
    std::vector<std::tuple<bool, double, std::uint32_t>> hot;
    for (std::uint32_t id : state_.Held(from)) {
      const ShardState& shard = state_.shard(id);
      if (shard.moving || shard.load <= 0 || !PlanState::Holds(shard, from)) continue;
      hot.emplace_back(state_.WasThere(id, from), -Heat(id), id);
    }
    std::sort(hot.begin(), hot.end());
    std::vector<std::uint32_t> ids;
    for (const auto& [was_there, heat, id] : hot) {
      if (ids.empty() || ids.back() != id) ids.push_back(id);
    }
    return ids;
  }

  // How many of them, the first, would do if they went.
  std::size_t Enough(std::uint32_t from, const std::vector<std::uint32_t>& hot) const {
    const NodeState& node = state_.nodes()[from];
    double load = node.load;
    std::size_t count = 0;
    while (count < hot.size() && load > goal_ * node.strength) {
      load -= state_.shard(hot[count++]).Share();
    }
    return count;
  }

  void Shed(std::uint32_t from) {
    const std::vector<std::uint32_t> hot = Hottest(from);
    // To nodes of the table what helps most a byte; then to other nodes, for they take that too;
    // where no other node may help, whatever finds a place.
    if (HandOver(std::span(hot).first(Enough(from, hot)), from, false)) return;
    if (HandOver(hot, from, true)) return;
    if (!HandOver(hot, from, false)) MakeRoom(hot, from);
  }

  // The hottest that it holds, whatever the order in which they came: the next plan must not find
  // what this one does not.
  std::vector<std::uint32_t> HottestCopies(std::vector<std::uint32_t> ids, std::uint32_t from,
                                           std::size_t most) const {
    std::erase_if(ids, [&](auto id) { return !PlanState::Holds(state_.shard(id), from); });
    std::sort(ids.begin(), ids.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(-state_.shard(a).Share(), a) < std::pair(-state_.shard(b).Share(), b);
    });
    ids.resize(std::min(ids.size(), most));
    return ids;
  }

  bool MayLeaveItsNodes(std::uint32_t id, double use) const {
    return use > state_.limits().target_load && state_.MayGrow(state_.shard(id).table);
  }

  // A shard too hot for where it is, and for what is left of any node: it goes where it does better
  // all the same, and what is there makes room in the next pass, or at once.
  void MakeRoom(const std::vector<std::uint32_t>& hot, std::uint32_t from) {
    const PlanLimits& limits = state_.limits();
    const double use = state_.nodes()[from].Use();
    if (use <= goal_ * (1 + limits.hysteresis)) return;
    const std::vector<std::uint32_t> hottest = HottestCopies(hot, from, kMostTried);
    for (std::uint32_t id : hottest) {
      const ShardState& shard = state_.shard(id);
      for (std::uint32_t to : state_.BestTargets(id, from, MayLeaveItsNodes(id, use), 1)) {
        const NodeState& other = state_.nodes()[to];
        if ((other.load + shard.Share()) / other.strength * (1 + limits.hysteresis) > use) continue;
        return state_.Move(id, from, to, {PlanGoal::kLoad, from, use, state_.MeanUse()});
      }
    }
    for (std::uint32_t id : hottest) {
      for (std::uint32_t to : state_.BestTargets(id, from, MayLeaveItsNodes(id, use), kMostTried)) {
        if (in_vain_ >= kMostExchangesInVain || Exchange(id, from, to)) return;
        ++in_vain_;
      }
    }
  }

  // The shard for colder ones of `to`, which go where there is room for them, `from` included,
  // until `to` is not above the goal; or nothing is done.
  bool Exchange(std::uint32_t id, std::uint32_t from, std::uint32_t to) {
    const double use = state_.nodes()[from].Use();
    const StepCause cause{PlanGoal::kLoad, from, use, state_.MeanUse()};
    std::vector<Moved> moved;
    const auto move = [&](std::uint32_t one, std::uint32_t at, std::uint32_t target) {
      moved.push_back({one, at, target, state_.shard(one).touched});
      state_.Move(one, at, target, cause);
    };
    move(id, from, to);
    const NodeState& node = state_.nodes()[to];
    for (std::uint32_t other : HottestCopies(Hottest(to), to, PlanState::kNone)) {
      if (node.Use() <= goal_) return true;
      if (state_.shard(other).Share() >= state_.shard(id).Share()) continue;
      std::uint32_t target = state_.Target(other, to, goal_, false, node.tier);
      if (target == PlanState::kNone && MayLeaveItsNodes(other, use)) {
        target = state_.Target(other, to, goal_, true, node.tier);
      }
      if (target != PlanState::kNone) move(other, to, target);
    }
    if (node.Use() <= goal_) return true;
    for (auto one = moved.rbegin(); one != moved.rend(); ++one) {
      state_.MoveBack(one->shard, one->to, one->from, one->touched);
    }
    return false;
  }

  // True: `from` needs no more help.
  bool HandOver(std::span<const std::uint32_t> hot, std::uint32_t from, bool any_node) {
    for (std::uint32_t id : hot) {
      const double use = state_.nodes()[from].Use();
      if (use <= goal_) return true;
      // Nodes that lack the table help only where help is needed.
      if (any_node && use <= state_.limits().target_load) return false;
      if (any_node && !state_.MayGrow(state_.shard(id).table)) continue;
      if (PlanState::Holds(state_.shard(id), from)) HandOver(id, from, any_node);
    }
    return state_.nodes()[from].Use() <= goal_;
  }

  // To a node that stays below the goal, or at least well below what this one then has.
  void HandOver(std::uint32_t id, std::uint32_t from, bool any_node) {
    const NodeState& node = state_.nodes()[from];
    const double after = (node.load - state_.shard(id).Share()) / node.strength;
    const double most = std::max(goal_, after / (1 + state_.limits().hysteresis));
    const std::uint32_t to = state_.Target(id, from, most, any_node, node.tier);
    if (to == PlanState::kNone) return;
    state_.Move(id, from, to, {PlanGoal::kLoad, from, node.Use(), state_.MeanUse()});
  }

  struct Moved {
    std::uint32_t shard = 0, from = 0, to = 0;
    bool touched = false;
  };

  PlanState& state_;
  const double goal_;
  int in_vain_ = 0;
};

}  // namespace

void BalanceLoad(PlanState& state) { Balancer(state).Run(); }

}  // namespace engram::placement
