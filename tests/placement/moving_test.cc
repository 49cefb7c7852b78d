// Moves of shards, drains, repairs: what happens when, and when whom dies.
#include <algorithm>

#include "engram/shard_sum.h"
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using namespace std::chrono_literals;  // NOLINT: times of a test
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class MovingTest : public ::testing::Test {
 protected:
  MovingTest() : pool_(1, Options()) {}
  static ControllerOptions Options() {
    ControllerOptions options;
    options.repair_after = 20s;
    options.moves_per_node = 2;
    return options;
  }
  void LoadSmall(std::vector<FakeNode*> nodes, std::uint32_t replicas = 1) {
    for (FakeNode* node : nodes) pool_.Join(*node);
    ASSERT_TRUE(pool_.Load(SmallLoad("r1", replicas))->ok());
    pool_.Settle(nodes);
    ASSERT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  }
  ShardKey Key(std::uint32_t shard) { return {pool_.Find(kSmall)->record.uid, ShardIndex(shard)}; }
  // Every shard is served by `copies` nodes and by nobody else.
  void ExpectServed(std::size_t copies) {
    for (std::uint32_t shard = 0; shard < 6; ++shard) {
      EXPECT_EQ(pool_.Holders(shard).size(), copies) << shard;
      EXPECT_EQ(pool_.Find(kSmall)->Replicas(ShardIndex(shard)).size(), copies) << shard;
    }
    EXPECT_THAT(pool_.state().moves, IsEmpty());
  }
  // One round: nodes obey and speak, time goes on.
  void Round(std::vector<FakeNode*> nodes) { pool_.Settle(nodes, 1); }

  SmallPool pool_;
  FakeNode a_{"a"}, b_{"b"}, c_{"c"};
};

TEST_F(MovingTest, AShardIsPulledServedAndHandedOver) {
  LoadSmall({&a_});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.Move(3, "", "b").ok()) << pool_.last_move.status();
  ASSERT_EQ(b_.commands.size(), 1u);
  const auto& load = std::get<LoadReplicas>(b_.commands[0].body);
  EXPECT_THAT(load.shards, ElementsAre(ShardIndex(3)));
  EXPECT_EQ(load.source, (Successor{{"a"}, a_.hello.incarnation, "a:1"}));
  EXPECT_THAT(load.sums, ElementsAre(SumOf(CrcsOf(load.table, ShardIndex(3)))));
  EXPECT_THAT(pool_.Holders(3), ElementsAre("a"));

  b_.Obey();
  pool_.Beat(b_);
  EXPECT_THAT(pool_.Holders(3), UnorderedElementsAre("a", "b"));
  EXPECT_THAT(a_.commands, IsEmpty());  // clients first learn where it is
  pool_.Settle({&b_}, 2);
  EXPECT_THAT(pool_.Holders(3), ElementsAre("b"));
  EXPECT_THAT(pool_.Holders(3, ReplicaState::kDraining), ElementsAre("a"));
  a_.Obey();
  pool_.Beat(a_);
  EXPECT_THAT(a_.successors[Key(3)], ElementsAre(Successor{{"b"}, b_.hello.incarnation, "b:1"}));
  EXPECT_EQ(a_.held.size(), 5u);
  ExpectServed(1);
}

TEST_F(MovingTest, DryRunMovesNothing) {
  LoadSmall({&a_});
  pool_.Join(b_);
  EXPECT_TRUE(pool_.Move(3, "", "b", true).ok());
  EXPECT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain, true).ok());
  EXPECT_EQ(pool_.last_intent->moves.size(), 6u);
  pool_.Settle({&a_, &b_});
  EXPECT_THAT(b_.held, IsEmpty());
}

