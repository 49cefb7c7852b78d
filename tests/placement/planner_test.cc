#include "placement/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/placement/small_views.h"

namespace engram::placement {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A new table of equal shards on empty nodes.
PoolView NewTable(std::vector<PlanNode> nodes, std::size_t shards, std::uint64_t bytes,
                  std::uint32_t replicas = 1, std::uint32_t max_nodes = 0) {
  return {std::move(nodes), {TableOfShards("t", shards, bytes, replicas, max_nodes)}};
}

std::set<std::string> Targets(const Plan& plan) {
  std::set<std::string> nodes;
  for (const PlanStep& step : plan) nodes.insert(step.to->name);
  return nodes;
}

const std::vector<PlanNode> kThree = {Node("a", 100), Node("b", 100), Node("c", 100)};

TEST(PlaceTableTest, UsesAsFewNodesAsCapacityNeeds) {
  EXPECT_EQ(Targets(*PlaceTable(NewTable(kThree, 10, 10))).size(), 1u);
  EXPECT_EQ(Targets(*PlaceTable(NewTable(kThree, 11, 10))).size(), 2u);
  EXPECT_EQ(Targets(*PlaceTable(NewTable(kThree, 30, 10))).size(), 3u);
}

TEST(PlaceTableTest, SpreadsEvenlyOverTheNodesItUses) {
  std::map<std::string, int> shards;
  const Plan plan = *PlaceTable(NewTable(kThree, 24, 10));
  for (const PlanStep& step : plan) ++shards[step.to->name];
  EXPECT_EQ(shards, (std::map<std::string, int>{{"a", 8}, {"b", 8}, {"c", 8}}));
}

TEST(PlaceTableTest, ReplicasGoToDistinctFailureDomains) {
  const std::vector<PlanNode> nodes = {Node("a1", 1000, "rack1"), Node("a2", 1000, "rack1"),
                                       Node("b1", 1000, "rack2")};
  const auto plan = PlaceTable(NewTable(nodes, 5, 10, 2));
  ASSERT_TRUE(plan.ok());
  for (std::size_t i = 0; i < plan->size(); i += 2) {
    EXPECT_EQ((*plan)[i + 1].to->name, "b1");
    EXPECT_EQ((*plan)[i].shard, (*plan)[i + 1].shard);
  }
  EXPECT_EQ(PlaceTable(NewTable(nodes, 5, 10, 3)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PlaceTableTest, MaxNodesIsALimit) {
  EXPECT_TRUE(PlaceTable(NewTable(kThree, 20, 10, 1, 2)).ok());
  const auto tight = PlaceTable(NewTable(kThree, 21, 10, 1, 2));
  EXPECT_EQ(tight.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tight.status().message()), HasSubstr("at most 2 nodes"));
  EXPECT_EQ(PlaceTable(NewTable(kThree, 1, 10, 3, 2)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PlaceTableTest, SaysWhatDoesNotFitWhere) {
  const auto plan = PlaceTable(NewTable({Node("a", 10 << 20), Node("b", 20 << 20)}, 40, 1 << 20));
  EXPECT_THAT(std::string(plan.status().message()),
              AllOf(HasSubstr("t@1"), HasSubstr("40.0MiB"), HasSubstr("a 10.0MiB"),
                    HasSubstr("b 20.0MiB"), HasSubstr("start more pool nodes")));
  EXPECT_THAT(std::string(PlaceTable(NewTable({}, 1, 1)).status().message()),
              HasSubstr("none is alive"));
}

TEST(PlaceWhatFitsTest, PlacesAsManyCopiesOfEveryShardAsThereIsRoomFor) {
  const auto whole = PlaceWhatFits(NewTable(kThree, 5, 10, 3));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->plan.size(), 15u);
  EXPECT_EQ(whole->unmet, "");
  // Two of four copies: the third node has no room for a whole one.
  const auto two = PlaceWhatFits(NewTable({Node("a", 50), Node("b", 50), Node("c", 40)}, 5, 10, 4));
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->plan.size(), 10u);
  EXPECT_THAT(two->unmet, AllOf(HasSubstr("10 of 20 copies have no place"), HasSubstr("domains")));
  const auto none = PlaceWhatFits(NewTable({Node("a", 40)}, 5, 10, 2));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("it needs 50B (1 replica)"));
  EXPECT_EQ(PlaceWhatFits(NewTable(kThree, 1, 10, 3, 2)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PlaceTableTest, PrefersNodesThatHoldTheTable) {
  PoolView view = NewTable({Node("a", 100), Node("b", 60)}, 5, 10);
  view.tables[0].shards[0].nodes = {1};
  view.tables[0].shards[1].nodes = {1};
  EXPECT_EQ(Targets(*PlaceTable(view)), (std::set<std::string>{"b"}));
}

TEST(PlaceTableTest, AvoidsDomainsThatHaveTheShardAlready) {
  PoolView view = NewTable({Node("a", 100), Node("b", 100)}, 2, 10, 2);
  for (PlanShard& shard : view.tables[0].shards) shard.nodes = {0};
  EXPECT_EQ(Targets(*PlaceTable(view)), (std::set<std::string>{"b"}));
}

// ---- a pool that runs ----

// Two tables of ten shards on two nodes of three, settled.
PoolView Running(std::uint32_t replicas = 1) {
  PoolView view{kThree, {TableOfShards("t", 6, 10, replicas)}};
  Settle(&view);
  return view;
}

TEST(PlannerTest, APoolInOrderHasNoPlan) {
  const PoolView view = Running(2);
  const PlanResult result = MakePlan(view);
  EXPECT_TRUE(result.plan.empty());
  EXPECT_TRUE(result.unmet.empty());
}

TEST(PlannerTest, ALostNodesCopiesAreMadeElsewhereAndSayWhy) {
  PoolView view = Running(2);
  const std::uint32_t lost = view.tables[0].shards[0].nodes[0];
  view.nodes[lost].mode = NodeMode::kDead;
  const PlanResult result = MakePlan(view);
  ASSERT_EQ(result.plan.size(), 6u);
  for (const PlanStep& step : result.plan) {
    EXPECT_EQ(step.from, view.nodes[lost].id);
    EXPECT_EQ(step.goal, PlanGoal::kReplication);
    EXPECT_THAT(step.reason, AllOf(HasSubstr("is dead"), HasSubstr("1 of 2")));
  }
  CarryOut(result.plan, &view);
  EXPECT_TRUE(MakePlan(view).plan.empty());
}

TEST(PlannerTest, ACopyThatHasNoPlaceIsSaidAndTheOthersAreMade) {
  PoolView view{{Node("a", 100), Node("b", 20)}, {TableOfShards("t", 4, 10, 2)}};
  const PlanResult result = MakePlan(view);
  EXPECT_EQ(result.plan.size(), 6u);
  ASSERT_EQ(result.unmet.size(), 1u);
  EXPECT_THAT(result.unmet[0], AllOf(HasSubstr("t@1 lacks 2 copies"), HasSubstr("start more")));
}

TEST(PlannerTest, ADrainingNodeIsEmptied) {
  PoolView view = Running();
  const std::uint32_t holder = view.tables[0].shards[0].nodes[0];
  view.nodes[holder].mode = NodeMode::kDraining;
  const PlanResult result = MakePlan(view);
  EXPECT_EQ(result.plan.size(), 6u);
  for (const PlanStep& step : result.plan) {
    EXPECT_EQ(step.from, view.nodes[holder].id);
    EXPECT_THAT(step.reason, HasSubstr("drains"));
  }
  CarryOut(result.plan, &view);
  EXPECT_FALSE(NodesOfTable(view).contains(view.nodes[holder].id.name));
  EXPECT_TRUE(MakePlan(view).plan.empty());
}

TEST(PlannerTest, ADrainWithoutRoomElsewhereKeepsTheCopies) {
  PoolView view{{Node("a", 100)}, {TableOfShards("t", 2, 10)}};
  Settle(&view);
  view.nodes[0].mode = NodeMode::kDraining;
  const PlanResult result = MakePlan(view);
  EXPECT_TRUE(result.plan.empty());
  EXPECT_EQ(result.unmet.size(), 1u);
}

TEST(PlannerTest, ACordonedNodeKeepsWhatItHasAndGetsNothing) {
  PoolView view = Running();
  const std::uint32_t holder = view.tables[0].shards[0].nodes[0];
  view.nodes[holder].mode = NodeMode::kCordoned;
  EXPECT_TRUE(MakePlan(view).plan.empty());
  view.tables.push_back(TableOfShards("u", 2, 10));
  for (const PlanStep& step : MakePlan(view).plan) EXPECT_NE(step.to, view.nodes[holder].id);
}

TEST(PlannerTest, ANodeThatCameBackSmallerGivesSomeUp) {
  PoolView view = Running();
  const std::uint32_t holder = view.tables[0].shards[0].nodes[0];
  view.nodes[holder].free_bytes = -15;
  const PlanResult result = MakePlan(view);
  ASSERT_EQ(result.plan.size(), 2u);
  EXPECT_EQ(result.plan[0].goal, PlanGoal::kCapacity);
  CarryOut(result.plan, &view);
  EXPECT_TRUE(MakePlan(view).plan.empty());
}

TEST(PlannerTest, ATableLeavesNodesThatItDoesNotNeed) {
  PoolView view{kThree, {TableOfShards("t", 6, 10)}};
  for (std::uint32_t i = 0; i < 6; ++i) view.tables[0].shards[i].nodes = {i % 3};
  EXPECT_EQ(Settle(&view), 1);
  EXPECT_EQ(NodesOfTable(view).size(), 1u);
}

TEST(PlannerTest, ATableStaysWhereItsLoadNeedsTheNodes) {
  PoolView view{kThree, {TableOfShards("t", 6, 10)}};
  for (std::uint32_t i = 0; i < 6; ++i) {
    view.tables[0].shards[i].nodes = {i % 3};
    view.tables[0].shards[i].reads_per_second = 150;
  }
  EXPECT_EQ(Settle(&view), 0);
}

TEST(PlannerTest, MaxNodesIsRestored) {
  PoolView view{kThree, {TableOfShards("t", 6, 10, 1, 2)}};
  for (std::uint32_t i = 0; i < 6; ++i) {
    view.tables[0].shards[i].nodes = {i % 3};
    view.tables[0].shards[i].reads_per_second = 150;
  }
  EXPECT_LE(Settle(&view), 3);
  EXPECT_EQ(NodesOfTable(view).size(), 2u);
}

TEST(PlannerTest, AHotNodeHandsItsHottestShardsToTheLeastLoaded) {
  PoolView view{{Node("a", 1000), Node("b", 1000)}, {TableOfShards("t", 40, 10)}};
  for (std::uint32_t i = 0; i < 40; ++i) {
    view.tables[0].shards[i].nodes = {i < 24 ? 0u : 1u};
    view.tables[0].shards[i].reads_per_second = i < 24 ? 35 : 5;
  }
  const PlanResult result = MakePlan(view);
  EXPECT_NEAR(result.load_now, 0.84, 1e-9);
  EXPECT_LE(result.load_after, 1.05 * result.load_bound);
  EXPECT_EQ(result.plan.size(), 11u);  // 840 and 80 become 455 and 465
  EXPECT_THAT(result.plan[0].reason, HasSubstr("node a is read at 84.0%"));
  CarryOut(result.plan, &view);
  EXPECT_TRUE(MakePlan(view).plan.empty());
}

TEST(PlannerTest, AHotShardForWhichNoNodeHasRoomIsExchangedForColderOnes) {
  // Three of 400 on one node are 1.2 of what it can; any other would have 1.3 with one of them.
  PoolView view = NewTable(
      {Node("a", 10'000), Node("b", 10'000), Node("c", 10'000), Node("d", 10'000)}, 3 + 3 * 28, 10);
  for (std::uint32_t i = 0; i < view.tables[0].shards.size(); ++i) {
    PlanShard& shard = view.tables[0].shards[i];
    shard.reads_per_second = i < 3 ? 400 : 33;
    shard.nodes = {i < 3 ? 0 : 1 + i % 3};
  }
  const PlanResult result = MakePlan(view);
  EXPECT_NEAR(result.load_now, 1.2, 1e-9);
  EXPECT_LE(result.load_after, 1.05 * result.load_bound);
  CarryOut(result.plan, &view);
  EXPECT_TRUE(MakePlan(view).plan.empty());
}

TEST(PlannerTest, AnExchangeThatComesToNothingMovesNothing) {
  // One node has four of 400, the others three: nobody has a colder one.
  PoolView view = NewTable(
      {Node("a", 10'000), Node("b", 10'000), Node("c", 10'000), Node("d", 10'000)}, 13, 10);
  for (std::uint32_t i = 0; i < 13; ++i) {
    view.tables[0].shards[i].reads_per_second = 400;
    view.tables[0].shards[i].nodes = {i % 4};
  }
  const PlanResult result = MakePlan(view);
  EXPECT_TRUE(result.plan.empty());
  EXPECT_NEAR(result.load_after, 1.6, 1e-9);
}

TEST(PlannerTest, ANodeOutsideTheTableHelpsOnlyWhereItIsNeeded) {
  PoolView view{{Node("a", 1000), Node("b", 1000)}, {TableOfShards("t", 20, 10)}};
  for (PlanShard& shard : view.tables[0].shards) {
    shard.nodes = {0};
    shard.reads_per_second = 20;  // 0.4 of node a
  }
  EXPECT_TRUE(MakePlan(view).plan.empty());
  for (PlanShard& shard : view.tables[0].shards) shard.reads_per_second = 40;
  EXPECT_FALSE(MakePlan(view).plan.empty());
}

TEST(PlannerTest, ALoadThatSwingsDoesNotMakeShardsSwing) {
  PoolView view{{Node("a", 1000), Node("b", 1000)}, {TableOfShards("t", 40, 10)}};
  for (std::uint32_t i = 0; i < 40; ++i) view.tables[0].shards[i].nodes = {i % 2};
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t i = 0; i < 40; ++i) {
      view.tables[0].shards[i].reads_per_second = i % 2 == round % 2u ? 36 : 30;
    }
    EXPECT_TRUE(MakePlan(view).plan.empty()) << "round " << round;
  }
}

TEST(PlannerTest, AnIdlePoolIsLeftAlone) {
  PoolView view{{Node("a", 1000), Node("b", 1000)}, {TableOfShards("t", 4, 10)}};
  for (std::uint32_t i = 0; i < 4; ++i) view.tables[0].shards[i].nodes = {i == 0 ? 1u : 0u};
  view.tables[0].shards[3].reads_per_second = 0.5;
  for (const PlanStep& step : MakePlan(view).plan) EXPECT_NE(step.goal, PlanGoal::kLoad);
}

TEST(PlannerTest, AShardTooHotForOneNodeGetsCopiesAndLosesThemAgain) {
  PoolView view{kThree, {TableOfShards("t", 2, 10)}};
  Settle(&view);
  view.tables[0].shards[1].reads_per_second = 1'300;
  EXPECT_GE(Settle(&view), 1);
  EXPECT_EQ(view.tables[0].shards[1].nodes.size(), 3u);
  // Less hot, but not by half: the copies stay.
  view.tables[0].shards[1].reads_per_second = 800;
  EXPECT_EQ(Settle(&view), 0);
  view.tables[0].shards[1].reads_per_second = 50;
  Settle(&view);
  EXPECT_EQ(view.tables[0].shards[1].nodes.size(), 1u);
}

TEST(PlannerTest, WhatMovesIsLeftAlone) {
  PoolView view = Running();
  const std::uint32_t holder = view.tables[0].shards[0].nodes[0];
  view.nodes[holder].mode = NodeMode::kDraining;
  view.tables[0].shards[2].moving = true;
  for (const PlanStep& step : MakePlan(view).plan) EXPECT_NE(step.shard, ShardIndex(2));
}

TEST(PlannerTest, APlanMovesAtMostItsBytesAndTheNextGoesOn) {
  PoolView view = Running();
  view.nodes[view.tables[0].shards[0].nodes[0]].mode = NodeMode::kDraining;
  PlanLimits limits;
  limits.bytes = 25;
  const PlanResult first = MakePlan(view, limits);
  EXPECT_EQ(first.plan.size(), 2u);
  EXPECT_EQ(first.steps_later, 4u);
  EXPECT_EQ(Settle(&view, limits), 3);
  limits.bytes = 1;
  view.nodes[view.tables[0].shards[0].nodes[0]].mode = NodeMode::kDraining;
  EXPECT_EQ(MakePlan(view, limits).plan.size(), 1u);
}

TEST(PlannerTest, RepairsComeBeforeEverythingElse) {
  PoolView view{{Node("a", 1000), Node("b", 1000), Node("c", 1000)},
                {TableOfShards("t", 8, 10), TableOfShards("u", 2, 10, 2)}};
  for (PlanShard& shard : view.tables[0].shards) {
    shard.nodes = {0};
    shard.reads_per_second = 110;
  }
  for (PlanShard& shard : view.tables[1].shards) shard.nodes = {1};
  const Plan plan = MakePlan(view).plan;
  ASSERT_GT(plan.size(), 3u);
  EXPECT_EQ(plan[0].goal, PlanGoal::kReplication);
  EXPECT_EQ(plan[1].goal, PlanGoal::kReplication);
  EXPECT_EQ(plan[2].goal, PlanGoal::kLoad);
}

TEST(PlannerTest, UnlikeNodesCarryWhatTheyCan) {
  PoolView view{{Node("a", 1000), Node("b", 1000)}, {TableOfShards("t", 100, 1)}};
  view.nodes[1].read_bytes_per_second = 3'000;
  for (std::uint32_t i = 0; i < 100; ++i) {
    view.tables[0].shards[i].nodes = {i % 2};
    view.tables[0].shards[i].reads_per_second = 20;
  }
  Settle(&view);
  EXPECT_NEAR(UseOf(view, 0), 0.5, 0.03);
  EXPECT_NEAR(UseOf(view, 1), 0.5, 0.03);
}

// ---- tiers ----

PoolView TwoTiers(std::int64_t dram, std::int64_t nvme, std::size_t shards,
                  std::uint32_t replicas = 1) {
  PoolView view;
  for (const char* name : {"a", "b"}) {
    view.nodes.push_back(NodeTier(name, Tier::kDram, dram));
    view.nodes.push_back(NodeTier(name, Tier::kNvme, nvme, 100));
  }
  view.tables.push_back(TableOfShards("t", shards, 10, replicas));
  return view;
}

std::map<std::string, int> Places(const Plan& plan) {
  std::map<std::string, int> places;
  for (const PlanStep& step : plan) {
    ++places[step.to->name + "/" + std::string(engram::Name(step.to_tier))];
  }
  return places;
}

TEST(PlanTiersTest, ATableGoesToTheFastestTiersThatItFitsIn) {
  // In the dram of one node, of both, and then beside it.
  EXPECT_EQ(Places(*PlaceTable(TwoTiers(50, 1'000, 5))),
            (std::map<std::string, int>{{"a/dram", 5}}));
  EXPECT_EQ(Places(*PlaceTable(TwoTiers(50, 1'000, 10))),
            (std::map<std::string, int>{{"a/dram", 5}, {"b/dram", 5}}));
  const auto places = Places(*PlaceTable(TwoTiers(50, 1'000, 30)));
  EXPECT_EQ(places.at("a/dram"), 5);
  EXPECT_EQ(places.count("b/dram") + places.count("b/nvme"), 0u) << "one node is enough";
  EXPECT_EQ(places.at("a/nvme"), 25);
}

TEST(PlanTiersTest, TwoCopiesNeverShareANode) {
  PoolView view = TwoTiers(100, 1'000, 10, 2);
  CarryOut(*PlaceTable(view), &view);
  for (const PlanShard& shard : view.tables[0].shards) {
    ASSERT_EQ(shard.nodes.size(), 2u);
    EXPECT_NE(view.nodes[shard.nodes[0]].id, view.nodes[shard.nodes[1]].id);
  }
  view = TwoTiers(100, 1'000, 10, 3);
  EXPECT_EQ(PlaceTable(view).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanTiersTest, ARestrictedTableStaysInItsTiersAndSaysWhatTheyLack) {
  PoolView view = TwoTiers(1'000, 50, 5);
  view.tables[0].tiers = {Tier::kNvme};
  EXPECT_EQ(Places(*PlaceTable(view)), (std::map<std::string, int>{{"a/nvme", 5}}));
  view.tables[0] = TableOfShards("t", 11, 10);
  view.tables[0].tiers = {Tier::kNvme};
  const absl::Status full = PlaceTable(view).status();
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr("in nvme"), HasSubstr("a nvme 50"), HasSubstr("b nvme 50")));
}

TEST(PlanTiersTest, ATierInTroubleTakesNothingAndItsNodeGoesOn) {
  PoolView view = TwoTiers(20, 1'000, 5);
  view.nodes[1].mode = NodeMode::kCordoned;
  EXPECT_EQ(Places(*PlaceTable(view)).count("a/nvme"), 0u);
}

TEST(PlanTiersTest, WhatIsReadMostEndsInTheFastestTier) {
  PoolView view;
  view.nodes = {NodeTier("a", Tier::kNvme, 1'000, 100), NodeTier("b", Tier::kDram, 30, 2'000)};
  view.tables.push_back(TableOfShards("t", 10, 10));
  for (std::size_t i = 0; i < 10; ++i) {
    view.tables[0].shards[i].nodes = {0};
    view.tables[0].shards[i].reads_per_second = i < 3 ? 60 : 1;
  }
  Settle(&view);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(view.tables[0].shards[i].nodes, std::vector<std::uint32_t>{i < 3 ? 1u : 0u}) << i;
  }
}

TEST(PlanTiersTest, ForLoadNothingMovesToASlowerTier) {
  PoolView view;
  view.nodes = {NodeTier("a", Tier::kDram, 1'000, 1'000), NodeTier("b", Tier::kNvme, 1'000, 1'000)};
  view.tables.push_back(TableOfShards("t", 4, 10));
  for (PlanShard& shard : view.tables[0].shards) {
    shard.nodes = {0};
    shard.reads_per_second = 200;
  }
  EXPECT_EQ(Settle(&view), 0);
}

TEST(PlanTiersTest, MaxNodesCountsNodesNotTiers) {
  PoolView view = TwoTiers(50, 1'000, 30);
  view.tables[0].max_nodes = 1;
  CarryOut(*PlaceTable(view), &view);
  EXPECT_EQ(NodesOfTable(view).size(), 1u);
  EXPECT_EQ(Settle(&view), 0);
}

}  // namespace
}  // namespace engram::placement
