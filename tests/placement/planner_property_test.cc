// The planner over thousands of small random pools: what must hold whatever the input.
#include <gtest/gtest.h>

#include "tests/placement/small_views.h"

namespace engram::placement {
namespace {

// Whatever the input: capacity and domains hold, every copy is placed, and where shards are of one
// size a place is found whenever one exists (each domain takes min(free / size, shards) of them).
TEST(PlaceTablePropertyTest, HoldsItsInvariants) {
  SeededRandom random(11);
  int planned = 0, refused = 0;
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t count = 1 + random.Below(8), shards = 1 + random.Below(40);
    const auto replicas = static_cast<std::uint32_t>(1 + random.Below(3));
    PoolView view;
    std::map<std::string, std::uint64_t> room;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string domain = "d" + std::to_string(random.Below(count));
      const std::uint64_t places = random.Below(30);
      view.nodes.push_back(
          Node("n" + std::to_string(i), static_cast<std::int64_t>(places * 10), domain));
      room[domain] += places;
    }
    view.tables.push_back(TableOfShards("t", shards, 10, replicas));
    std::uint64_t possible = 0;
    for (const auto& [domain, copies] : room) possible += std::min<std::uint64_t>(copies, shards);
    const auto plan = PlaceTable(view);
    ASSERT_EQ(plan.ok(), possible >= shards * replicas) << "round " << round;
    ++(plan.ok() ? planned : refused);
    if (!plan.ok()) continue;
    ASSERT_EQ(plan->size(), shards * replicas);
    CarryOut(*plan, &view);
    for (const PlanNode& node : view.nodes) ASSERT_GE(node.free_bytes, 0);
    for (const PlanShard& shard : view.tables[0].shards) {
      std::set<std::string> domains;
      for (std::uint32_t node : shard.nodes) domains.insert(view.nodes[node].failure_domain);
      ASSERT_EQ(domains.size(), replicas);
    }
  }
  EXPECT_GT(planned, 200);
  EXPECT_GT(refused, 200);
}

class RandomPool {
 public:
  explicit RandomPool(std::uint64_t seed) : random_(seed) {}

