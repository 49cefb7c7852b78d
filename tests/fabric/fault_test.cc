#include "fabric/fault/fault_fabric.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/loopback/loopback.h"
#include "fabric/metered/metered_fabric.h"

namespace engram::fabric {
namespace {

constexpr std::uint32_t kRow = 64;
constexpr std::size_t kRows = 1000;

// A loopback target of kRows rows, and one fabric around the reader's.
class DecoratorTest : public testing::Test {
 protected:
  void SetUp() override {
    slab_ = *Slab::Create({.bytes = kRows * kRow, .pages = PageSize::k4KiB});
    for (std::size_t i = 0; i < kRows * kRow; ++i) slab_->data()[i] = std::byte(i * 13 + i / 251);
    target_ = *OpenLoopbackTarget({NodeId{"n"}, Incarnation(1), ""});
    token_.bytes[3] = 9;
    target_->Admit(token_);
  }
  RemoteRegion Import(Fabric& fabric) {
    const auto peer =
        fabric.AddPeer({target_->address(), token_, NodeId{"n"}, Incarnation(1)}, clock_.Now());
    EXPECT_TRUE(peer.ok()) << peer.status();
    const auto exposed = *target_->Expose({slab_.get(), 0, kRows * kRow, kRow});
    target_->Allow(token_, exposed.key);
    return *fabric.Import({*peer, exposed.address, exposed.length, exposed.key});
  }
  std::vector<ReadOp> AllRows(const RemoteRegion& region) {
    landing_.assign(kRows * kRow, std::byte{0xee});
    std::vector<ReadOp> ops(kRows);
    for (std::size_t i = 0; i < kRows; ++i) {
      ops[i].region = region;
      ops[i].offset = i * kRow;
      ops[i].cookie = i;
      ops[i].length = kRow;
      ops[i].local[0] = {landing_.data() + i * kRow, kRow, nullptr};
    }
    return ops;
  }
  // The order in which reads ended, with their statuses.
  std::vector<ReadCompletion> ReadAll(ReadQueue& queue, const std::vector<ReadOp>& ops) {
    std::vector<ReadCompletion> ended;
    for (std::size_t submitted = 0, turns = 0; ended.size() < ops.size() && turns < 10'000;
         ++turns) {
      submitted += queue.Submit(std::span(ops).subspan(submitted));
      ReadCompletion done[32];
      const std::size_t count = queue.Poll(done);
      ended.insert(ended.end(), done, done + count);
      clock_.Advance(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(ended.size(), ops.size());
    return ended;
  }
  int WrongBits(std::size_t row) const {
    int wrong = 0;
    for (std::size_t i = row * kRow; i < (row + 1) * kRow; ++i) {
      wrong += std::popcount(static_cast<unsigned>(landing_[i] ^ slab_->data()[i]));
    }
    return wrong;
  }

  FakeClock clock_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<Target> target_;
  SessionToken token_;
  std::vector<std::byte> landing_;
};

TEST_F(DecoratorTest, FaultFreeFaultsChangeNothing) {
  FaultFabric fabric(OpenLoopbackFabric(), {}, clock_);
  const auto ops = AllRows(Import(fabric));
  auto queue = *fabric.OpenQueue({});
  for (const ReadCompletion& done : ReadAll(*queue, ops)) {
    EXPECT_EQ(done.status, ReadStatus::kOk);
    EXPECT_EQ(WrongBits(done.cookie), 0);
  }
}

TEST_F(DecoratorTest, FlipsExactlyOneBitInSomeRows) {
  FaultFabric fabric(OpenLoopbackFabric(), {.seed = 3, .flip_per_million = 100'000}, clock_);
  const auto ops = AllRows(Import(fabric));
  auto queue = *fabric.OpenQueue({});
  int flipped = 0;
  for (const ReadCompletion& done : ReadAll(*queue, ops)) {
    EXPECT_EQ(done.status, ReadStatus::kOk);
    EXPECT_LE(WrongBits(done.cookie), 1);
    flipped += WrongBits(done.cookie);
  }
  EXPECT_GT(flipped, 50);
  EXPECT_LT(flipped, 200);
}

TEST_F(DecoratorTest, UnreachableReadsLandNothing) {
  FaultFabric fabric(OpenLoopbackFabric(), {.seed = 3, .unreachable_per_million = 200'000}, clock_);
  const auto ops = AllRows(Import(fabric));
  auto queue = *fabric.OpenQueue({});
  int lost = 0;
  for (const ReadCompletion& done : ReadAll(*queue, ops)) {
    if (done.status == ReadStatus::kOk) {
      EXPECT_EQ(WrongBits(done.cookie), 0);
      continue;
    }
    ++lost;
    EXPECT_EQ(done.status, ReadStatus::kUnreachable);
    EXPECT_EQ(ops[done.cookie].local[0].data[0], std::byte{0xee});
  }
  EXPECT_GT(lost, 100);
  EXPECT_LT(lost, 300);
}

TEST_F(DecoratorTest, DelaysReorderAndTheSameSeedGivesTheSameOrder) {
  std::vector<std::uint64_t> orders[2];
  for (auto& order : orders) {
    FaultFabric fabric(
        OpenLoopbackFabric(),
        {.seed = 8, .delay_max = std::chrono::milliseconds(50), .partial_per_million = 500'000},
        clock_);
    const auto ops = AllRows(Import(fabric));
    auto queue = *fabric.OpenQueue({});
    for (const ReadCompletion& done : ReadAll(*queue, ops)) {
      EXPECT_EQ(WrongBits(done.cookie), 0);
      order.push_back(done.cookie);
    }
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
}

TEST_F(DecoratorTest, SetTakesEffectOnOpenQueues) {
  FaultFabric fabric(OpenLoopbackFabric(), {}, clock_);
  const auto ops = AllRows(Import(fabric));
  auto queue = *fabric.OpenQueue({});
  ReadAll(*queue, ops);
  fabric.Set({.unreachable_per_million = 1'000'000});
  for (const ReadCompletion& done : ReadAll(*queue, ops)) {
    EXPECT_EQ(done.status, ReadStatus::kUnreachable);
  }
}

TEST_F(DecoratorTest, MeteredCountsReadsBytesOutcomesAndLatency) {
  MeteredFabric fabric(OpenLoopbackFabric(), clock_);
  auto ops = AllRows(Import(fabric));
  ops.resize(10);
  ops[4].offset = kRows * kRow;  // outside
  auto queue = *fabric.OpenQueue({});
  ASSERT_EQ(queue->Submit(ops), 10u);
  clock_.Advance(std::chrono::microseconds(3));
  ReadCompletion done[16];
  ASSERT_EQ(queue->Poll(std::span(done).first(6)), 6u);
  clock_.Advance(std::chrono::milliseconds(1));
  ASSERT_EQ(queue->Poll(done), 4u);

  const FabricTotals totals = fabric.Read();
  EXPECT_EQ(totals.batches, 1u);
  EXPECT_EQ(totals.reads, 10u);
  EXPECT_EQ(totals.bytes, 10u * kRow);
  EXPECT_EQ(totals.ended[static_cast<std::size_t>(ReadStatus::kOk)], 9u);
  EXPECT_EQ(totals.ended[static_cast<std::size_t>(ReadStatus::kRefused)], 1u);
  EXPECT_EQ(totals.latency_ns, 6u * 3'000 + 4u * 1'003'000);
  EXPECT_EQ(totals.latency[2], 6u);   // at most 4 us
  EXPECT_EQ(totals.latency[10], 4u);  // at most 1,024 us
}

TEST_F(DecoratorTest, MeteredKeepsTheCountsOfClosedQueues) {
  MeteredFabric fabric(OpenLoopbackFabric(), clock_);
  const auto ops = AllRows(Import(fabric));
  for (int i = 0; i < 3; ++i) {
    auto queue = *fabric.OpenQueue({});
    ReadAll(*queue, ops);
  }
  EXPECT_EQ(fabric.Read().reads, 3 * kRows);
  EXPECT_EQ(fabric.Read().ended[0], 3 * kRows);
}

TEST_F(DecoratorTest, MeteredCountsBackPressure) {
  MeteredFabric fabric(OpenLoopbackFabric(), clock_);
  const auto ops = AllRows(Import(fabric));
  auto queue = *fabric.OpenQueue({.depth = 8, .wait = {}});
  EXPECT_EQ(queue->Submit(ops), 8u);
  EXPECT_EQ(fabric.Read().pushed_back, 1u);
  EXPECT_EQ(fabric.Read().reads, 8u);
}

}  // namespace
}  // namespace engram::fabric
