// A table leaves nodes that it does not need: always those beyond max_nodes, and others when a
// quarter fewer would do, so that a table does not come and go for one shard. What it needs for its
// load is counted at half the load at which nodes ask for help.
#include "absl/strings/str_cat.h"
#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

constexpr double kWorthLeaving = 0.75;

class Leaver {
 public:
  Leaver(PlanState& state, std::uint32_t table)
      : state_(state), table_(table), view_(state.table_view(table)) {}

  void Run() {
    std::size_t count = state_.table(table_).members.size();
    if (count <= 1) return;
    if (view_.max_nodes != 0 && count > view_.max_nodes) {
      count = Leave(view_.max_nodes, PlanState::kAnyLoad);
      if (count > view_.max_nodes) {
        state_.Unmet(absl::StrCat("table ", view_.name.Full(), " is on ", count,
                                  " nodes and may use ", view_.max_nodes,
                                  ": the others have no room for it"));
        return;
      }
    }
    if (count <= std::max<std::size_t>(1, view_.replicas)) return;
    const std::size_t needed = Needed();
    if (static_cast<double>(needed) > kWorthLeaving * static_cast<double>(count)) return;
    Leave(needed, std::max(state_.Bound(), state_.limits().target_load * 0.9));
  }

 private:
  struct Moved {
    std::uint32_t shard = 0, from = 0, to = 0;
    bool touched = false;
  };

  // Members, the fewest bytes of the table first.
  std::vector<std::uint32_t> Members() const {
    std::vector<std::uint32_t> members = state_.table(table_).members;
    std::stable_sort(members.begin(), members.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return BytesOn(a) < BytesOn(b); });
    return members;
  }
  std::uint64_t BytesOn(std::uint32_t owner) const {
    std::uint64_t bytes = 0;
    for (std::uint32_t node : state_.owners()[owner]) bytes += state_.BytesOn(table_, node);
    return bytes;
  }

  // How many of its nodes would do, those that hold most of it.
  std::size_t Needed() const {
    std::int64_t once = 0;
    for (std::uint32_t id = state_.table(table_).first; id < state_.table(table_).end; ++id) {
      once += static_cast<std::int64_t>(state_.shard(id).bytes);
    }
    const std::vector<std::uint32_t> members = Members();
    std::vector<std::int64_t> room(state_.domains(), 0);
    std::int64_t usable = 0;
    double strength = 0;
    for (std::size_t count = 1; count <= members.size(); ++count) {
      for (std::uint32_t member : state_.owners()[members[members.size() - count]]) {
        const NodeState& node = state_.nodes()[member];
        if (!state_.MayUse(table_, node.tier)) continue;
        usable -= std::min(room[node.domain], once);
        room[node.domain] += static_cast<std::int64_t>(state_.BytesOn(table_, member));
        if (node.takes()) room[node.domain] += std::max<std::int64_t>(0, node.free);
        usable += std::min(room[node.domain], once);
        strength += node.strength;
      }
      if (usable >= once * view_.replicas &&
          strength * state_.limits().target_load / 2 >= state_.table(table_).load) {
        return count;
      }
    }
    return members.size();
  }

  // Until it is on `wanted` nodes; returns on how many it is.
  std::size_t Leave(std::size_t wanted, double most) {
    for (std::uint32_t owner : Members()) {
      if (state_.table(table_).members.size() <= wanted) break;
      if (!Evacuate(owner, most, wanted) && most != PlanState::kAnyLoad) break;
    }
    return state_.table(table_).members.size();
  }

  // All of it or nothing.
  bool Evacuate(std::uint32_t owner, double most, std::size_t wanted) {
    std::vector<Moved> moved;
    for (std::uint32_t node : state_.owners()[owner]) {
      if (Evacuate(node, most, wanted, &moved)) continue;
      for (auto one = moved.rbegin(); one != moved.rend(); ++one) {
        state_.MoveBack(one->shard, one->to, one->from, one->touched);
      }
      return false;
    }
    return true;
  }

  bool Evacuate(std::uint32_t node, double most, std::size_t wanted, std::vector<Moved>* moved) {
    const StepCause cause{PlanGoal::kFewNodes, node, static_cast<double>(wanted),
                          static_cast<double>(state_.table(table_).members.size())};
    const Tier tier = state_.nodes()[node].tier;
    const Tier slowest = most == PlanState::kAnyLoad ? Tier::kNvme : tier;
    for (std::uint32_t id : std::vector<std::uint32_t>(state_.Held(node))) {
      const ShardState& shard = state_.shard(id);
      if (shard.table != table_ || !PlanState::Holds(shard, node)) continue;
      const std::uint32_t to =
          shard.moving ? PlanState::kNone : state_.Target(id, node, most, false, slowest);
      if (to == PlanState::kNone) return false;
      moved->push_back({id, node, to, shard.touched});
      state_.Move(id, node, to, cause);
    }
    return true;
  }

  PlanState& state_;
  const std::uint32_t table_;
  const PlanTable& view_;
};

}  // namespace

void KeepFewNodes(PlanState& state) {
  for (std::uint32_t table : state.table_order()) Leaver(state, table).Run();
}

}  // namespace engram::placement
