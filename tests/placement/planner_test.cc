#include "placement/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engram/random.h"

namespace engram::placement {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PlanView View(std::vector<PlanNode> nodes, std::size_t shards, std::uint64_t bytes,
              std::uint32_t replicas = 1, std::uint32_t max_nodes = 0) {
  PlanView view{{"t", "1"}, std::move(nodes), {}, replicas, max_nodes};
  for (std::size_t i = 0; i < shards; ++i) {
    view.shards.push_back({ShardIndex(static_cast<std::uint32_t>(i)), bytes, replicas, {}});
  }
  return view;
}

std::set<NodeId> NodesOf(const Plan& plan) {
  std::set<NodeId> nodes;
  for (const Placement& placement : plan) nodes.insert(placement.node);
  return nodes;
}

TEST(PlannerTest, UsesAsFewNodesAsCapacityNeeds) {
  const std::vector<PlanNode> nodes = {
      {{"a"}, "", 100, 0}, {{"b"}, "", 100, 0}, {{"c"}, "", 100, 0}};
  EXPECT_EQ(NodesOf(*MakePlan(View(nodes, 10, 10))).size(), 1u);
  EXPECT_EQ(NodesOf(*MakePlan(View(nodes, 11, 10))).size(), 2u);
  EXPECT_EQ(NodesOf(*MakePlan(View(nodes, 30, 10))).size(), 3u);
}

TEST(PlannerTest, SpreadsEvenlyOverTheNodesItUses) {
  const std::vector<PlanNode> nodes = {
      {{"a"}, "", 100, 0}, {{"b"}, "", 100, 0}, {{"c"}, "", 100, 0}};
  std::map<NodeId, int> shards;
  const Plan plan = *MakePlan(View(nodes, 24, 10));
  for (const Placement& placement : plan) ++shards[placement.node];
  EXPECT_EQ(shards, (std::map<NodeId, int>{{{"a"}, 8}, {{"b"}, 8}, {{"c"}, 8}}));
}

TEST(PlannerTest, ReplicasGoToDistinctFailureDomains) {
  const std::vector<PlanNode> nodes = {
      {{"a1"}, "rack1", 1000, 0}, {{"a2"}, "rack1", 1000, 0}, {{"b1"}, "rack2", 1000, 0}};
  const auto plan = MakePlan(View(nodes, 5, 10, 2));
  ASSERT_TRUE(plan.ok());
  for (std::size_t i = 0; i < plan->size(); i += 2) {
    EXPECT_EQ((*plan)[i + 1].node.name, "b1");
    EXPECT_EQ((*plan)[i].shard, (*plan)[i + 1].shard);
  }
  EXPECT_EQ(MakePlan(View(nodes, 5, 10, 3)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlannerTest, MaxNodesIsALimit) {
  const std::vector<PlanNode> nodes = {
      {{"a"}, "", 100, 0}, {{"b"}, "", 100, 0}, {{"c"}, "", 100, 0}};
  EXPECT_TRUE(MakePlan(View(nodes, 20, 10, 1, 2)).ok());
  const auto tight = MakePlan(View(nodes, 21, 10, 1, 2));
  EXPECT_EQ(tight.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tight.status().message()), HasSubstr("at most 2 nodes"));
  EXPECT_EQ(MakePlan(View(nodes, 1, 10, 3, 2)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlannerTest, SaysWhatDoesNotFitWhere) {
  const auto plan =
      MakePlan(View({{{"a"}, "", 10 << 20, 0}, {{"b"}, "", 20 << 20, 0}}, 40, 1 << 20));
  EXPECT_THAT(std::string(plan.status().message()),
              AllOf(HasSubstr("t@1"), HasSubstr("40.0MiB"), HasSubstr("a 10.0MiB"),
                    HasSubstr("b 20.0MiB"), HasSubstr("start more pool nodes")));
  EXPECT_THAT(std::string(MakePlan(View({}, 1, 1)).status().message()), HasSubstr("none is alive"));
}

TEST(PlannerTest, PrefersNodesThatHoldTheTable) {
  PlanView view = View({{{"a"}, "", 100, 0}, {{"b"}, "", 60, 20}}, 3, 10);
  EXPECT_EQ(NodesOf(*MakePlan(view)), (std::set<NodeId>{{"b"}}));
}

TEST(PlannerTest, AvoidsDomainsThatHaveTheShardAlready) {
  PlanView view = View({{{"a"}, "", 100, 20}, {{"b"}, "", 100, 0}}, 2, 10, 2);
  for (PlanShard& shard : view.shards) {
    shard.wanted = 1;
    shard.domains_taken = {DomainOf({"a"}, "")};
  }
  EXPECT_EQ(NodesOf(*MakePlan(view)), (std::set<NodeId>{{"b"}}));
}

TEST(PlannerTest, DoesNotDependOnTheOrderOfNodes) {
  SeededRandom random(3);
  std::vector<PlanNode> nodes;
  for (int i = 0; i < 20; ++i) {
    nodes.push_back(
        {{"n" + std::to_string(i)}, "d" + std::to_string(i % 5), 100 + random.Below(50), 0});
  }
  const Plan plan = *MakePlan(View(nodes, 60, 10, 3));
  for (int round = 0; round < 10; ++round) {
    std::swap(nodes[random.Below(20)], nodes[random.Below(20)]);
    EXPECT_EQ(*MakePlan(View(nodes, 60, 10, 3)), plan);
  }
}

// Whatever the input: capacity and domains hold, every copy is placed, and where shards are of one
// size a plan is found whenever one exists (each domain takes min(free / size, shards) of them).
TEST(PlannerPropertyTest, HoldsItsInvariants) {
  SeededRandom random(11);
  int planned = 0, refused = 0;
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t count = 1 + random.Below(8), shards = 1 + random.Below(40);
    const auto replicas = static_cast<std::uint32_t>(1 + random.Below(3));
    std::map<std::string, std::uint64_t> room;
    std::map<NodeId, std::pair<std::string, std::uint64_t>> known;
    std::vector<PlanNode> nodes;
    for (std::size_t i = 0; i < count; ++i) {
      PlanNode node{{"n" + std::to_string(i)},
                    "d" + std::to_string(random.Below(count)),
                    random.Below(30) * 10,
                    0};
      room[node.failure_domain] += node.free_bytes / 10;
      known[node.id] = {node.failure_domain, node.free_bytes};
      nodes.push_back(node);
    }
    std::uint64_t possible = 0;
    for (const auto& [domain, copies] : room) possible += std::min<std::uint64_t>(copies, shards);
    const auto plan = MakePlan(View(nodes, shards, 10, replicas));
    ASSERT_EQ(plan.ok(), possible >= shards * replicas) << "round " << round;
    if (!plan.ok()) {
      ++refused;
      continue;
    }
    ++planned;
    ASSERT_EQ(plan->size(), shards * replicas);
    std::map<ShardIndex, std::set<std::string>> domains;
    for (const Placement& placement : *plan) {
      auto& [domain, free] = known.at(placement.node);
      ASSERT_GE(free, 10u);
      free -= 10;
      ASSERT_TRUE(domains[placement.shard].insert(domain).second);
    }
  }
  EXPECT_GT(planned, 200);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace engram::placement
