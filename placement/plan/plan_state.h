// What the planner thinks with: the pool as it would be after the steps taken so far. Dense arrays;
// nodes, which stand for one tier of a node here, keep the numbers of the view, shards of all
// tables are numbered through. An owner is a whole node: all its tiers. Internal to
// placement/plan. Thread-compatible.
//
// Memory is counted as it is while a plan is carried out: what a step takes from a node is free
// only when its readers have let go, so it is not given out again in the same plan.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "placement/plan/planner.h"

namespace engram::placement {

struct NodeState {
  std::uint32_t domain = 0;
  std::uint32_t owner = 0;
  std::uint32_t rank = 0;  // by name, then tier: settles equal choices
  Tier tier = Tier::kDram;
  NodeMode mode = NodeMode::kAlive;
  std::int64_t free = 0;   // what can be given out in this plan
  std::int64_t freed = 0;  // what will be free beside that once it was carried out
  double strength = 0;     // bytes a second
  double load = 0;         // bytes a second
  double Use() const { return load / strength; }
  bool takes() const { return mode == NodeMode::kAlive; }
  bool stays() const { return mode == NodeMode::kAlive || mode == NodeMode::kCordoned; }
};

// Why a shard was touched first, and the numbers for saying so.
struct StepCause {
  PlanGoal goal = PlanGoal::kReplication;
  std::uint32_t node = 0;
  double a = 0, b = 0;
};

struct ShardState {
  std::uint32_t table = 0;
  bool moving = false;
  bool touched = false;
  std::uint64_t bytes = 0;
  double load = 0;                   // bytes a second, all copies together; whole
  std::vector<std::uint32_t> nodes;  // holders that are not dead
  StepCause cause;
  // Of one copy. Whole, so that sums of shares come and go without a remainder.
  double Share() const {
    return nodes.empty() ? 0 : std::floor(load / static_cast<double>(nodes.size()));
  }
};

struct TableParts {
  std::uint32_t first = 0, end = 0;  // shards
  double load = 0;
  std::vector<std::uint32_t> members;  // owners that hold some of it and stay, by name
};

class PlanState {
 public:
  PlanState(const PoolView& view, const PlanLimits& limits);

  const PoolView& view() const { return view_; }
  const PlanLimits& limits() const { return limits_; }
  std::vector<NodeState>& nodes() { return nodes_; }
  const std::vector<NodeState>& nodes() const { return nodes_; }
  const std::vector<ShardState>& shards() const { return shards_; }
  const ShardState& shard(std::uint32_t id) const { return shards_[id]; }
  const TableParts& table(std::uint32_t table) const { return tables_[table]; }
  std::size_t tables() const { return tables_.size(); }
  const std::vector<std::uint32_t>& nodes_by_name() const { return by_rank_; }
  // Tables in order of name, so that the order of the view does not matter.
  const std::vector<std::uint32_t>& table_order() const { return table_order_; }
  std::size_t domains() const { return domains_; }
  // By name; the tiers of each, fastest first.
  const std::vector<std::vector<std::uint32_t>>& owners() const { return owners_; }
  const PlanTable& table_view(std::uint32_t table) const { return view_.tables[table]; }
  const PlanShard& shard_view(std::uint32_t id) const {
    const ShardState& shard = shards_[id];
    return view_.tables[shard.table].shards[id - tables_[shard.table].first];
  }
  std::uint64_t BytesOn(std::uint32_t table, std::uint32_t node) const {
    return bytes_on_[table * nodes_.size() + node];
  }
  bool IsMember(std::uint32_t table, std::uint32_t owner) const {
    return copies_on_[table * owners_.size() + owner] > 0;
  }
  bool MayUse(std::uint32_t table, Tier tier) const {
    const std::vector<Tier>& tiers = view_.tables[table].tiers;
    return tiers.empty() || std::find(tiers.begin(), tiers.end(), tier) != tiers.end();
  }
  // Shards that the node holds; some may have left it since they were listed.
  const std::vector<std::uint32_t>& Held(std::uint32_t node);
  // Held it when the plan began.
  bool WasThere(std::uint32_t id, std::uint32_t node) const;
  static bool Holds(const ShardState& shard, std::uint32_t node);

