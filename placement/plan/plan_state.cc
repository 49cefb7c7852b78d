#include "placement/plan/plan_state.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "engram/check.h"

namespace engram::placement {
namespace {

constexpr std::size_t kFewMembers = 48;
constexpr std::size_t kMostUnmet = 32;

// Of a tier that was not measured, of what dram would have.
double ShareOfDram(Tier tier) {
  switch (tier) {
    case Tier::kDram: return 1;
    case Tier::kCxl: return 0.5;
    case Tier::kNvme: return 0.125;
  }
  return 1;
}

}  // namespace

PlanState::PlanState(const PoolView& view, const PlanLimits& limits)
    : view_(view), limits_(limits) {
  AddNodes();
  AddTables();
  FindBound();
}

void PlanState::AddNodes() {
  const std::size_t count = view_.nodes.size();
  by_rank_.resize(count);
  std::iota(by_rank_.begin(), by_rank_.end(), 0);
  std::sort(by_rank_.begin(), by_rank_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const PlanNode &x = view_.nodes[a], &y = view_.nodes[b];
    return std::tie(x.id, x.tier) < std::tie(y.id, y.tier);
  });
  std::map<std::string, std::uint32_t> domains;
  nodes_.resize(count);
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const PlanNode& from = view_.nodes[by_rank_[rank]];
    NodeState& node = nodes_[by_rank_[rank]];
    const auto next = static_cast<std::uint32_t>(domains.size());
    node.domain = domains.emplace(DomainOf(from.id, from.failure_domain), next).first->second;
    node.rank = rank;
    node.tier = from.tier;
    if (rank == 0 || view_.nodes[by_rank_[rank - 1]].id != from.id) owners_.emplace_back();
    owners_.back().push_back(by_rank_[rank]);
    node.owner = static_cast<std::uint32_t>(owners_.size() - 1);
    node.mode = from.mode;
    node.free = from.free_bytes;
    node.strength =
        from.read_bytes_per_second == 0
            ? ShareOfDram(from.tier) * static_cast<double>(limits_.read_bytes_per_second)
            : static_cast<double>(from.read_bytes_per_second);
    node.strength = std::max(1.0, node.strength);
    if (node.stays()) {
      strength_ += node.strength;
      staying_ += 1;
    }
  }
  domains_ = domains.size();
}

void PlanState::AddTables() {
  const std::size_t count = view_.tables.size();
  table_order_.resize(count);
  std::iota(table_order_.begin(), table_order_.end(), 0);
  std::sort(table_order_.begin(), table_order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return view_.tables[a].uid < view_.tables[b].uid;
  });
  bytes_on_.assign(count * nodes_.size(), 0);
  copies_on_.assign(count * owners_.size(), 0);
  tables_.resize(count);
  std::size_t shards = 0;
  for (const PlanTable& table : view_.tables) shards += table.shards.size();
  shards_.reserve(shards);
  for (std::uint32_t t : table_order_) {
    const PlanTable& from = view_.tables[t];
    TableParts& table = tables_[t];
    table.first = static_cast<std::uint32_t>(shards_.size());
    for (const PlanShard& one : from.shards) {
      ShardState& shard = shards_.emplace_back();
      shard.table = t;
      shard.moving = one.moving;
      shard.bytes = one.bytes;
      shard.load = std::floor(one.reads_per_second * from.row_bytes + 0.5);
      table.load += shard.load;
      for (std::uint32_t node : one.nodes) {
        if (nodes_[node].mode != NodeMode::kDead && !Holds(shard, node))
          shard.nodes.push_back(node);
      }
      for (std::uint32_t node : shard.nodes) Count(shard, node, 1);
      Share(shard, 1);
    }
    table.end = static_cast<std::uint32_t>(shards_.size());
  }
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].takes()) by_use_.emplace(nodes_[node].Use(), nodes_[node].rank);
  }
}

bool PlanState::Holds(const ShardState& shard, std::uint32_t node) {
  return std::find(shard.nodes.begin(), shard.nodes.end(), node) != shard.nodes.end();
}

bool PlanState::WasThere(std::uint32_t id, std::uint32_t node) const {
  const PlanShard& from = shard_view(id);
  return std::find(from.nodes.begin(), from.nodes.end(), node) != from.nodes.end();
}

const std::vector<std::uint32_t>& PlanState::Held(std::uint32_t node) {
  if (!held_listed_) {
    held_.resize(nodes_.size());
    for (std::uint32_t id = 0; id < shards_.size(); ++id) {
      for (std::uint32_t one : shards_[id].nodes) held_[one].push_back(id);
    }
    held_listed_ = true;
  }
  return held_[node];
}

