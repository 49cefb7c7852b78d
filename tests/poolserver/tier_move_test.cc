// A replica that moves to another tier of its node: what sessions are told, when memory is given
// back, and what is left when it fails at any step.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "poolserver/node_state.h"
#include "tests/poolserver/small_node.h"

namespace engram::poolserver {
namespace {

using std::chrono::seconds;

const std::vector<std::uint32_t> kMovedCrcs{11, 12, 13};

class TierMoveTest : public testing::Test {
 protected:
  TierMoveTest() : random_(1), state_(SmallNode(), &random_) {
    Feed(ControllerConnected{});
    Feed(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), seconds(1'000'000), seconds(5)}});
    Load(Tier::kDram);
    Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
    Expose(1);
    OpenSession open;
    open.node = {"node-0"};
    open.incarnation = Incarnation(7);
    open.tables = {TableOf(1).uid};
    Feed(ClientSaid{StreamId(1), open});
    Renew(1);
    news_.reset();
  }
  // Heartbeats are seen at once.
  std::vector<Action> Feed(Event event) {
    std::vector<Action> actions = state_.OnEvent(now_, std::move(event));
    for (const SendToController& send : All<SendToController>(actions)) {
      const auto* beat = std::get_if<NodeHeartbeat>(&send.message);
      if (beat == nullptr) continue;
      if (!beat->changed.empty()) news_ = beat->changed.back();
      Feed(ControllerSaid{HeartbeatSeen{beat->sequence, Epoch(1)}});
    }
    return actions;
  }
  std::vector<Action> Load(Tier tier) {
    return Feed(ControllerSaid{Command{++commands_, Incarnation(7), FencingToken(3),
                                       LoadReplicas{TableOf(1), {ShardIndex(0)}, tier}}});
  }
  std::vector<Action> Retire() {
    return Feed(ControllerSaid{Command{++commands_, Incarnation(7), FencingToken(3),
                                       RetireReplicas{TableOf(1).uid, {ShardIndex(0)}, {}}}});
  }
  static RegistrationKey Key(std::uint32_t registration) {
    return {Shard(0), RegistrationId(registration)};
  }
  std::vector<Action> Expose(std::uint32_t registration, bool bearer_keys = false) {
    return Feed(
        ReplicaExposed{Key(registration), {{0, 4096, 64, 100 + registration}}, bearer_keys, {}});
  }
  std::vector<Action> Renew(std::uint64_t applied) {
    return Feed(ClientSaid{StreamId(1), RenewLease{++renewals_, GrantRevision(applied)}});
  }
  // What the controller was told of the replica since the last look; nothing when nothing changed.
  std::optional<ReplicaReport> News() { return std::exchange(news_, std::nullopt); }
  static GrantUpdate UpdateOf(const std::vector<Action>& actions) {
    for (const SendToClient& send : All<SendToClient>(actions)) {
      const auto* update = std::get_if<GrantUpdate>(&send.message);
      if (update != nullptr) return *update;
    }
    return {};
  }
  static bool Releases(const std::vector<Action>& actions, Tier tier) {
    const auto released = All<ReleaseMemory>(actions);
    return released.size() == 1 && released[0].shard == Shard(0) && released[0].tier == tier;
  }
  const Replica& replica() { return *state_.FindReplica(Shard(0)); }

  Instant now_{seconds(100)};
  SeededRandom random_;
  NodeState state_;
  std::uint64_t commands_ = 0;
  std::uint64_t renewals_ = 0;
  std::optional<ReplicaReport> news_;
};

TEST_F(TierMoveTest, IsCopiedServedFromThereAndFreedWhereItWasWhenItsReadersLeft) {
  auto actions = Load(Tier::kNvme);
  const auto loads = All<StartLoad>(actions);
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].tier, Tier::kNvme);
  EXPECT_EQ(loads[0].from, Tier::kDram);
  EXPECT_TRUE(UpdateOf(actions).granted.empty()) << "it is read where it is meanwhile";
  EXPECT_TRUE(All<StartLoad>(Load(Tier::kNvme)).empty()) << "told again";

  actions = Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  ASSERT_EQ(All<ExposeReplica>(actions).size(), 1u);
  EXPECT_EQ(All<ExposeReplica>(actions)[0].registration, Key(2));
  EXPECT_EQ(All<ExposeReplica>(actions)[0].tier, Tier::kNvme);
  EXPECT_EQ(replica().tier(), Tier::kDram);

  actions = Expose(2);
  const GrantUpdate update = UpdateOf(actions);
  ASSERT_EQ(update.granted.size(), 1u);
  EXPECT_EQ(update.granted[0].tier, Tier::kNvme);
  EXPECT_EQ(update.withdrawn.size(), 1u);
  EXPECT_TRUE(All<HideReplica>(actions).empty()) << "the session may still read the old memory";
  EXPECT_EQ(state_.counters().tier_moves, 1u);

  actions = Renew(2);
  ASSERT_EQ(All<HideReplica>(actions).size(), 1u);
  EXPECT_EQ(All<HideReplica>(actions)[0].registration, Key(1));
  EXPECT_TRUE(Releases(Feed(ReplicaHidden{Key(1)}), Tier::kDram));
  EXPECT_EQ(replica().state(), ReplicaState::kServing);
  EXPECT_EQ(replica().tier(), Tier::kNvme);
}

