#include "placement/plan/steps.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engram/settings/units.h"

namespace engram::placement {
namespace {

// How urgent a step is among those of its goal, the smaller the sooner.
struct Drafted {
  PlanGoal goal;
  double urgency = 0;
  std::uint32_t shard = 0;
  std::uint32_t from = PlanState::kNone, to = PlanState::kNone;
};

class StepMaker {
 public:
  explicit StepMaker(const PlanState& state) : state_(state) {}

  Plan Run() {
    for (std::uint32_t id = 0; id < state_.shards().size(); ++id) {
      if (state_.shard(id).touched) Draft(id);
    }
    std::stable_sort(drafts_.begin(), drafts_.end(), [](const Drafted& a, const Drafted& b) {
      return std::tie(a.goal, a.urgency) < std::tie(b.goal, b.urgency);
    });
    Plan plan;
    plan.reserve(drafts_.size());
    for (const Drafted& draft : drafts_) plan.push_back(Step(draft));
    return plan;
  }

 private:
  NodeMode Mode(std::uint32_t node) const { return state_.nodes()[node].mode; }
  const std::string& NodeName(std::uint32_t node) const {
    return state_.view().nodes[node].id.name;
  }

  void Draft(std::uint32_t id) {
    const ShardState& shard = state_.shard(id);
    const std::vector<std::uint32_t>& before = state_.shard_view(id).nodes;
    std::vector<std::uint32_t> gone, come;
    for (std::uint32_t node : before) {
      if (!PlanState::Holds(shard, node)) gone.push_back(node);
    }
    for (std::uint32_t node : shard.nodes) {
      if (std::find(before.begin(), before.end(), node) == before.end()) come.push_back(node);
    }
    std::stable_sort(gone.begin(), gone.end(), [&](std::uint32_t a, std::uint32_t b) {
      return Mode(a) > Mode(b);  // dead, then draining ones
    });
    // Within a failure domain first, so that no step depends on another.
    for (std::uint32_t& to : come) {
      const auto from = std::find_if(gone.begin(), gone.end(), [&](std::uint32_t node) {
        return state_.nodes()[node].domain == state_.nodes()[to].domain;
      });
      if (from == gone.end()) continue;
      Add(id, *from, std::exchange(to, PlanState::kNone));
      gone.erase(from);
    }
    std::erase(come, PlanState::kNone);
    for (std::size_t i = 0; i < std::max(gone.size(), come.size()); ++i) {
      Add(id, i < gone.size() ? gone[i] : PlanState::kNone,
          i < come.size() ? come[i] : PlanState::kNone);
    }
  }

  void Add(std::uint32_t id, std::uint32_t from, std::uint32_t to) {
    const ShardState& shard = state_.shard(id);
    PlanGoal goal = shard.cause.goal;
    if (to == PlanState::kNone) {
      // The entry of a dead node stays for as long as there are too few others.
      const bool dead = Mode(from) == NodeMode::kDead;
      const std::uint32_t replicas = state_.table_view(shard.table).replicas;
      if (dead && state_.Settled(shard) < replicas) return;
      if (goal != PlanGoal::kDrain) goal = PlanGoal::kSurplus;
    }
    double urgency = 0;
    if (goal == PlanGoal::kReplication) urgency = shard.cause.a;
    if (goal == PlanGoal::kLoad) {
      urgency = -shard.Share() / static_cast<double>(std::max<std::uint64_t>(1, shard.bytes));
    }
    drafts_.push_back({goal, urgency, id, from, to});
  }

  PlanStep Step(const Drafted& draft) const {
    const ShardState& shard = state_.shard(draft.shard);
    PlanStep step;
    step.table = state_.table_view(shard.table).uid;
    step.shard = ShardIndex(draft.shard - state_.table(shard.table).first);
    if (draft.from != PlanState::kNone) {
      step.from = state_.view().nodes[draft.from].id;
      step.from_tier = state_.nodes()[draft.from].tier;
    }
    if (draft.to != PlanState::kNone) {
      step.to = state_.view().nodes[draft.to].id;
      step.to_tier = state_.nodes()[draft.to].tier;
    }
    step.goal = draft.goal;
    step.bytes = draft.to == PlanState::kNone ? 0 : shard.bytes;
    step.reason = Reason(draft, shard);
    return step;
  }

  std::string Reason(const Drafted& draft, const ShardState& shard) const {
    const StepCause& cause = shard.cause;
    const std::uint32_t replicas = state_.table_view(shard.table).replicas;
    switch (draft.goal) {
      case PlanGoal::kReplication: {
        const std::string lost =
            draft.from != PlanState::kNone && Mode(draft.from) == NodeMode::kDead
                ? absl::StrCat("node ", NodeName(draft.from), " is dead: ")
                : "";
        return absl::StrCat(lost, cause.a, " of ", replicas,
                            replicas == 1 ? " copy" : " copies in failure domains of their own");
      }
      case PlanGoal::kDrain: return absl::StrCat("node ", NodeName(cause.node), " drains");
      case PlanGoal::kCapacity:
        return absl::StrCat(state_.Named(cause.node), " holds ",
                            RoundSize(static_cast<std::uint64_t>(std::max(0.0, cause.a))),
                            " more than it has room for");
      case PlanGoal::kFewNodes:
        return absl::StrCat("the table is on ", cause.b, " nodes and needs ", cause.a);
      case PlanGoal::kLoad:
        return absl::StrFormat("%s is read at %.1f%% of what it can, the mean is %.1f%%",
                               state_.Named(cause.node), 100 * cause.a, 100 * cause.b);
      case PlanGoal::kHotCopies:
        return absl::StrFormat("%.0f rows a second are %.0f%% of what a node can serve", cause.a,
                               100 * cause.b);
      case PlanGoal::kSurplus: return SurplusReason(draft, shard, replicas);
    }
    return "";
  }

  std::string SurplusReason(const Drafted& draft, const ShardState& shard,
                            std::uint32_t replicas) const {
    if (draft.from != PlanState::kNone && Mode(draft.from) == NodeMode::kDead) {
      return absl::StrCat("node ", NodeName(draft.from), " is dead, and ", shard.nodes.size(),
                          " of ", replicas, " copies are elsewhere");
    }
    return absl::StrCat(state_.shard_view(draft.shard).nodes.size(), " copies, and ",
                        shard.nodes.size(), " do");
  }

  const PlanState& state_;
  std::vector<Drafted> drafts_;
};

}  // namespace

Plan StepsOf(const PlanState& state) { return StepMaker(state).Run(); }

}  // namespace engram::placement