std::uint32_t PlanState::Settled(const ShardState& shard) const {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < shard.nodes.size(); ++i) {
    const NodeState& node = nodes_[shard.nodes[i]];
    bool fresh = node.stays();
    for (std::size_t j = 0; fresh && j < i; ++j) {
      const NodeState& other = nodes_[shard.nodes[j]];
      fresh = !other.stays() || other.domain != node.domain;
    }
    count += fresh;
  }
  return count;
}

bool PlanState::CanTake(std::uint32_t id, std::uint32_t node, std::uint32_t leaving) const {
  const ShardState& shard = shards_[id];
  const NodeState& to = nodes_[node];
  if (!to.takes() || shard.moving || !MayUse(shard.table, to.tier)) return false;
  // Where it was when the plan began it still is.
  if (!WasThere(id, node) && to.free < static_cast<std::int64_t>(shard.bytes)) return false;
  for (std::uint32_t one : shard.nodes) {
    if (nodes_[one].owner == to.owner) return false;
    if (one != leaving && nodes_[one].stays() && nodes_[one].domain == to.domain) return false;
  }
  // A node has one copy, in one tier, until it has let go of it.
  const PlanShard& before = shard_view(id);
  const auto is_other_tier = [&](std::uint32_t one) {
    return one != node && nodes_[one].owner == to.owner;
  };
  if (std::any_of(before.nodes.begin(), before.nodes.end(), is_other_tier)) return false;
  return std::none_of(before.leaving.begin(), before.leaving.end(),
                      [&](std::uint32_t one) { return one == node || is_other_tier(one); });
}

void PlanState::SetLoad(std::uint32_t node, double load) {
  NodeState& state = nodes_[node];
  if (!by_use_.empty() && state.takes()) {
    const auto handle = by_use_.find({state.Use(), state.rank});
    ENGRAM_CHECK(handle != by_use_.end());
    auto entry = by_use_.extract(handle);
    state.load = load;
    entry.value() = {state.Use(), state.rank};
    by_use_.insert(std::move(entry));
  } else {
    state.load = load;
  }
}

void PlanState::Share(const ShardState& shard, double sign) {
  if (shard.load == 0 || shard.nodes.empty()) return;
  const double share = sign * shard.Share();
  for (std::uint32_t node : shard.nodes) SetLoad(node, nodes_[node].load + share);
}

void PlanState::Count(const ShardState& shard, std::uint32_t node, int by) {
  bytes_on_[shard.table * nodes_.size() + node] += static_cast<std::uint64_t>(by) * shard.bytes;
  const std::uint32_t owner = nodes_[node].owner;
  const std::size_t at = shard.table * owners_.size() + owner;
  const std::uint32_t before = copies_on_[at];
  copies_on_[at] += static_cast<std::uint32_t>(by);
  if (!nodes_[node].stays() || (before > 0 && copies_on_[at] > 0)) return;
  std::vector<std::uint32_t>& members = tables_[shard.table].members;
  const auto place = std::lower_bound(members.begin(), members.end(), owner);
  if (before == 0) {
    members.insert(place, owner);
  } else {
    members.erase(place);
  }
}

void PlanState::Touch(std::uint32_t id, const StepCause& cause) {
  ShardState& shard = shards_[id];
  if (!shard.touched) shard.cause = cause;
  shard.touched = true;
  ++changes_;
}

void PlanState::Put(std::uint32_t id, std::uint32_t node, const StepCause& cause) {
  ShardState& shard = shards_[id];
  Touch(id, cause);
  Share(shard, -1);
  shard.nodes.push_back(node);
  Share(shard, 1);
  Count(shard, node, 1);
  const auto bytes = static_cast<std::int64_t>(shard.bytes);
  (WasThere(id, node) ? nodes_[node].freed : nodes_[node].free) -= bytes;
  if (held_listed_) held_[node].push_back(id);
}

void PlanState::Take(std::uint32_t id, std::uint32_t node, const StepCause& cause) {
  ShardState& shard = shards_[id];
  Touch(id, cause);
  Share(shard, -1);
  std::erase(shard.nodes, node);
  Share(shard, 1);
  Count(shard, node, -1);
  const auto bytes = static_cast<std::int64_t>(shard.bytes);
  (WasThere(id, node) ? nodes_[node].freed : nodes_[node].free) += bytes;
}

void PlanState::MoveBack(std::uint32_t id, std::uint32_t at, std::uint32_t to, bool touched) {
  const std::uint64_t before = changes_;
  Move(id, at, to, {});
  shards_[id].touched = touched;
  changes_ = before - 2;  // what the move had counted
}