TEST_F(TierMoveTest, TheControllerHearsOfItOnceItServesFromThere) {
  Load(Tier::kNvme);
  EXPECT_FALSE(News());
  Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  EXPECT_FALSE(News());
  Expose(2);
  const std::optional<ReplicaReport> report = News();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->tier, Tier::kNvme);
  EXPECT_EQ(report->state, ReplicaState::kServing);
  EXPECT_EQ(report->block_crcs, kMovedCrcs);
}

TEST_F(TierMoveTest, ACopyThatFailsLeavesItWhereItWasAndSaysWhy) {
  Load(Tier::kNvme);
  const auto actions = Feed(LoadEnded{Shard(0), absl::ResourceExhaustedError("the disk is full")});
  EXPECT_TRUE(Releases(actions, Tier::kNvme));
  EXPECT_TRUE(UpdateOf(actions).withdrawn.empty());
  const std::optional<ReplicaReport> report = News();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->tier, Tier::kDram);
  EXPECT_EQ(report->state, ReplicaState::kServing);
  EXPECT_EQ(report->error.message(), "the disk is full");
  EXPECT_EQ(All<StartLoad>(Load(Tier::kNvme)).size(), 1u) << "and it can be tried again";
}

TEST_F(TierMoveTest, ACopyWithOtherChecksumsIsNeverServed) {
  Load(Tier::kNvme);
  const auto actions = Feed(ReplicaLoaded{Shard(0), {11, 12, 14}});
  EXPECT_TRUE(All<ExposeReplica>(actions).empty());
  EXPECT_TRUE(Releases(actions, Tier::kNvme));
  EXPECT_EQ(News()->error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(replica().tier(), Tier::kDram);
}

TEST_F(TierMoveTest, ACopyThatNoFabricTakesIsGivenBack) {
  Load(Tier::kNvme);
  Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  const auto actions = Feed(ExposeFailed{Key(2), absl::FailedPreconditionError("no stream")});
  EXPECT_TRUE(Releases(actions, Tier::kNvme));
  EXPECT_TRUE(All<ExposeReplica>(actions).empty());
  EXPECT_EQ(replica().state(), ReplicaState::kServing);
  EXPECT_EQ(News()->error.message(), "no stream");
}

TEST_F(TierMoveTest, KeysThatARevocationLeftToTheMoveAreChangedWhenItFails) {
  Load(Tier::kCxl);
  Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  Expose(2, true);
  Renew(2);
  Feed(ReplicaHidden{Key(1)});
  Load(Tier::kDram);
  Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  const auto exposed = All<ExposeReplica>(Feed(ExposeFailed{Key(3), absl::InternalError("no")}));
  ASSERT_EQ(exposed.size(), 1u);
  EXPECT_EQ(exposed[0].registration, Key(4));
  EXPECT_EQ(exposed[0].tier, Tier::kCxl);
}

TEST_F(TierMoveTest, ARetirementStopsTheCopyAndWaitsForIt) {
  Load(Tier::kNvme);
  EXPECT_EQ(All<StopLoad>(Retire()).size(), 1u);
  EXPECT_TRUE(All<HideReplica>(Feed(ClientSaid{StreamId(1), Goodbye{}})).empty());
  const auto actions = Feed(LoadEnded{Shard(0), absl::CancelledError("stopped")});
  EXPECT_TRUE(Releases(actions, Tier::kNvme));
  ASSERT_EQ(All<HideReplica>(actions).size(), 1u);
  EXPECT_TRUE(Releases(Feed(ReplicaHidden{Key(1)}), Tier::kDram));
  EXPECT_EQ(state_.FindReplica(Shard(0)), nullptr);
}

TEST_F(TierMoveTest, ARetirementWhileBothAreRegisteredFreesBoth) {
  Load(Tier::kNvme);
  Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  Retire();
  EXPECT_EQ(All<HideReplica>(Expose(2)).size(), 1u) << "nobody was told of it";
  EXPECT_TRUE(Releases(Feed(ReplicaHidden{Key(2)}), Tier::kNvme));
  EXPECT_EQ(All<HideReplica>(Feed(ClientSaid{StreamId(1), Goodbye{}})).size(), 1u);
  EXPECT_TRUE(Releases(Feed(ReplicaHidden{Key(1)}), Tier::kDram));
  EXPECT_EQ(state_.FindReplica(Shard(0)), nullptr);
}

TEST_F(TierMoveTest, TheWayBackWaitsUntilTheMemoryIsFree) {
  Load(Tier::kNvme);
  Feed(ReplicaLoaded{Shard(0), kMovedCrcs});
  Expose(2);
  const auto status = [](const std::vector<Action>& actions) {
    for (const SendToController& send : All<SendToController>(actions)) {
      if (const auto* done = std::get_if<CommandDone>(&send.message)) return done->status;
    }
    return absl::OkStatus();
  };
  EXPECT_EQ(status(Load(Tier::kDram)).code(), absl::StatusCode::kUnavailable);
  Renew(2);
  Feed(ReplicaHidden{Key(1)});
  const auto actions = Load(Tier::kDram);
  ASSERT_EQ(All<StartLoad>(actions).size(), 1u);
  EXPECT_EQ(All<StartLoad>(actions)[0].from, Tier::kNvme);
}

}  // namespace
}  // namespace engram::poolserver