  // Nodes of several modes and tiers, tables that are partly placed, shards of several sizes, some
  // hot.
  PoolView Make(bool one_tier = false) {
    PoolView view;
    const std::size_t nodes = 1 + random_.Below(10);
    for (std::size_t i = 0; i < nodes; ++i) {
      PlanNode node = Node("n" + std::to_string(i), static_cast<std::int64_t>(random_.Below(600)),
                           random_.Below(3) == 0 ? "" : "d" + std::to_string(random_.Below(5)));
      if (random_.Below(5) == 0) node.mode = static_cast<NodeMode>(1 + random_.Below(3));
      if (random_.Below(8) == 0) node.free_bytes = -static_cast<std::int64_t>(random_.Below(30));
      node.read_bytes_per_second = 500 + random_.Below(1'000);
      view.nodes.push_back(node);
      // Other tiers of the same node, with room and a read rate of their own.
      for (const Tier tier : {Tier::kCxl, Tier::kNvme}) {
        if (random_.Below(4) != 0 || one_tier) continue;
        node.tier = tier;
        node.free_bytes = static_cast<std::int64_t>(random_.Below(1'000));
        node.read_bytes_per_second = 50 + random_.Below(500);
        view.nodes.push_back(node);
      }
    }
    const std::size_t tables = random_.Below(4);
    for (std::size_t t = 0; t < tables; ++t) view.tables.push_back(MakeTable(t, view));
    return view;
  }

  // A view that says the same in another order.
  PoolView Shuffle(const PoolView& view) {
    PoolView out;
    std::vector<std::uint32_t> order(view.nodes.size()), place(view.nodes.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.Below(i)]);
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      out.nodes.push_back(view.nodes[order[i]]);
    }
    out.tables.assign(view.tables.rbegin(), view.tables.rend());
    for (PlanTable& table : out.tables) {
      for (PlanShard& shard : table.shards) {
        for (std::uint32_t& node : shard.nodes) node = place[node];
      }
    }
    return out;
  }

 private:
  // A node has one copy of a shard at most.
  bool Holds(const PoolView& view, const PlanShard& shard, std::uint32_t node) const {
    return std::any_of(shard.nodes.begin(), shard.nodes.end(), [&](std::uint32_t other) {
      return view.nodes[other].id == view.nodes[node].id;
    });
  }
  PlanTable MakeTable(std::size_t number, const PoolView& view) {
    const auto replicas = static_cast<std::uint32_t>(1 + random_.Below(3));
    PlanTable table =
        TableOfShards("t" + std::to_string(number), 1 + random_.Below(20), 10, replicas);
    if (random_.Below(3) == 0) {
      table.max_nodes = replicas + static_cast<std::uint32_t>(random_.Below(4));
    }
    if (random_.Below(4) == 0) table.tiers = {Tier::kDram, Tier::kNvme};
    for (PlanShard& shard : table.shards) {
      if (random_.Below(4) == 0) shard.bytes = 1 + random_.Below(20);
      if (random_.Below(2) == 0) shard.reads_per_second = static_cast<double>(random_.Below(200));
      for (std::uint64_t copies = random_.Below(replicas + 2); copies > 0; --copies) {
        const auto node = static_cast<std::uint32_t>(random_.Below(view.nodes.size()));
        if (!Holds(view, shard, node)) shard.nodes.push_back(node);
      }
      shard.moving = random_.Below(20) == 0;
    }
    return table;
  }

  SeededRandom random_;
};

std::set<NodeId> Members(const PoolView& view, const PlanTable& table) {
  std::set<NodeId> members;
  for (const PlanShard& shard : table.shards) {
    for (std::uint32_t node : shard.nodes) {
      if (view.nodes[node].mode <= NodeMode::kCordoned) members.insert(view.nodes[node].id);
    }
  }
  return members;
}

std::size_t Domains(const PoolView& view, const PlanShard& shard) {
  std::set<std::string> domains;
  for (std::uint32_t node : shard.nodes) {
    const PlanNode& one = view.nodes[node];
    if (one.mode <= NodeMode::kCordoned) domains.insert(DomainOf(one.id, one.failure_domain));
  }
  return domains.size();
}

// What a step may never do.
void CheckStep(const PoolView& before, const PlanStep& step) {
  ASSERT_TRUE(step.from || step.to);
  ASSERT_FALSE(step.reason.empty());
  if (step.to) {
    const PlanNode& to = before.nodes[IndexOf(before, *step.to, step.to_tier)];
    ASSERT_EQ(to.mode, NodeMode::kAlive);
    ASSERT_GT(step.bytes, 0u);
    ASSERT_NE(step.from, step.to) << "nothing moves inside a node";
    for (const PlanTable& table : before.tables) {
      if (table.uid != step.table || table.tiers.empty()) continue;
      ASSERT_NE(step.to_tier, Tier::kCxl) << "a tier that the table may not use";
    }
  }
}

void CheckAfter(const PoolView& before, const PoolView& after) {
  for (std::size_t i = 0; i < after.nodes.size(); ++i) {
    ASSERT_GE(after.nodes[i].free_bytes, std::min<std::int64_t>(0, before.nodes[i].free_bytes));
  }
  for (std::size_t t = 0; t < after.tables.size(); ++t) {
    const PlanTable& table = after.tables[t];
    if (table.max_nodes != 0) {
      ASSERT_LE(Members(after, table).size(),
                std::max<std::size_t>(table.max_nodes, Members(before, before.tables[t]).size()));
    }
    for (std::size_t i = 0; i < table.shards.size(); ++i) {
      const PlanShard& shard = table.shards[i];
      const PlanShard& was = before.tables[t].shards[i];
      std::set<NodeId> holders;
      for (std::uint32_t node : shard.nodes) holders.insert(after.nodes[node].id);
      ASSERT_EQ(holders.size(), shard.nodes.size()) << "two copies on one node";
      if (shard.moving) {
        ASSERT_EQ(shard.nodes, was.nodes);
      }
      const std::size_t domains = Domains(after, shard);
      ASSERT_GE(domains, std::min<std::size_t>(table.replicas, Domains(before, was)));
      // Never the last copy.
      const auto alive = [](const PoolView& view, const PlanShard& one) {
        return std::count_if(one.nodes.begin(), one.nodes.end(), [&](std::uint32_t node) {
          return view.nodes[node].mode != NodeMode::kDead;
        });
      };
      ASSERT_GE(alive(after, shard), std::min<std::ptrdiff_t>(1, alive(before, was)));
    }
  }
}

TEST(PlannerPropertyTest, KeepsCapacityDomainsAndLimitsAndComesToRest) {
  int planned = 0;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    SCOPED_TRACE(seed);
    PoolView view = RandomPool(seed).Make();
    int plans = 0;
    for (;; ++plans) {
      ASSERT_LT(plans, 12) << "it does not come to rest";
      const PlanResult result = MakePlan(view);
      if (result.plan.empty()) break;
      const PoolView before = view;
      for (const PlanStep& step : result.plan) ASSERT_NO_FATAL_FAILURE(CheckStep(before, step));
      CarryOut(result.plan, &view);
      ASSERT_NO_FATAL_FAILURE(CheckAfter(before, view));
    }
    planned += plans > 0;
  }
  EXPECT_GT(planned, 1'000);
}

TEST(PlannerPropertyTest, APlanThatWasCarriedOutLeavesNothingToPlanWhereThereIsRoom) {
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    SCOPED_TRACE(seed);
    // With several tiers a copy may have to leave its node first to come back to a faster one.
    PoolView view = RandomPool(seed).Make(true);
    for (PlanNode& node : view.nodes) node.free_bytes = 100'000;
    const PlanResult first = MakePlan(view);
    CarryOut(first.plan, &view);
    const PlanResult second = MakePlan(view);
    ASSERT_TRUE(second.plan.empty()) << Name(second.plan[0].goal) << ": " << second.plan[0].reason;
    ASSERT_NEAR(second.load_now, first.load_after, 1e-3);
  }
}

TEST(PlannerPropertyTest, DoesNotDependOnTheOrderOfNodesAndTables) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomPool pool(seed);
    const PoolView view = pool.Make();
    const PlanResult one = MakePlan(view), other = MakePlan(pool.Shuffle(view));
    ASSERT_EQ(one.plan, other.plan);
    ASSERT_EQ(one.unmet, other.unmet);
  }
}

}  // namespace
}  // namespace engram::placement
