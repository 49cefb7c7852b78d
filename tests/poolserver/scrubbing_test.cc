// What a node checks of its own accord: that what it loaded is what the table was committed with,
// and that what it serves is still what it loaded.
#include <gtest/gtest.h>

#include "engram/shard_sum.h"
#include "poolserver/node_state.h"

namespace engram::poolserver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Shards of 1 MiB: 15 blocks of 256 rows of 264 bytes, one short slice of the scrubber each.
TableRecord ScrubTable() {
  TableRecord table;
  table.uid.bytes[0] = 1;
  table.name = {"t", "1"};
  table.spec.columns = {{0, 0, 0, 16'384}};
  table.spec.planes = {{"value", DType::kBytes, 256}};
  table.spec.addressing.function = "identity";
  table.spec.addressing.layers = {0};
  table.options.shard_bytes = kMinShardBytes;
  return table;
}
ShardKey ScrubShard(std::uint32_t index) { return {ScrubTable().uid, ShardIndex(index)}; }
const std::vector<std::uint32_t> kScrubCrcs(15, 77);

template <class T>
std::vector<T> Every(const std::vector<Action>& actions) {
  std::vector<T> out;
  for (const Action& action : actions) {
    if (const T* found = std::get_if<T>(&action)) out.push_back(*found);
  }
  return out;
}

class ScrubbingTest : public testing::Test {
 protected:
  ScrubbingTest() : random_(1), state_(Options(), &random_) {
    Feed(ControllerConnected{});
    Feed(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), seconds(1'000'000), seconds(5)}});
  }
  static NodeOptions Options() {
    NodeOptions options;
    options.node = {"node-0"};
    options.process_nonce = "abc";
    options.paths = {PathAddress{}};
    options.scrub_bytes_per_second = 2 << 20;
    return options;
  }
  std::vector<Action> Feed(Event event) { return state_.OnEvent(now_, std::move(event)); }
  std::vector<Action> Load(std::uint32_t shard, std::vector<std::uint64_t> sums,
                           std::optional<Successor> source = {}) {
    return Feed(ControllerSaid{
        Command{++commands_, Incarnation(7), FencingToken(3),
                LoadReplicas{ScrubTable(), {ShardIndex(shard)}, Tier::kDram, source, sums}}});
  }
  std::vector<Action> Serve(std::uint32_t shard) {
    Load(shard, {});
    Feed(ReplicaLoaded{ScrubShard(shard), kScrubCrcs});
    return Feed(ReplicaExposed{ScrubShard(shard), {{0, 4096, 64, shard}}});
  }
  // Time goes on until the scrubber asks for something.
  ScrubSlice Next() {
    for (int i = 0; i < 100; ++i) {
      const auto slices = Every<ScrubSlice>(Feed(Timer{}));
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
  const auto loads = Every<StartLoad>(Load(0, {SumOf(kScrubCrcs)}, source));
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].source, source);
}

TEST_F(ScrubbingTest, WhatIsNotWhatTheTableWasCommittedWithIsNeverServed) {
  Load(0, {SumOf(kScrubCrcs) + 1});
  const auto actions = Feed(ReplicaLoaded{ScrubShard(0), kScrubCrcs});
  EXPECT_TRUE(Every<ExposeReplica>(actions).empty());
  EXPECT_EQ(Every<ReleaseMemory>(actions).size(), 1u);
  EXPECT_EQ(state_.FindReplica(ScrubShard(0)), nullptr);
  EXPECT_EQ(state_.counters().loads_unsound, 1u);
  Load(1, {SumOf(kScrubCrcs)});
  EXPECT_EQ(Every<ExposeReplica>(Feed(ReplicaLoaded{ScrubShard(1), kScrubCrcs})).size(), 1u);
}

TEST_F(ScrubbingTest, GoesOverEveryServedShardAgainAndAgainAtItsRate) {
  Serve(0);
  Serve(1);
  EXPECT_EQ(Next().shard, ScrubShard(0));
  const Instant start = now_;
  Feed(SliceScrubbed{ScrubShard(0), absl::OkStatus()});
  std::vector<ShardKey> seen;
  for (int i = 0; i < 4; ++i) {
    const ScrubSlice slice = Next();
    EXPECT_EQ(slice.first_block, 0u);
    EXPECT_EQ(slice.block_crcs, kScrubCrcs);
    EXPECT_TRUE(Every<ScrubSlice>(Feed(Timer{})).empty()) << "one at a time";
    seen.push_back(slice.shard);
    Feed(SliceScrubbed{slice.shard, absl::OkStatus()});
  }
  EXPECT_EQ(seen,
            (std::vector<ShardKey>{ScrubShard(1), ScrubShard(0), ScrubShard(1), ScrubShard(0)}));
  EXPECT_GE(now_ - start, seconds(1));  // 4 MiB at 2 MiB/s, the first slice at once
  EXPECT_EQ(state_.counters().scrubs_unsound, 0u);
}

TEST_F(ScrubbingTest, ARetirementWaitsForTheSlice) {
  Serve(0);
  Next();
  const auto retire =
      Feed(ControllerSaid{Command{++commands_, Incarnation(7), FencingToken(3),
                                  RetireReplicas{ScrubTable().uid, {ShardIndex(0)}, {}}}});
  EXPECT_TRUE(Every<HideReplica>(retire).empty());
  EXPECT_EQ(Every<HideReplica>(Feed(SliceScrubbed{ScrubShard(0), absl::OkStatus()})).size(), 1u);
}

TEST_F(ScrubbingTest, AReplicaThatChangedIsWithdrawnFromItsReaders) {
  Serve(0);
  Next();
  OpenSession open;
  open.node = {"node-0"};
  open.incarnation = Incarnation(7);
  open.tables = {ScrubTable().uid};
  Feed(ClientSaid{StreamId(1), open});
  const auto actions = Feed(SliceScrubbed{ScrubShard(0), absl::DataLossError("block 3")});
  bool told = false;
  for (const SendToClient& send : Every<SendToClient>(actions)) {
    const auto* update = std::get_if<GrantUpdate>(&send.message);
    told |= update != nullptr && update->withdrawn.size() == 1;
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(Every<HideReplica>(actions).empty());  // it may still be read
  EXPECT_EQ(state_.FindReplica(ScrubShard(0))->state(), ReplicaState::kDraining);
  EXPECT_EQ(state_.FindReplica(ScrubShard(0))->Report().error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(state_.counters().scrubs_unsound, 1u);
  EXPECT_EQ(Every<HideReplica>(Feed(ClientSaid{StreamId(1), Goodbye{}})).size(), 1u);
  EXPECT_EQ(Every<ReleaseMemory>(Feed(ReplicaHidden{ScrubShard(0)})).size(), 1u);
}

}  // namespace
}  // namespace engram::poolserver