TEST_F(MovingTest, ImpossibleMovesAreRefusedWithTheReason) {
  FakeNode twin("twin", 1 << 30, "rack"), small("small", 3 << 20), d("d", 1 << 30, "rack");
  LoadSmall({&twin, &b_}, 2);
  for (FakeNode* node : {&small, &d}) pool_.Join(*node);
  EXPECT_THAT(MessageOf(pool_.Move(0, "b", "d").status()), HasSubstr("failure domain"));
  EXPECT_THAT(MessageOf(pool_.Move(0, "b", "small").status()), HasSubstr("free"));
  EXPECT_THAT(MessageOf(pool_.Move(0, "", "small").status()), HasSubstr("--from"));
  EXPECT_THAT(MessageOf(pool_.Move(9, "b", "small").status()), HasSubstr("no shard 9"));
  EXPECT_EQ(pool_.Move(0, "b", "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pool_.Move(0, "b", "twin").status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(pool_.SetIntent(d, NodeIntent::kCordon).ok());
  EXPECT_THAT(MessageOf(pool_.Move(0, "twin", "d").status()), HasSubstr("uncordon"));
  EXPECT_THAT(pool_.state().moves, IsEmpty());
}

TEST_F(MovingTest, ADrainedNodeEndsEmptyAFewShardsAtATime) {
  LoadSmall({&a_, &b_}, 1);
  pool_.Join(c_);
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain).ok());
  for (int round = 0; round < 40 && !a_.held.empty(); ++round) {
    std::uint64_t loading = 0;
    for (std::uint32_t shard = 0; shard < 6; ++shard) {
      EXPECT_FALSE(pool_.Holders(shard).empty());
      loading += pool_.Holders(shard, ReplicaState::kLoading).size();
    }
    EXPECT_LE(loading, 4u);
    Round({&a_, &b_, &c_});
  }
  EXPECT_THAT(a_.held, IsEmpty());
  Round({&a_, &b_, &c_});
  ExpectServed(1);
}

// Two may be pulled at one time, but nobody waits for the next look at the node.
TEST_F(MovingTest, SmallShardsOfADrainedNodeWaitInLineForItsPulls) {
  LoadSmall({&a_});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain).ok());
  Round({&a_});
  EXPECT_EQ(pool_.state().moves.size(), 6u);
}

TEST_F(MovingTest, ATableIsNotPlacedWhereMovesThatWaitWillGo) {
  FakeNode small("small", 10 << 20);
  LoadSmall({&a_});
  pool_.Join(small);
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain).ok());
  Round({&a_});
  LoadRequest other = SmallLoad("r2", 1);
  other.name = {"other", "1"};
  const auto refused = pool_.Load(other);
  ASSERT_FALSE(refused->ok());
  EXPECT_THAT(MessageOf(refused->status()), HasSubstr("free"));
}

TEST_F(MovingTest, ADrainSaysThatItWaitsForATableThatIsBeingLoaded) {
  pool_.Join(a_);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 1))->ok());
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain).ok());
  pool_.Settle({}, 2);
  EXPECT_THAT(pool_.state().live.at({"a"})->note, HasSubstr("small@1 is being loaded"));
}

TEST_F(MovingTest, NothingNewGoesToACordonedNodeUntilItIsUncordoned) {
  for (FakeNode* node : {&a_, &b_}) pool_.Join(*node);
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kCordon).ok());
  pool_.Restart();
  for (FakeNode* node : {&a_, &b_}) pool_.Join(*node);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  pool_.Settle({&a_, &b_});
  EXPECT_THAT(a_.held, IsEmpty());
  EXPECT_EQ(b_.held.size(), 6u);
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kUncordon).ok());
  EXPECT_TRUE(pool_.Move(0, "b", "a").ok());
}

TEST_F(MovingTest, UncordonEndsADrain) {
  LoadSmall({&a_});
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain).ok());
  pool_.Settle({&a_});
  EXPECT_THAT(pool_.state().live.at({"a"})->note, HasSubstr("waits"));
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kUncordon).ok());
  pool_.Join(b_);
  pool_.Settle({&a_, &b_});
  EXPECT_EQ(a_.held.size(), 6u);
  EXPECT_THAT(pool_.state().live.at({"a"})->note, IsEmpty());
}