  // Distinct failure domains of the copies on nodes that stay.
  std::uint32_t Settled(const ShardState& shard) const;
  // Whether a copy may go to `node`: one that takes replicas, has room, is not about to let this
  // shard go, nor any other tier of its owner, is a tier for the table, and shares its domain with
  // no copy that stays but `leaving`, which goes.
  bool CanTake(std::uint32_t id, std::uint32_t node, std::uint32_t leaving = kNone) const;
  void Put(std::uint32_t id, std::uint32_t node, const StepCause& cause);
  void Take(std::uint32_t id, std::uint32_t node, const StepCause& cause);
  // Its copies on dead nodes are given up.
  void Forget(std::uint32_t id, const StepCause& cause) {
    if (!shards_[id].touched) Touch(id, cause);
  }
  void Move(std::uint32_t id, std::uint32_t from, std::uint32_t to, const StepCause& cause) {
    Take(id, from, cause);
    Put(id, to, cause);
  }
  // Undoes a Move(id, to, at), as if it had not been.
  void MoveBack(std::uint32_t id, std::uint32_t at, std::uint32_t to, bool touched);
  // Whether it has fewer copies now than it began with.
  bool HadMore(std::uint32_t id) const {
    return shard_view(id).nodes.size() > shards_[id].nodes.size();
  }

  // The least loaded node for a copy, whose load would not exceed `most` then, in a tier that is
  // not slower than `slowest`, among the table's members, or among all. kNone: there is none.
  // `leaving` (or kNone) gives its copy up; `copies` share the load in the end (0: those that there
  // are then).
  std::uint32_t Target(std::uint32_t id, std::uint32_t leaving, double most, bool any_node,
                       Tier slowest, std::uint32_t copies = 0) const;
  // Target among the table's members, else, where it may be on one more node, among all.
  std::uint32_t TargetOrNew(std::uint32_t id, std::uint32_t leaving, double most, Tier slowest,
                            std::uint32_t copies = 0) const;
  // The `count` nodes that would be the least loaded with the copy, in no slower tier than
  // `leaving`; the best one first.
  std::vector<std::uint32_t> BestTargets(std::uint32_t id, std::uint32_t leaving, bool any_node,
                                         std::size_t count) const;
  // "node a", or "cxl of node a": for people.
  std::string Named(std::uint32_t node) const;
  // The fastest tier that has a copy; kNvme when there is none.
  Tier FastestTier(const ShardState& shard) const;
  // Whether one more node may hold a part of the table.
  bool MayGrow(std::uint32_t table) const;
  double MaxUse() const;
  // No placement has a lower highest load: that of all nodes together, or the hottest shard's.
  double MeanUse() const { return strength_ == 0 ? 0 : load_ / strength_; }
  double Bound() const { return bound_; }
  double strength() const { return strength_; }  // of the nodes that stay
  double mean_strength() const { return strength_ / std::max<double>(1, staying_); }
  std::uint64_t changes() const { return changes_; }
  void Unmet(std::string text);
  std::vector<std::string>& unmet() { return unmet_; }

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr double kAnyLoad = 1e300;  // for Target

 private:
  void AddNodes();
  void AddTables();
  void FindBound();
  void SetLoad(std::uint32_t node, double load);
  void Share(const ShardState& shard, double sign);
  void Count(const ShardState& shard, std::uint32_t node, int by);
  void Touch(std::uint32_t id, const StepCause& cause);

  const PoolView& view_;
  const PlanLimits& limits_;
  std::vector<NodeState> nodes_;
  std::vector<ShardState> shards_;
  std::vector<TableParts> tables_;
  std::vector<std::uint32_t> table_order_;
  std::vector<std::vector<std::uint32_t>> owners_;
  std::vector<std::uint64_t> bytes_on_;   // [table][node]
  std::vector<std::uint32_t> copies_on_;  // [table][owner]
  std::vector<std::vector<std::uint32_t>> held_;
  bool held_listed_ = false;
  std::set<std::pair<double, std::uint32_t>> by_use_;  // (use, rank) of nodes that take
  std::vector<std::uint32_t> by_rank_;
  std::size_t domains_ = 0;
  double strength_ = 0;
  double staying_ = 0;
  double load_ = 0;
  double bound_ = 0;
  std::uint64_t changes_ = 0;
  std::vector<std::string> unmet_;
};

}  // namespace engram::placement
