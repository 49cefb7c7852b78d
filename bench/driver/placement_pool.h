// Pools for the placement figures: nodes and tables of a given size with the skew of real text, and
// what the planner is compared with: simple rules, and bounds that no placement beats. Pure and
// seeded. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "placement/plan/planner.h"

namespace engram::bench {

struct PoolShape {
  std::uint32_t nodes = 1'000;
  std::uint32_t shards = 100'000;
  std::uint32_t tables = 20;
  std::uint64_t shard_bytes = std::uint64_t{1} << 20;
  double use = 0.7;  // of all nodes' read bandwidth
  std::uint64_t seed = 1;
};

// Nothing is placed yet. Nodes are unlike (a half to one and a half of the mean), tables of unlike
// popularity (the i-th is read 1 / i as much a byte as the first), and in a column of 1,024 shards
// the hottest is read 11 to 31 times the mean (ENGRAM section 6).
placement::PoolView MakePool(const PoolShape& shape);
// One more node like those of the pool.
void AddNode(placement::PoolView* view, std::uint64_t seed);
void CarryOut(const placement::Plan& plan, placement::PoolView* view);

// Highest load of a node.
double MaxLoad(const placement::PoolView& view);
// Total load over all nodes, or the hottest shard in as many copies as it may have.
double LoadBound(const placement::PoolView& view, const placement::PlanLimits& limits);
// The least bytes that must move before no node is above 1.05 of the bound: all of the draining
// nodes, and from every other its hottest shards until it is not.
std::uint64_t BytesBound(const placement::PoolView& view, const placement::PlanLimits& limits);
std::uint64_t BytesOf(const placement::Plan& plan);

// Every shard of a view where nothing is placed, once.
enum class Rule { kHash, kGreedy, kTwoChoices };
void PlaceBy(Rule rule, std::uint64_t seed, placement::PoolView* view);
// Bytes of the shards that `rule` would have elsewhere.
std::uint64_t BytesMovedBy(Rule rule, std::uint64_t seed, const placement::PoolView& before);

}  // namespace engram::bench
