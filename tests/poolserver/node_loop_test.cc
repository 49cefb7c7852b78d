// The node's loop with its real memory, loaders and scrubber, without sockets.
#include "poolserver/node_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "poolserver/arena.h"
#include "tests/poolserver/small_node.h"

namespace engram::poolserver {
namespace {

using std::chrono::seconds;

class NodeLoopTest : public testing::Test {
 protected:
  NodeLoopTest()
      : tiers_(Memory()),
        exposure_({}),
        random_(1),
        loop_(Options(), {}, &tiers_, &exposure_, &SystemClock::Get(), &random_, nullptr,
              Outlets()) {
    loop_.Post(ControllerConnected{});
    loop_.Post(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), std::chrono::milliseconds(1), seconds(5)}});
  }
  ~NodeLoopTest() override { loop_.Stop(); }

  static Tiers Memory() {
    Tiers tiers;
    for (Tier tier : {Tier::kDram, Tier::kCxl}) {
      Arena::Options options;
      options.tier = tier;
      options.capacity_bytes = 64 << 20;
      options.slab_bytes = 8 << 20;
      tiers.Add(std::make_unique<Arena>(options));
    }
    return tiers;
  }
  static NodeOptions Options() {
    NodeOptions options;
    options.node = {"node-0"};
    options.process_nonce = "abc";
    options.scrub_bytes_per_second = std::uint64_t{1} << 30;
    return options;
  }
  NodeOutlets Outlets() {
    NodeOutlets outlets;
    outlets.to_controller = [this](const NodeToController& message) {
      const auto* beat = std::get_if<NodeHeartbeat>(&message);
      if (beat == nullptr) return;
      loop_.Post(ControllerSaid{HeartbeatSeen{beat->sequence, Epoch(1)}});
      std::lock_guard lock(mutex_);
      for (const ReplicaReport& report : beat->changed) reports_.push_back(report);
      changed_.notify_all();
    };
    outlets.exit = [](const absl::Status&) {};
    outlets.say = [](const std::string&) {};
    return outlets;
  }
  // Changes a byte of a replica before the scrubber, which pauses first, comes by.
  void Flip(const ShardKey& shard, std::size_t at) {
    const std::optional<Place> place = (*tiers_.Find(Tier::kDram))->Find(shard);
    ASSERT_TRUE(place);
    place->data()[at] ^= std::byte{0x10};
    loop_.Post(Timer{});
  }
  // The first report of a replica in this state, in that tier where one is named.
  ReplicaReport Await(ReplicaState state, std::optional<Tier> tier = std::nullopt) {
    const auto find = [&] {
      return std::find_if(reports_.begin(), reports_.end(), [&](const ReplicaReport& report) {
        return report.state == state && (!tier || report.tier == *tier);
      });
    };
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return find() != reports_.end(); }));
    return find() == reports_.end() ? ReplicaReport() : *find();
  }
  void Load(std::optional<Successor> source, Tier tier = Tier::kDram) {
    loop_.Post(
        ControllerSaid{Command{1, Incarnation(7), FencingToken(3),
                               LoadReplicas{TableOf(9), {ShardIndex(1)}, tier, source, {}}}});
  }

  const Tiers tiers_;
  Exposure exposure_;
  SeededRandom random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ReplicaReport> reports_;
  NodeLoop loop_;
};

TEST_F(NodeLoopTest, AFlippedBitIsFoundAndItsReplicaWithdrawn) {
  Load(std::nullopt);
  const ReplicaReport serving = Await(ReplicaState::kServing);
  EXPECT_TRUE(serving.error.ok());
  Flip(serving.shard, 777'777);
  Await(ReplicaState::kRetired);
  EXPECT_EQ(Await(ReplicaState::kDraining).error.code(), absl::StatusCode::kDataLoss);
}

TEST_F(NodeLoopTest, AFlippedBitInASealIsFoundToo) {
  Load(std::nullopt);
  Flip(Await(ReplicaState::kServing).shard, 264 * 1'000 + 260);
  EXPECT_EQ(Await(ReplicaState::kDraining).error.code(), absl::StatusCode::kDataLoss);
}

TEST_F(NodeLoopTest, AReplicaLiesInTheTierThatItWasCommandedToAndIsFreedThere) {
  Load(std::nullopt, Tier::kCxl);
  const ReplicaReport serving = Await(ReplicaState::kServing);
  EXPECT_EQ(serving.tier, Tier::kCxl);
  TierStore& cxl = **tiers_.Find(Tier::kCxl);
  EXPECT_TRUE(cxl.Find(serving.shard));
  EXPECT_FALSE((*tiers_.Find(Tier::kDram))->Find(serving.shard));
  EXPECT_EQ(tiers_.capacity()[0].allocated_bytes, 0u);
  EXPECT_GT(tiers_.capacity()[1].allocated_bytes, 0u);
  // The scrubber looks where it lies.
  cxl.Find(serving.shard)->data()[4'242] ^= std::byte{1};
  loop_.Post(Timer{});
  Await(ReplicaState::kRetired);
  EXPECT_EQ(Await(ReplicaState::kDraining).error.code(), absl::StatusCode::kDataLoss);
}

TEST_F(NodeLoopTest, AReplicaIsCopiedToAnotherTierAndFreedWhereItWas) {
  Load(std::nullopt);
  const ReplicaReport first = Await(ReplicaState::kServing, Tier::kDram);
  TierStore& dram = **tiers_.Find(Tier::kDram);
  const Place before = dram.Find(first.shard).value();
  const std::vector<std::byte> rows(before.data(), before.data() + before.length);
  Load(std::nullopt, Tier::kCxl);
  const ReplicaReport moved = Await(ReplicaState::kServing, Tier::kCxl);
  EXPECT_EQ(moved.block_crcs, first.block_crcs);
  const Place after = (*tiers_.Find(Tier::kCxl))->Find(first.shard).value();
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), after.data(), after.data() + after.length));
  for (int i = 0; i < 6'000 && dram.Find(first.shard); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(dram.Find(first.shard));
}

TEST_F(NodeLoopTest, WhatIsDamagedIsNotCopied) {
  Load(std::nullopt);
  const ReplicaReport serving = Await(ReplicaState::kServing);
  Flip(serving.shard, 264 * 2'000 + 17);
  Load(std::nullopt, Tier::kCxl);
  Await(ReplicaState::kRetired);  // whoever met it first, the copy or the scrubber
  std::lock_guard lock(mutex_);
  for (const ReplicaReport& report : reports_) EXPECT_NE(report.tier, Tier::kCxl);
}

TEST_F(NodeLoopTest, ALoadIntoATierThatTheNodeLacksSaysSo) {
  Load(std::nullopt, Tier::kNvme);
  EXPECT_EQ(Await(ReplicaState::kRetired).error.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(NodeLoopTest, WithoutAFabricNothingIsPulled) {
  Load(Successor{{"node-1"}, Incarnation(4), "127.0.0.1:1"});
  EXPECT_EQ(Await(ReplicaState::kRetired).error.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace engram::poolserver