TEST_F(MovingTest, AMoveGoesOnAfterTheControllerDiedAtAnyStep) {
  for (int steps = 0; steps < 8; ++steps) {
    SmallPool pool(1, Options());
    FakeNode a("a"), b("b");
    pool.Join(a);
    ASSERT_TRUE(pool.Load(SmallLoad("r1"))->ok());
    pool.Settle({&a});
    pool.Join(b);
    ASSERT_TRUE(pool.Move(3, "a", "b").ok());
    pool.Settle({&a, &b}, steps, 200ms);
    pool.Restart();
    pool.Join(a);
    pool.Join(b);
    pool.Settle({&a, &b}, 10);
    EXPECT_THAT(pool.Holders(3), ElementsAre("b")) << steps;
    EXPECT_EQ(a.held.size(), 5u) << steps;
    EXPECT_THAT(pool.state().moves, IsEmpty()) << steps;
  }
}

TEST_F(MovingTest, AMoveWhoseTargetDiesIsDropped) {
  LoadSmall({&a_});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.Move(3, "a", "b").ok());
  pool_.Break(b_);
  pool_.Settle({&a_}, 14);
  EXPECT_THAT(pool_.state().moves, IsEmpty());
  EXPECT_THAT(pool_.Holders(3), ElementsAre("a"));
  // It comes back with what it had pulled: nobody wants it.
  b_.Obey();
  pool_.Join(b_);
  pool_.Settle({&a_, &b_});
  EXPECT_THAT(b_.held, IsEmpty());
  ExpectServed(1);
}

TEST_F(MovingTest, ATargetThatStartsAnewGoesOnWithTheMove) {
  LoadSmall({&a_});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.Move(3, "a", "b").ok());
  pool_.Break(b_);
  FakeNode again("b", 1 << 30, "", "2");
  pool_.Join(again);
  pool_.Settle({&a_, &again}, 10);
  EXPECT_THAT(pool_.Holders(3), ElementsAre("b"));
  EXPECT_EQ(again.held.size(), 1u);
}

TEST_F(MovingTest, AMoveWhoseSourceDiesFallsBackToTheTablesSource) {
  LoadSmall({&a_});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.Move(3, "a", "b").ok());
  pool_.Break(a_);
  b_.load_error = absl::UnavailableError("node a is silent");
  b_.Obey();
  b_.load_error = absl::OkStatus();
  pool_.Settle({&b_}, 30);
  EXPECT_THAT(pool_.Holders(3), ElementsAre("b"));
  EXPECT_EQ(b_.held.at(Key(3)).source, std::nullopt);
}

TEST_F(MovingTest, APullThatFailsIsTriedFromTheNextCopyAndThenFromTheSource) {
  LoadSmall({&a_, &b_}, 2);
  pool_.Join(c_);
  ASSERT_TRUE(pool_.Move(3, "b", "c").ok());
  std::vector<std::string> sources;
  c_.load_error = absl::UnavailableError("silent");
  for (int round = 0; round < 60 && sources.size() < 4; ++round) {
    for (const Command& command : c_.commands) {
      if (const auto* load = std::get_if<LoadReplicas>(&command.body)) {
        sources.push_back(load->source ? load->source->node.name : "table");
      }
    }
    Round({&a_, &b_, &c_});
  }
  EXPECT_THAT(sources, ElementsAre("b", "a", "table", "b"));
}

TEST_F(MovingTest, AReplicaThatSaysThatItServesOtherBytesDoesNotTakeOver) {
  LoadSmall({&a_});
  pool_.Join(b_);
  b_.corrupt = true;
  ASSERT_TRUE(pool_.Move(3, "a", "b").ok());
  for (int round = 0; round < 30; ++round) {
    Round({&a_, &b_});
    EXPECT_THAT(pool_.Holders(3), ElementsAre("a"));
  }
}

