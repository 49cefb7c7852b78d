// Plans for load that the controller carries out by itself.
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

class RebalancingTest : public ::testing::Test {
 protected:
  // A table on node a, whose shards are read more than a node should serve; then node b joins.
  void Run(bool rebalance) {
    ControllerOptions options;
    options.rebalance = rebalance;
    options.rebalance_every = std::chrono::seconds(1);
    options.plan_limits.read_bytes_per_second = 1'000'000;
    options.reads = [this](Instant, const TableUid&) { return reads_; };
    pool_ = std::make_unique<SmallPool>(1, options);
    pool_->Join(a_);
    ASSERT_TRUE(pool_->Load(SmallLoad("r1", 1))->ok());
    pool_->Settle({&a_});
    ASSERT_EQ(pool_->StateOf(kSmall), TableState::kReady);
    pool_->Join(b_);
    pool_->Settle({&a_, &b_}, 10);
    const double stride = pool_->Find(kSmall)->layout->stride();
    reads_.assign(6, 900'000 / stride / 6);
    pool_->Settle({&a_, &b_}, 40);
  }
  std::size_t On(const std::string& node) {
    std::size_t count = 0;
    for (std::uint32_t shard = 0; shard < 6; ++shard) {
      for (const std::string& holder : pool_->Holders(shard)) count += holder == node;
    }
    return count;
  }

  std::vector<double> reads_;
  std::unique_ptr<SmallPool> pool_;
  FakeNode a_{"a"}, b_{"b"};
};

TEST_F(RebalancingTest, ShardsOfAHotNodeMoveUntilBothCarryTheSame) {
  Run(true);
  EXPECT_EQ(On("a"), 3u);
  EXPECT_EQ(On("b"), 3u);
  EXPECT_TRUE(pool_->state().moves.empty());
}

TEST_F(RebalancingTest, NothingMovesWhereItIsNotWanted) {
  Run(false);
  EXPECT_EQ(On("a"), 6u);
}

}  // namespace
}  // namespace engram::placement
