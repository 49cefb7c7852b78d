#include "bench/driver/placement_pool.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engram/random.h"

namespace engram::bench {
namespace {

using placement::NodeMode;
using placement::PlanLimits;
using placement::PlanNode;
using placement::PlanShard;
using placement::PlanTable;
using placement::PoolView;

constexpr std::uint32_t kColumnShards = 1'024;
constexpr std::uint64_t kMeanStrength = std::uint64_t{4} << 30;  // bytes a second
constexpr double kGoal = 1.05;

double Uniform(Random& random) { return static_cast<double>(random.Next() >> 11) * 0x1p-53; }

PlanNode NewNode(std::size_t number, Random& random) {
  PlanNode node;
  node.id.name = absl::StrFormat("node-%05d", static_cast<int>(number));
  node.failure_domain = absl::StrCat("rack-", number / 20);
  node.free_bytes = std::int64_t{1} << 40;
  node.read_bytes_per_second =
      static_cast<std::uint64_t>(static_cast<double>(kMeanStrength) * (0.5 + Uniform(random)));
  return node;
}

// A power law of the shard's rank whose hottest one of kColumnShards is `peak` times the mean.
void HeatColumn(std::span<PlanShard> column, double peak, Random& random) {
  double low = 0, high = 2;
  const auto ratio = [&](double exponent) {
    double sum = 0;
    for (std::uint32_t i = 1; i <= kColumnShards; ++i) sum += std::pow(i, -exponent);
    return kColumnShards / sum;
  };
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (ratio(middle) < peak ? low : high) = middle;
  }
  for (std::size_t i = 0; i < column.size(); ++i) {
    column[i].reads_per_second = std::pow(static_cast<double>(i + 1), -low);
  }
  for (std::size_t i = column.size(); i > 1; --i) {
    std::swap(column[i - 1].reads_per_second, column[random.Below(i)].reads_per_second);
  }
}

PlanTable NewTable(std::uint32_t number, const PoolShape& shape, Random& random) {
  PlanTable table;
  table.uid = random.Bits<TableUidTag>();
  table.name = {absl::StrCat("table-", number), "1"};
  table.row_bytes = 272;
  table.shards.resize(shape.shards / shape.tables);
  for (PlanShard& shard : table.shards) shard.bytes = shape.shard_bytes;
  for (std::size_t at = 0; at < table.shards.size(); at += kColumnShards) {
    const std::size_t end = std::min<std::size_t>(at + kColumnShards, table.shards.size());
    HeatColumn(std::span(table.shards).subspan(at, end - at), 11 + 20 * Uniform(random), random);
  }
  for (PlanShard& shard : table.shards) shard.reads_per_second /= number + 1;
  return table;
}

std::vector<double> Loads(const PoolView& view) {
  std::vector<double> loads(view.nodes.size(), 0);
  for (const PlanTable& table : view.tables) {
    for (const PlanShard& shard : table.shards) {
      for (std::uint32_t node : shard.nodes) {
        loads[node] +=
            shard.reads_per_second * table.row_bytes / static_cast<double>(shard.nodes.size());
      }
    }
  }
  return loads;
}

double Strength(const PlanNode& node) { return static_cast<double>(node.read_bytes_per_second); }

std::uint32_t Choose(Rule rule, std::uint64_t hash, const PoolView& view,
                     const std::vector<double>& loads, Random& random) {
  const auto count = static_cast<std::uint32_t>(view.nodes.size());
  const auto use = [&](std::uint32_t node) { return loads[node] / Strength(view.nodes[node]); };
  if (rule == Rule::kHash) return static_cast<std::uint32_t>(hash % count);
  if (rule == Rule::kTwoChoices) {
    const auto one = static_cast<std::uint32_t>(random.Below(count));
    const auto other = static_cast<std::uint32_t>(random.Below(count));
    return use(one) <= use(other) ? one : other;
  }
  std::uint32_t best = 0;
  for (std::uint32_t node = 1; node < count; ++node) {
    if (use(node) < use(best)) best = node;
  }
  return best;
}

}  // namespace

PoolView MakePool(const PoolShape& shape) {
  SeededRandom random(shape.seed);
  PoolView view;
  double strength = 0, load = 0;
  for (std::uint32_t i = 0; i < shape.nodes; ++i) {
    view.nodes.push_back(NewNode(i, random));
    strength += Strength(view.nodes.back());
  }
  for (std::uint32_t i = 0; i < shape.tables; ++i) {
    view.tables.push_back(NewTable(i, shape, random));
    for (const PlanShard& shard : view.tables.back().shards) {
      load += shard.reads_per_second * view.tables.back().row_bytes;
    }
  }
  for (PlanTable& table : view.tables) {
    for (PlanShard& shard : table.shards) shard.reads_per_second *= shape.use * strength / load;
  }
  return view;
}

