#include "placement/plan/planner.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/settings/units.h"
#include "placement/plan/goals.h"
#include "placement/plan/steps.h"

namespace engram::placement {
namespace {

constexpr int kMostRounds = 8;
constexpr std::size_t kShownNodes = 8;

// Steps beyond the bytes that one plan may move go; a step that moves nothing stays.
void Limit(std::uint64_t limit, PlanResult* result) {
  std::uint64_t bytes = 0;
  bool full = false, any = false;
  Plan kept;
  for (PlanStep& step : result->plan) {
    if (step.bytes > 0) {
      full |= any && step.bytes > limit - std::min(limit, bytes);
      if (full) {
        ++result->steps_later;
        continue;
      }
      any = true;
      bytes += step.bytes;
    }
    kept.push_back(std::move(step));
  }
  result->plan = std::move(kept);
}

void AppendTier(std::string* out, Tier tier) { out->append(Name(tier)); }

// What the only table needs and the pool does not have.
std::string WhatIsMissing(const PlanState& state) {
  const PlanTable& table = state.view().tables[0];
  std::uint64_t wanted = 0;
  for (const Lacking& one : LackingCopies(state, 0)) {
    wanted += state.shard(one.shard).bytes * one.copies;
  }
  std::vector<const PlanNode*> nodes;
  for (const PlanNode& node : state.view().nodes) {
    if (node.mode == NodeMode::kAlive && state.MayUse(0, node.tier)) nodes.push_back(&node);
  }
  std::sort(nodes.begin(), nodes.end(), [](const PlanNode* a, const PlanNode* b) {
    return std::tie(a->id, a->tier) < std::tie(b->id, b->tier);
  });
  std::set<std::string> domains;
  for (const PlanNode* node : nodes) domains.insert(DomainOf(node->id, node->failure_domain));
  if (!nodes.empty() && domains.size() < table.replicas) {
    return absl::StrCat(
        "its ", table.replicas,
        " replicas need as many failure domains, and the alive nodes that it may use are in ",
        domains.size(), "; start nodes in others, or lower --replicas");
  }
  std::string free;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i == kShownNodes) {
      absl::StrAppend(&free, " and ", nodes.size() - i, " more");
      break;
    }
    absl::StrAppend(
        &free, i == 0 ? "" : ", ", nodes[i]->id.name,
        nodes[i]->tier == Tier::kDram ? "" : absl::StrCat(" ", std::string(Name(nodes[i]->tier))),
        " ",
        RoundSize(static_cast<std::uint64_t>(std::max<std::int64_t>(0, nodes[i]->free_bytes))));
  }
  return absl::StrCat(
      "it needs ", RoundSize(wanted), " (", table.replicas,
      table.replicas == 1 ? " replica" : " replicas in distinct failure domains",
      table.max_nodes == 0 ? "" : absl::StrCat(", at most ", table.max_nodes, " nodes"),
      table.tiers.empty() ? ""
                          : absl::StrCat(", in ", absl::StrJoin(table.tiers, ", ", AppendTier)),
      ") and the alive nodes have free: ", free.empty() ? "none is alive" : free,
      "; start more pool nodes, give them more memory, or delete a table");
}

std::uint64_t CopiesLacking(const PoolView& view, const PlanLimits& limits) {
  const PlanState state(view, limits);
  std::uint64_t copies = 0;
  for (const Lacking& one : LackingCopies(state, 0)) copies += one.copies;
  return copies;
}

}  // namespace

std::string_view Name(PlanGoal goal) {
  switch (goal) {
    case PlanGoal::kReplication: return "replication";
    case PlanGoal::kDrain: return "drain";
    case PlanGoal::kCapacity: return "capacity";
    case PlanGoal::kFewNodes: return "few-nodes";
    case PlanGoal::kLoad: return "load";
    case PlanGoal::kHotCopies: return "hot-copies";
    case PlanGoal::kSurplus: return "surplus";
  }
  return "?";
}

std::string DomainOf(const NodeId& id, const std::string& failure_domain) {
  // The prefixes keep a node's name and a domain's name apart.
  return failure_domain.empty() ? "node/" + id.name : "domain/" + failure_domain;
}

PlanResult MakePlan(const PoolView& view, const PlanLimits& limits) {
  PlanState state(view, limits);
  PlanResult result;
  result.load_now = state.MaxUse();
  result.load_bound = state.Bound();
  // A goal's step may be another goal's cue. The last round finds nothing to do, so the next plan
  // will not either.
  for (int round = 0; round < kMostRounds; ++round) {
    const std::uint64_t before = state.changes();
    state.unmet().clear();
    for (std::uint32_t table : state.table_order()) PlaceMissing(state, table);
    DropSurplus(state);
    EaseFullNodes(state);
    CopyHot(state);
    BalanceLoad(state);
    KeepFewNodes(state);
    if (state.changes() == before) break;
  }
  result.load_after = state.MaxUse();
  result.unmet = std::move(state.unmet());
  result.plan = StepsOf(state);
  Limit(limits.bytes, &result);
  return result;
}

absl::StatusOr<Plan> PlaceTable(const PoolView& view, const PlanLimits& limits) {
  const PlanTable& table = view.tables.at(0);
  if (table.max_nodes != 0 && table.max_nodes < table.replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name.Full(), ": ", table.replicas,
                     " replicas need as many nodes, but max_nodes is ", table.max_nodes,
                     "; raise --max-nodes or lower --replicas"));
  }
  PlanState state(view, limits);
  if (!PlaceWhole(state, 0)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table ", table.name.Full(), " does not fit: ", WhatIsMissing(state)));
  }
  Plan plan = StepsOf(state);
  std::sort(plan.begin(), plan.end(), [](const PlanStep& a, const PlanStep& b) {
    return std::tie(a.shard, a.to) < std::tie(b.shard, b.to);
  });
  return plan;
}

absl::StatusOr<PartPlan> PlaceWhatFits(const PoolView& view, const PlanLimits& limits) {
  absl::StatusOr<Plan> plan = PlaceTable(view, limits);
  if (plan.ok()) return PartPlan{*std::move(plan), ""};
  PoolView fewer = view;
  while (absl::IsResourceExhausted(plan.status()) && fewer.tables[0].replicas > 1) {
    --fewer.tables[0].replicas;
    plan = PlaceTable(fewer, limits);
  }
  if (!plan.ok()) return plan.status();
  const std::uint64_t missing = CopiesLacking(view, limits) - plan->size();
  const std::uint64_t all = view.tables[0].shards.size() * view.tables[0].replicas;
  return PartPlan{*std::move(plan), absl::StrCat(missing, " of ", all, " copies have no place: ",
                                                 WhatIsMissing(PlanState(view, limits)))};
}

}  // namespace engram::placement
