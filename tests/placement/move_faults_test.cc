// Moves whose ends die at any step, and nodes that have no room after all.
#include <tuple>

#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using namespace std::chrono_literals;  // NOLINT: times of a test
using ::testing::IsEmpty;

using MoveFaultsTest = ControllerTest;

// A move of shard 3 from a to b, of which one end dies after some steps, and the controller with it
// or not, for good or to come back with what it has.
class MoveDeathTest : public ::testing::TestWithParam<std::tuple<int, bool, bool, bool>> {};

TEST_P(MoveDeathTest, EveryShardIsServedOnceInTheEnd) {
  const auto& [steps, target_dies, controller_dies, comes_back] = GetParam();
  ControllerOptions options;
  options.repair_after = 20s;
  SmallPool pool(1, options);
  FakeNode a("a"), b("b");
  pool.Join(a);
  ASSERT_TRUE(pool.Load(SmallLoad("r1"))->ok());
  pool.Settle({&a});
  pool.Join(b);
  ASSERT_TRUE(pool.Move(3, "a", "b").ok());
  pool.Settle({&a, &b}, steps, 200ms);
  FakeNode &dies = target_dies ? b : a, &lives = target_dies ? a : b;
  if (controller_dies) {
    pool.Restart();
    pool.Join(lives);
  } else {
    pool.Break(dies);
  }
  // Dead after 5 s and repaired after 20 more, or back in between.
  pool.Settle({&lives}, comes_back ? 20 : 100);
  if (comes_back) {
    pool.Join(dies);
    pool.Settle({&a, &b}, 40);
  }
  EXPECT_THAT(pool.state().moves, IsEmpty());
  for (std::uint32_t shard = 0; shard < 6; ++shard) {
    ASSERT_EQ(pool.Holders(shard).size(), 1u) << shard;
    EXPECT_EQ(pool.Find(kSmall)->Replicas(ShardIndex(shard)).size(), 1u) << shard;
    const std::string holder = pool.Holders(shard).front();
    if (!comes_back) {
      EXPECT_EQ(holder, lives.hello.node.name);
    }
    const FakeNode &holds = holder == "a" ? a : b, &other = holder == "a" ? b : a;
    const ShardKey key{pool.Find(kSmall)->record.uid, ShardIndex(shard)};
    EXPECT_TRUE(holds.held.contains(key)) << shard;
    if (comes_back) {
      EXPECT_FALSE(other.held.contains(key)) << shard;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AtEveryStep, MoveDeathTest,
                         ::testing::Combine(::testing::Range(0, 8), ::testing::Bool(),
                                            ::testing::Bool(), ::testing::Bool()));

TEST_F(MoveFaultsTest, ANodeWithoutRoomIsNotAskedAgainAndTheShardGoesElsewhere) {
  FakeNode a("a"), b("b");
  LoadSmall({&a});
  b.load_error = absl::ResourceExhaustedError("arena is full");
  pool_.Join(b);
  ASSERT_TRUE(pool_.SetIntent(a, NodeIntent::kDrain).ok());
  pool_.Settle({&a, &b}, 4);
  const std::uint64_t asked = pool_.controller().counters().loads_failed;
  EXPECT_GT(asked, 0u);
  FakeNode c("c");
  pool_.Join(c);
  pool_.Settle({&a, &b, &c}, 30);
  EXPECT_EQ(pool_.controller().counters().loads_failed, asked);
  EXPECT_EQ(c.held.size(), 6u);
  EXPECT_TRUE(a.held.empty());
}

TEST_F(MoveFaultsTest, ANodeThatComesBackWithLessRoomKeepsWhatFitsAndTheRestIsMadeElsewhere) {
  FakeNode a("a"), b("b");
  LoadSmall({&a});
  pool_.Break(a);
  FakeNode again("a", 5 << 20, "", "2");
  again.most_held = 4;
  pool_.Join(b);
  pool_.Join(again);
  pool_.Settle({&again, &b}, 40);
  EXPECT_EQ(again.held.size(), 4u);
  EXPECT_EQ(b.held.size(), 2u);
  for (std::uint32_t shard = 0; shard < 6; ++shard) {
    EXPECT_EQ(pool_.Holders(shard).size(), 1u) << shard;
  }
}

}  // namespace
}  // namespace engram::placement
