#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"
#include "placement/ops/ops.h"
#include "placement/plan/planner.h"
#include "placement/plan/pool_view.h"

namespace engram::placement {
namespace {

// Leaving nodes are emptied by EvacuateNodes, which waits for those that may come back.
bool IsRebalancing(const Core& core, const PlanStep& step) {
  if (step.goal == PlanGoal::kReplication || step.goal == PlanGoal::kDrain) return false;
  const NodeRecord* from = step.from ? core.state().FindNode(*step.from) : nullptr;
  return from == nullptr || (from->alive && !from->draining);
}

}  // namespace

void Rebalance(Core& core) {
  const ControllerOptions& options = core.options;
  if (!options.rebalance || core.now < core.next_rebalance) return;
  core.next_rebalance = core.now + options.rebalance_every;
  // One plan at a time: the next one sees what this one did.
  if (!core.state().moves.empty()) return;
  PlanResult result = core.CountPlan([&] {
    const PoolView view = ViewOf(core.state(), [&](const TableUid& table) {
      return options.reads ? options.reads(core.now, table) : std::vector<double>();
    });
    return MakePlan(view, options.plan_limits);
  });
  std::erase_if(result.plan, [&](const PlanStep& step) { return !IsRebalancing(core, step); });
  if (result.plan.empty()) return;
  const std::size_t taken = CarryOut(core, result.plan);
  if (taken > 0) core.SayLine(absl::StrCat("rebalancing: ", taken, " moves begin"));
}

}  // namespace engram::placement