std::uint32_t PlanState::Target(std::uint32_t id, std::uint32_t leaving, double most, bool any_node,
                                Tier slowest, std::uint32_t copies) const {
  const ShardState& shard = shards_[id];
  const std::size_t then = shard.nodes.size() + (leaving == kNone ? 1 : 0);
  const double share = shard.load / static_cast<double>(std::max<std::size_t>(copies, then));
  const std::vector<std::uint32_t>& members = tables_[shard.table].members;
  const auto fits = [&](std::uint32_t node) {
    const NodeState& to = nodes_[node];
    return to.tier <= slowest && to.Use() + share / to.strength <= most &&
           CanTake(id, node, leaving);
  };
  if (!any_node && members.size() <= kFewMembers) {
    std::uint32_t best = kNone;
    for (std::uint32_t owner : members) {
      for (std::uint32_t node : owners_[owner]) {
        if (best != kNone && nodes_[node].Use() >= nodes_[best].Use()) continue;
        if (fits(node)) best = node;
      }
    }
    return best;
  }
  for (const auto& [use, rank] : by_use_) {
    if (use > most) break;
    const std::uint32_t node = by_rank_[rank];
    if (!any_node && !IsMember(shard.table, nodes_[node].owner)) continue;
    if (fits(node)) return node;
  }
  return kNone;
}

std::uint32_t PlanState::TargetOrNew(std::uint32_t id, std::uint32_t leaving, double most,
                                     Tier slowest, std::uint32_t copies) const {
  const std::uint32_t member = Target(id, leaving, most, false, slowest, copies);
  if (member != kNone || !MayGrow(shards_[id].table)) return member;
  return Target(id, leaving, most, true, slowest, copies);
}

std::vector<std::uint32_t> PlanState::BestTargets(std::uint32_t id, std::uint32_t leaving,
                                                  bool any_node, std::size_t count) const {
  const ShardState& shard = shards_[id];
  std::set<std::pair<double, std::uint32_t>> best;  // (use with the copy, rank)
  for (std::uint32_t node : by_rank_) {
    if (!any_node && !IsMember(shard.table, nodes_[node].owner)) continue;
    if (nodes_[node].tier > nodes_[leaving].tier) continue;
    const double after = (nodes_[node].load + shard.Share()) / nodes_[node].strength;
    if (best.size() == count && after >= best.rbegin()->first) continue;
    if (!CanTake(id, node, leaving)) continue;
    best.emplace(after, nodes_[node].rank);
    if (best.size() > count) best.erase(std::prev(best.end()));
  }
  std::vector<std::uint32_t> nodes;
  for (const auto& [after, rank] : best) nodes.push_back(by_rank_[rank]);
  return nodes;
}

std::string PlanState::Named(std::uint32_t node) const {
  const std::string name = "node " + view_.nodes[node].id.name;
  const Tier tier = nodes_[node].tier;
  return tier == Tier::kDram ? name : std::string(Name(tier)) + " of " + name;
}

Tier PlanState::FastestTier(const ShardState& shard) const {
  Tier fastest = Tier::kNvme;
  for (std::uint32_t node : shard.nodes) fastest = std::min(fastest, nodes_[node].tier);
  return fastest;
}

bool PlanState::MayGrow(std::uint32_t table) const {
  const std::uint32_t most = view_.tables[table].max_nodes;
  return most == 0 || tables_[table].members.size() < most;
}

double PlanState::MaxUse() const {
  double most = 0;
  for (const NodeState& node : nodes_) {
    if (node.stays()) most = std::max(most, node.Use());
  }
  return most;
}

void PlanState::FindBound() {
  double strongest = 0, hottest = 0;
  std::set<std::uint32_t> domains;
  for (const NodeState& node : nodes_) {
    if (!node.stays()) continue;
    strongest = std::max(strongest, node.strength);
    domains.insert(node.domain);
  }
  for (const ShardState& shard : shards_) {
    load_ += shard.load;
    const PlanTable& table = view_.tables[shard.table];
    std::size_t copies = std::max<std::size_t>(limits_.most_copies, table.replicas);
    if (table.max_nodes != 0) copies = std::min<std::size_t>(copies, table.max_nodes);
    copies = std::max<std::size_t>(1, std::min(copies, domains.size()));
    hottest = std::max(hottest, shard.load / static_cast<double>(copies));
  }
  bound_ = strength_ == 0 ? 0 : std::max(MeanUse(), hottest / strongest);
}

void PlanState::Unmet(std::string text) {
  if (unmet_.size() < kMostUnmet) unmet_.push_back(std::move(text));
}

}  // namespace engram::placement