TEST_F(MovingTest, ReplicasOfALostNodeAreMadeElsewhereFromTheOtherCopy) {
  LoadSmall({&a_, &b_}, 2);
  pool_.Join(c_);
  pool_.Break(b_);
  pool_.Settle({&a_, &c_}, 30);  // 15 s: dead, not lost
  EXPECT_THAT(c_.held, IsEmpty());
  pool_.Settle({&a_, &c_}, 60);
  EXPECT_EQ(c_.held.size(), 6u);
  for (const auto& [key, held] : c_.held) EXPECT_EQ(held.source->node.name, "a");
  ExpectServed(2);
  // It comes back with its memory, which nobody wants any more.
  pool_.Join(b_);
  pool_.Settle({&a_, &b_, &c_});
  EXPECT_THAT(b_.held, IsEmpty());
  ExpectServed(2);
}

TEST_F(MovingTest, DrainedNodesOfBothFailureDomainsEndEmpty) {
  FakeNode a("a", 1 << 30, "r1"), b("b", 1 << 30, "r2"), c("c", 1 << 30, "r1"),
      d("d", 1 << 30, "r2");
  LoadSmall({&a, &b}, 2);
  pool_.Join(c);
  pool_.Join(d);
  ASSERT_TRUE(pool_.SetIntent(a, NodeIntent::kDrain).ok());
  ASSERT_TRUE(pool_.SetIntent(b, NodeIntent::kDrain).ok());
  pool_.Settle({&a, &b, &c, &d}, 60);
  EXPECT_THAT(a.held, IsEmpty());
  EXPECT_THAT(b.held, IsEmpty());
  EXPECT_EQ(c.held.size(), 6u);
  EXPECT_EQ(d.held.size(), 6u);
  ExpectServed(2);
}

TEST_F(MovingTest, TheLastCopyOfALostNodeComesFromTheTablesSource) {
  LoadSmall({&a_});
  pool_.Join(b_);
  pool_.Break(a_);
  pool_.Settle({&b_}, 90);
  EXPECT_EQ(b_.held.size(), 6u);
  EXPECT_EQ(b_.held.at(Key(0)).source, std::nullopt);
  ExpectServed(1);
}

TEST_F(MovingTest, ANodeThatIsBackBeforeItsRepairKeepsItsReplicas) {
  LoadSmall({&a_, &b_}, 2);
  pool_.Join(c_);
  pool_.Break(b_);
  pool_.Settle({&a_}, 53);
  for (FakeNode* node : {&c_}) node->commands.clear();
  pool_.Join(b_);
  pool_.Settle({&a_, &b_, &c_}, 20);
  ExpectServed(2);
  EXPECT_EQ(b_.held.size(), 6u);
  EXPECT_THAT(c_.held, IsEmpty());
}

TEST_F(MovingTest, AWithdrawnReplicaIsMadeAnewFromTheOtherCopy) {
  LoadSmall({&a_, &b_}, 2);
  const ShardKey key = Key(2);
  b_.changed.push_back(
      {key, Tier::kDram, ReplicaState::kDraining, {}, absl::DataLossError("a bit flipped")});
  pool_.Beat(b_);
  EXPECT_THAT(pool_.Holders(2), ElementsAre("a"));
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.controller().counters().replicas_suspect, 1u);
  b_.held.erase(key);
  b_.changed.push_back({key, Tier::kDram, ReplicaState::kRetired, {}, absl::OkStatus()});
  pool_.Settle({&a_, &b_});
  EXPECT_EQ(b_.held.at(key).source->node.name, "a");
  ExpectServed(2);
}

TEST_F(MovingTest, MovesOfADeletedTableGoWithIt) {
  LoadSmall({&a_});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.Move(3, "a", "b").ok());
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Settle({&a_, &b_});
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
  EXPECT_THAT(pool_.state().moves, IsEmpty());
  EXPECT_THAT(a_.held, IsEmpty());
  EXPECT_THAT(b_.held, IsEmpty());
  pool_.Restart();
  EXPECT_THAT(pool_.state().moves, IsEmpty());
}

// ---- tiers ----

