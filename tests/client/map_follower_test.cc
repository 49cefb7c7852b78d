#include "client/map_follower.h"

#include <gtest/gtest.h>

namespace engram::client {
namespace {

using std::chrono::seconds;
using Action = MapFollower::Action;

MapDelta DeltaOf(std::uint64_t from, std::uint64_t to) {
  MapDelta delta;
  delta.from = Epoch(from);
  delta.to = Epoch(to);
  delta.nodes = {{{"node-" + std::to_string(to)}, Incarnation(1), "", "", true}};
  return delta;
}

class MapFollowerTest : public testing::Test {
 protected:
  std::vector<Action> Feed(const MapFollower::Event& event) {
    std::vector<Action> actions = follower_.OnEvent(now_, event);
    for (const Action& action : actions) {
      if (const auto* ask = std::get_if<MapFollower::Subscribe>(&action)) asked_ = *ask;
    }
    return actions;
  }
  std::vector<Action> Deliver(std::uint64_t from, std::uint64_t to) {
    return Feed(MapFollower::DeltaArrived{asked_.subscription, DeltaOf(from, to)});
  }

  Instant now_{seconds(100)};
  MapFollower follower_;
  MapFollower::Subscribe asked_;
};

TEST_F(MapFollowerTest, StartsFromASnapshotAndFollowsDeltas) {
  Feed(MapFollower::Start{});
  EXPECT_EQ(asked_.from, Epoch(0));
  Deliver(0, 5);
  const auto actions = Deliver(5, 6);
  ASSERT_EQ(actions.size(), 1u);
  const auto& map = std::get<MapFollower::UseMap>(actions[0]).map;
  EXPECT_EQ(map->epoch(), Epoch(6));
  EXPECT_EQ(map->nodes().size(), 2u);
}

TEST_F(MapFollowerTest, AsksForASnapshotOnAGap) {
  Feed(MapFollower::Start{});
  Deliver(0, 5);
  const auto before = asked_.subscription;
  Deliver(6, 7);
  EXPECT_EQ(asked_.from, Epoch(0));
  EXPECT_GT(asked_.subscription, before);
  EXPECT_EQ(follower_.map()->epoch(), Epoch(5));
  Deliver(0, 8);
  EXPECT_EQ(follower_.map()->epoch(), Epoch(8));
}

TEST_F(MapFollowerTest, KeepsTheLastMapWhileTheControllerIsAwayAndAsksAgainFromIt) {
  Feed(MapFollower::Start{});
  Deliver(0, 5);
  Feed(MapFollower::StreamLost{asked_.subscription});
  EXPECT_FALSE(follower_.connected());
  EXPECT_EQ(follower_.map()->epoch(), Epoch(5));
  ASSERT_TRUE(follower_.NextTimer());
  EXPECT_TRUE(Feed(MapFollower::Timer{}).empty());
  now_ = *follower_.NextTimer();
  Feed(MapFollower::Timer{});
  EXPECT_EQ(asked_.from, Epoch(5));
}

TEST_F(MapFollowerTest, IgnoresAnEarlierStream) {
  Feed(MapFollower::Start{});
  const auto old = asked_.subscription;
  Feed(MapFollower::StreamLost{old});
  now_ = *follower_.NextTimer();
  Feed(MapFollower::Timer{});
  EXPECT_TRUE(Feed(MapFollower::DeltaArrived{old, DeltaOf(0, 9)}).empty());
  Feed(MapFollower::StreamLost{old});
  EXPECT_FALSE(follower_.NextTimer());
}

TEST_F(MapFollowerTest, TheEpochNeverGoesBack) {
  Feed(MapFollower::Start{});
  Deliver(0, 5);
  EXPECT_TRUE(Deliver(0, 4).empty());
  EXPECT_EQ(follower_.map()->epoch(), Epoch(5));
}

TEST_F(MapFollowerTest, BacksOffLongerWhileNobodyAnswers) {
  Feed(MapFollower::Start{});
  Duration last{};
  for (int i = 0; i < 4; ++i) {
    Feed(MapFollower::StreamLost{asked_.subscription});
    const Duration wait = *follower_.NextTimer() - now_;
    EXPECT_GT(wait, last);
    last = wait;
    now_ = *follower_.NextTimer();
    Feed(MapFollower::Timer{});
  }
}

}  // namespace
}  // namespace engram::client
