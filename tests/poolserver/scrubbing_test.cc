// What a node checks of its own accord: that what it loaded is what the table was committed with,
// and that what it serves is still what it loaded.
#include <gtest/gtest.h>

#include "engram/shard_sum.h"
#include "poolserver/node_state.h"
#include "tests/poolserver/small_node.h"

namespace engram::poolserver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A shard has 15 blocks of 256 rows of 264 bytes, one short slice of the scrubber each.
const std::vector<std::uint32_t> kScrubCrcs(15, 77);

class ScrubbingTest : public testing::Test {
 protected:
  ScrubbingTest() : random_(1), state_(Options(), &random_) {
    Feed(ControllerConnected{});
    Feed(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), seconds(1'000'000), seconds(5)}});
  }
  static NodeOptions Options() {
    NodeOptions options = SmallNode();
    options.scrub_bytes_per_second = 2 << 20;
    return options;
  }
  std::vector<Action> Feed(Event event) { return state_.OnEvent(now_, std::move(event)); }
  std::vector<Action> Load(std::uint32_t shard, std::vector<std::uint64_t> sums,
                           std::optional<Successor> source = {}) {
    return Feed(ControllerSaid{
        Command{++commands_, Incarnation(7), FencingToken(3),
                LoadReplicas{TableOf(1), {ShardIndex(shard)}, Tier::kDram, source, sums}}});
  }
  std::vector<Action> Serve(std::uint32_t shard) {
    Load(shard, {});
    Feed(ReplicaLoaded{Shard(shard), kScrubCrcs});
    return Feed(ReplicaExposed{{Shard(shard), RegistrationId(1)}, {{0, 4096, 64, shard}}});
  }
  // Time goes on until the scrubber asks for something.
  ScrubSlice Next() {
    for (int i = 0; i < 100; ++i) {
      const auto slices = All<ScrubSlice>(Feed(Timer{}));
      if (!slices.empty()) return slices[0];
      now_ += milliseconds(100);
    }
    ADD_FAILURE() << "nothing is scrubbed";
    return {};
  }

  Instant now_{seconds(100)};
  SeededRandom random_;
  NodeState state_;
  std::uint64_t commands_ = 0;
};

TEST_F(ScrubbingTest, APullNamesItsSource) {
  const Successor source{{"node-1"}, Incarnation(4), "x"};
  const auto loads = All<StartLoad>(Load(0, {SumOf(kScrubCrcs)}, source));
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].source, source);
}

TEST_F(ScrubbingTest, WhatIsNotWhatTheTableWasCommittedWithIsNeverServed) {
  Load(0, {SumOf(kScrubCrcs) + 1});
  const auto actions = Feed(ReplicaLoaded{Shard(0), kScrubCrcs});
  EXPECT_TRUE(All<ExposeReplica>(actions).empty());
  EXPECT_EQ(All<ReleaseMemory>(actions).size(), 1u);
  EXPECT_EQ(state_.FindReplica(Shard(0)), nullptr);
  EXPECT_EQ(state_.counters().loads_unsound, 1u);
  Load(1, {SumOf(kScrubCrcs)});
  EXPECT_EQ(All<ExposeReplica>(Feed(ReplicaLoaded{Shard(1), kScrubCrcs})).size(), 1u);
}

TEST_F(ScrubbingTest, GoesOverEveryServedShardAgainAndAgainAtItsRate) {
  Serve(0);
  Serve(1);
  EXPECT_EQ(Next().shard, Shard(0));
  const Instant start = now_;
  Feed(SliceScrubbed{Shard(0), Tier::kDram, absl::OkStatus()});
  std::vector<ShardKey> seen;
  for (int i = 0; i < 4; ++i) {
    const ScrubSlice slice = Next();
    EXPECT_EQ(slice.first_block, 0u);
    EXPECT_EQ(slice.block_crcs, kScrubCrcs);
    EXPECT_TRUE(All<ScrubSlice>(Feed(Timer{})).empty()) << "one at a time";
    seen.push_back(slice.shard);
    Feed(SliceScrubbed{slice.shard, slice.tier, absl::OkStatus()});
  }
  EXPECT_EQ(seen, (std::vector<ShardKey>{Shard(1), Shard(0), Shard(1), Shard(0)}));
  EXPECT_GE(now_ - start, seconds(1));  // 4 MiB at 2 MiB/s, the first slice at once
  EXPECT_EQ(state_.counters().scrubs_unsound, 0u);
}

TEST_F(ScrubbingTest, ARetirementWaitsForTheSlice) {
  Serve(0);
  Next();
  const auto retire =
      Feed(ControllerSaid{Command{++commands_, Incarnation(7), FencingToken(3),
                                  RetireReplicas{TableOf(1).uid, {ShardIndex(0)}, {}}}});
  EXPECT_TRUE(All<HideReplica>(retire).empty());
  EXPECT_EQ(All<HideReplica>(Feed(SliceScrubbed{Shard(0), Tier::kDram, absl::OkStatus()})).size(),
            1u);
}

TEST_F(ScrubbingTest, AReplicaThatChangedIsWithdrawnFromItsReaders) {
  Serve(0);
  Next();
  OpenSession open;
  open.node = {"node-0"};
  open.incarnation = Incarnation(7);
  open.tables = {TableOf(1).uid};
  Feed(ClientSaid{StreamId(1), open});
  const auto actions = Feed(SliceScrubbed{Shard(0), Tier::kDram, absl::DataLossError("block 3")});
  bool told = false;
  for (const SendToClient& send : All<SendToClient>(actions)) {
    const auto* update = std::get_if<GrantUpdate>(&send.message);
    told |= update != nullptr && update->withdrawn.size() == 1;
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(All<HideReplica>(actions).empty());  // it may still be read
  EXPECT_EQ(state_.FindReplica(Shard(0))->state(), ReplicaState::kDraining);
  EXPECT_EQ(state_.FindReplica(Shard(0))->Report().error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(state_.counters().scrubs_unsound, 1u);
  EXPECT_EQ(All<HideReplica>(Feed(ClientSaid{StreamId(1), Goodbye{}})).size(), 1u);
  EXPECT_EQ(All<ReleaseMemory>(Feed(ReplicaHidden{{Shard(0), RegistrationId(1)}})).size(), 1u);
}

}  // namespace
}  // namespace engram::poolserver