TEST_F(MovingTest, ANewTableFillsTheFastestTierThenTheNext) {
  // Room for two of six shards of about 1 MiB beside what is kept free.
  a_.hello.tiers = {{Tier::kDram, 5 << 20, 0, 0}, {Tier::kCxl, 1 << 30, 0, 0}};
  LoadSmall({&a_});
  std::map<Tier, int> held;
  for (const auto& [key, one] : a_.held) ++held[one.tier];
  EXPECT_GT(held[Tier::kDram], 0);
  EXPECT_GT(held[Tier::kCxl], 0);
  EXPECT_EQ(held[Tier::kDram] + held[Tier::kCxl], 6);
  for (std::uint32_t shard = 0; shard < 6; ++shard) {
    EXPECT_EQ(pool_.Find(kSmall)->Replicas(ShardIndex(shard))[0].tier, a_.held.at(Key(shard)).tier);
  }
}

TEST_F(MovingTest, AShardMovesToTheTierThatIsNamed) {
  LoadSmall({&a_});
  b_.hello.tiers.push_back({Tier::kNvme, 1 << 30, 0, 0});
  pool_.Join(b_);
  EXPECT_EQ(pool_.Move(3, "", "b", false, Tier::kCxl).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(pool_.Move(3, "", "b", false, Tier::kNvme).ok()) << pool_.last_move.status();
  EXPECT_EQ(std::get<LoadReplicas>(b_.commands.at(0).body).tier, Tier::kNvme);
  pool_.Settle({&a_, &b_});
  ASSERT_EQ(pool_.Find(kSmall)->Replicas(ShardIndex(3)).size(), 1u);
  EXPECT_EQ(pool_.Find(kSmall)->Replicas(ShardIndex(3))[0],
            (MapReplica{{"b"}, Tier::kNvme, ReplicaState::kServing}));
}

class TierMovingTest : public MovingTest {
 protected:
  void SetUp() override {
    a_.hello.tiers.push_back({Tier::kNvme, 1 << 30, 0, 0});
    LoadSmall({&a_});
  }
  Tier TierOf(std::uint32_t shard) {
    return pool_.Find(kSmall)->Replicas(ShardIndex(shard))[0].tier;
  }
};

TEST_F(TierMovingTest, ACopyMovesToAnotherTierOfItsNodeAndServesAllTheTime) {
  ASSERT_TRUE(pool_.Move(3, "", "a", false, Tier::kNvme).ok()) << pool_.last_move.status();
  EXPECT_EQ(pool_.last_move->from, NodeId{"a"});
  ASSERT_EQ(a_.commands.size(), 1u);
  EXPECT_EQ(std::get<LoadReplicas>(a_.commands[0].body).tier, Tier::kNvme);
  EXPECT_THAT(pool_.Holders(3), ElementsAre("a"));
  EXPECT_EQ(TierOf(3), Tier::kDram);
  Round({&a_});
  EXPECT_EQ(TierOf(3), Tier::kNvme);
  EXPECT_THAT(pool_.state().moves, IsEmpty());
  EXPECT_THAT(pool_.Holders(3), ElementsAre("a"));
  // And back.
  ASSERT_TRUE(pool_.Move(3, "a", "a", false, Tier::kDram).ok()) << pool_.last_move.status();
  Round({&a_});
  EXPECT_EQ(TierOf(3), Tier::kDram);
  ExpectServed(1);
}

TEST_F(TierMovingTest, WhereItIsAlreadyNothingMoves) {
  EXPECT_EQ(pool_.Move(3, "", "a", false, Tier::kDram).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(pool_.Move(3, "", "a", false, Tier::kCxl).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(a_.commands, IsEmpty());
}

TEST_F(TierMovingTest, TheRoomThatItWillTakeIsCounted) {
  const auto room = [&] { return pool_.state().RoomForMoves().at({{"a"}, Tier::kNvme}); };
  const std::uint64_t before = room();
  ASSERT_TRUE(pool_.Move(3, "", "a", false, Tier::kNvme).ok());
  ASSERT_TRUE(pool_.state().moves.begin()->second->started);
  EXPECT_LT(room(), before);
}

TEST_F(TierMovingTest, AMoveThatFailsIsTriedAgainAndGivenUpInTheEnd) {
  a_.load_error = absl::ResourceExhaustedError("the disk is full");
  ASSERT_TRUE(pool_.Move(3, "", "a", false, Tier::kNvme).ok());
  Round({&a_});
  EXPECT_EQ(pool_.state().moves.size(), 1u);
  EXPECT_THAT(pool_.state().move_notes.at(Key(3)), HasSubstr("the disk is full"));
  EXPECT_THAT(pool_.Holders(3), ElementsAre("a"));
  pool_.Settle({&a_}, 100);
  EXPECT_EQ(TierOf(3), Tier::kDram);
  ExpectServed(1);
}

TEST_F(TierMovingTest, ItGoesOnAfterTheControllerDied) {
  ASSERT_TRUE(pool_.Move(3, "", "a", false, Tier::kNvme).ok());
  pool_.Restart();
  pool_.Join(a_);
  pool_.Settle({&a_});
  EXPECT_EQ(TierOf(3), Tier::kNvme);
  ExpectServed(1);
}

TEST_F(TierMovingTest, ANodeThatStartsAnewLoadsItWhereItWasAndMovesIt) {
  ASSERT_TRUE(pool_.Move(3, "", "a", false, Tier::kNvme).ok());
  pool_.Break(a_);
  FakeNode again("a", std::uint64_t{1} << 30, "", "2");
  again.hello.tiers = a_.hello.tiers;
  pool_.Join(again);
  again.Obey(false);
  EXPECT_EQ(again.held.at(Key(3)).tier, Tier::kDram);
  again.FinishLoads();
  pool_.Settle({&again});
  EXPECT_EQ(again.held.at(Key(3)).tier, Tier::kNvme);
  EXPECT_EQ(TierOf(3), Tier::kNvme);
  ExpectServed(1);
}

TEST_F(TierMovingTest, ANodeThatDiesGivesTheShardUpToItsRepair) {
  ASSERT_TRUE(pool_.Move(3, "", "a", false, Tier::kNvme).ok());
  pool_.Join(b_);
  pool_.Break(a_);
  pool_.Settle({&b_}, 80);
  EXPECT_THAT(pool_.Holders(3), ElementsAre("b"));
  EXPECT_THAT(pool_.state().moves, IsEmpty());
}

TEST_F(MovingTest, WithoutATierAShardMovesToTheFastestWithRoom) {
  LoadSmall({&a_});
  b_.hello.tiers = {{Tier::kDram, 1 << 20, 1 << 20, 0}, {Tier::kCxl, 1 << 30, 0, 0}};
  pool_.Join(b_);
  ASSERT_TRUE(pool_.Move(0, "", "b").ok()) << pool_.last_move.status();
  EXPECT_EQ(pool_.last_move->to_tier, Tier::kCxl);
}

TEST_F(MovingTest, ATierInTroubleTakesNothing) {
  LoadSmall({&a_});
  b_.hello.tiers[0].trouble = "the device is gone";
  pool_.Join(b_);
  EXPECT_EQ(pool_.Move(0, "", "b").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MovingTest, ADrainedTierIsReplacedByTheSameTierElsewhere) {
  a_.hello.tiers = {{Tier::kCxl, 1 << 30, 0, 0}};
  LoadSmall({&a_});
  b_.hello.tiers.push_back({Tier::kCxl, 1 << 30, 0, 0});
  pool_.Join(b_);
  ASSERT_TRUE(pool_.SetIntent(a_, NodeIntent::kDrain).ok());
  pool_.Settle({&a_, &b_}, 40);
  EXPECT_TRUE(a_.held.empty());
  EXPECT_EQ(b_.held.size(), 6u);
  for (const auto& [key, one] : b_.held) EXPECT_EQ(one.tier, Tier::kCxl);
}

}  // namespace
}  // namespace engram::placement