void AddNode(PoolView* view, std::uint64_t seed) {
  SeededRandom random(seed);
  view->nodes.push_back(NewNode(view->nodes.size(), random));
}

void CarryOut(const placement::Plan& plan, PoolView* view) {
  std::map<TableUid, PlanTable*> tables;
  std::map<NodeId, std::uint32_t> nodes;
  for (PlanTable& table : view->tables) tables[table.uid] = &table;
  for (std::uint32_t i = 0; i < view->nodes.size(); ++i) nodes[view->nodes[i].id] = i;
  for (const placement::PlanStep& step : plan) {
    PlanShard& shard = tables.at(step.table)->shards.at(step.shard.value());
    if (step.from) std::erase(shard.nodes, nodes.at(*step.from));
    if (step.to) shard.nodes.push_back(nodes.at(*step.to));
  }
}

double MaxLoad(const PoolView& view) {
  const std::vector<double> loads = Loads(view);
  double most = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    most = std::max(most, loads[i] / Strength(view.nodes[i]));
  }
  return most;
}

double LoadBound(const PoolView& view, const PlanLimits& limits) {
  double strength = 0, strongest = 0, load = 0, hottest = 0;
  for (const PlanNode& node : view.nodes) {
    if (node.mode != NodeMode::kAlive) continue;
    strength += Strength(node);
    strongest = std::max(strongest, Strength(node));
  }
  for (const PlanTable& table : view.tables) {
    for (const PlanShard& shard : table.shards) {
      load += shard.reads_per_second * table.row_bytes;
      hottest = std::max(hottest, shard.reads_per_second * table.row_bytes / limits.most_copies);
    }
  }
  return std::max(load / strength, hottest / strongest);
}

std::uint64_t BytesBound(const PoolView& view, const PlanLimits& limits) {
  const double goal = kGoal * LoadBound(view, limits);
  const std::vector<double> loads = Loads(view);
  std::vector<std::vector<std::pair<double, std::uint64_t>>> held(view.nodes.size());
  for (const PlanTable& table : view.tables) {
    for (const PlanShard& shard : table.shards) {
      for (std::uint32_t node : shard.nodes) {
        held[node].emplace_back(
            shard.reads_per_second * table.row_bytes / static_cast<double>(shard.nodes.size()),
            shard.bytes);
      }
    }
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::sort(held[i].rbegin(), held[i].rend());
    double load = loads[i];
    const bool leaves = view.nodes[i].mode != NodeMode::kAlive;
    for (const auto& [share, size] : held[i]) {
      if (!leaves && load <= goal * Strength(view.nodes[i])) break;
      load -= share;
      bytes += size;
    }
  }
  return bytes;
}

std::uint64_t BytesOf(const placement::Plan& plan) {
  std::uint64_t bytes = 0;
  for (const placement::PlanStep& step : plan) bytes += step.bytes;
  return bytes;
}

void PlaceBy(Rule rule, std::uint64_t seed, PoolView* view) {
  SeededRandom random(seed);
  std::vector<double> loads(view->nodes.size(), 0);
  for (PlanTable& table : view->tables) {
    for (PlanShard& shard : table.shards) {
      // The hash of a shard does not depend on the nodes; all else may.
      const std::uint64_t hash = random.Next();
      SeededRandom choice(hash);
      const std::uint32_t node = Choose(rule, hash, *view, loads, choice);
      shard.nodes = {node};
      loads[node] += shard.reads_per_second * table.row_bytes;
    }
  }
}

std::uint64_t BytesMovedBy(Rule rule, std::uint64_t seed, const PoolView& before) {
  PoolView after = before;
  PlaceBy(rule, seed, &after);
  std::uint64_t bytes = 0;
  for (std::size_t t = 0; t < before.tables.size(); ++t) {
    for (std::size_t i = 0; i < before.tables[t].shards.size(); ++i) {
      const PlanShard& shard = before.tables[t].shards[i];
      if (shard.nodes != after.tables[t].shards[i].nodes) bytes += shard.bytes;
    }
  }
  return bytes;
}

}  // namespace engram::bench
