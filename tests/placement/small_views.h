// Views for planner tests: built in a few words, changed by carrying plans out, and checked.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engram/random.h"
#include "placement/plan/planner.h"

namespace engram::placement {

inline PlanNode Node(const std::string& name, std::int64_t free, const std::string& domain = "") {
  return {{name}, domain, NodeMode::kAlive, free, 1'000};
}

inline PlanNode NodeTier(const std::string& name, Tier tier, std::int64_t free,
                         std::uint64_t rate = 1'000, const std::string& domain = "") {
  PlanNode node = Node(name, free, domain);
  node.tier = tier;
  node.read_bytes_per_second = rate;
  return node;
}

inline PlanTable TableOfShards(const std::string& name, std::size_t shards, std::uint64_t bytes,
                               std::uint32_t replicas = 1, std::uint32_t max_nodes = 0) {
  PlanTable table;
  for (std::size_t i = 0; i < name.size() && i < 16; ++i) {
    table.uid.bytes[i] = static_cast<std::uint8_t>(name[i]);
  }
  table.name = {name, "1"};
  table.replicas = replicas;
  table.max_nodes = max_nodes;
  table.row_bytes = 1;
  for (std::size_t i = 0; i < shards; ++i) table.shards.push_back({bytes, 0, {}, false, {}});
  return table;
}

inline std::uint32_t IndexOf(const PoolView& view, const NodeId& id, Tier tier = Tier::kDram) {
  for (std::uint32_t i = 0; i < view.nodes.size(); ++i) {
    if (view.nodes[i].id == id && view.nodes[i].tier == tier) return i;
  }
  return ~0u;
}

// What the pool looks like once every step was carried out.
inline void CarryOut(const Plan& plan, PoolView* view) {
  std::map<TableUid, PlanTable*> tables;
  for (PlanTable& table : view->tables) tables[table.uid] = &table;
  for (const PlanStep& step : plan) {
    PlanShard& shard = tables.at(step.table)->shards.at(step.shard.value());
    if (step.from) {
      const std::uint32_t from = IndexOf(*view, *step.from, step.from_tier);
      std::erase(shard.nodes, from);
      view->nodes[from].free_bytes += static_cast<std::int64_t>(shard.bytes);
    }
    if (step.to) {
      const std::uint32_t to = IndexOf(*view, *step.to, step.to_tier);
      shard.nodes.push_back(to);
      view->nodes[to].free_bytes -= static_cast<std::int64_t>(shard.bytes);
    }
  }
}

// Plans until nothing is left to do, at most `most` times; returns how many plans had steps.
inline int Settle(PoolView* view, const PlanLimits& limits = {}, int most = 50) {
  for (int count = 0; count < most; ++count) {
    const PlanResult result = MakePlan(*view, limits);
    if (result.plan.empty()) return count;
    CarryOut(result.plan, view);
  }
  return most;
}

inline std::set<std::string> NodesOfTable(const PoolView& view, std::size_t table = 0) {
  std::set<std::string> names;
  for (const PlanShard& shard : view.tables[table].shards) {
    for (std::uint32_t node : shard.nodes) names.insert(view.nodes[node].id.name);
  }
  return names;
}

inline double UseOf(const PoolView& view, std::uint32_t node) {
  double load = 0;
  for (const PlanTable& table : view.tables) {
    for (const PlanShard& shard : table.shards) {
      if (std::find(shard.nodes.begin(), shard.nodes.end(), node) == shard.nodes.end()) continue;
      load += shard.reads_per_second * table.row_bytes / static_cast<double>(shard.nodes.size());
    }
  }
  return load / static_cast<double>(view.nodes[node].read_bytes_per_second);
}

inline std::uint64_t BytesOf(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const PlanStep& step : plan) bytes += step.bytes;
  return bytes;
}

}  // namespace engram::placement
