// Reads that work: the right bytes, in the right places, whatever the batch.

#include <poll.h>

#include <algorithm>
#include <array>

#include "tests/conformance/suite.h"
#include "tests/count_allocations.h"

namespace engram::fabric::conformance {
namespace {

constexpr MemoryPlace kRows{0, 4096, std::uint64_t{kRow} * 8000, kRow};

TEST_P(FabricTest, ReadsShortBatches) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 64 * kRow);
  for (std::size_t count : {1, 2, 3, 24, 48, 5, 1}) {
    landing.Fill(Landing::kUntouched);
    const auto ops = RandomRows(rows, landing, count, count);
    ExpectAllRight(rows, ops, ReadAll(*queue, ops));
  }
}

TEST_P(FabricTest, ReadsOneRowManyTimes) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 32 * kRow);
  std::vector<ReadOp> ops;
  for (std::size_t i = 0; i < 32; ++i) {
    ops.push_back(RowRead(rows, 77 * kRow, kRow, i, landing.At(i * kRow, kRow)));
  }
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
}

TEST_P(FabricTest, ReadsTheFirstAndTheLastRowOfARegion) {
  auto node = StartNode();
  Client client = Connect(*node);
  // The region ends with the slab: one byte more would be outside the mapping.
  const std::uint64_t length = std::uint64_t{kRow} * 100;
  const Granted rows = Grant(*node, client, {1, kSlabBytes - length, length, 8});
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 2 * kRow);
  const ReadOp ops[] = {RowRead(rows, 0, kRow, 0, landing.At(0, kRow)),
                        RowRead(rows, length - kRow, kRow, 1, landing.At(kRow, kRow))};
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
}

TEST_P(FabricTest, AcceptsAnEmptyBatch) {
  auto node = StartNode();
  Client client = Connect(*node);
  auto queue = OpenQueue(client);
  ReadCompletion done[4];
  EXPECT_EQ(queue->Submit({}), 0u);
  EXPECT_EQ(queue->Poll(done), 0u);
  EXPECT_EQ(queue->Poll({}), 0u);
}

TEST_P(FabricTest, ReadsABatchLargerThanEveryQueue) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  const std::size_t count = std::min<std::size_t>(
      3 * std::max(client.fabric->info().max_outstanding, 1000u) + 17, 30'000);
  auto queue = OpenQueue(client, 256);
  Landing landing(*client.fabric, count * kRow);
  const auto ops = RandomRows(rows, landing, count, 11);
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
}

// Of this project's code: what libfabric does inside is its own affair.
TEST_P(FabricTest, AllocatesNothingPerBatchAfterWarmUp) {
  if (rig().name().starts_with("fault")) GTEST_SKIP() << "holds back copies of what it delays";
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  constexpr std::size_t kBatch = 48;
  Landing landing(*client.fabric, kBatch * kRow);
  const auto ops = RandomRows(rows, landing, kBatch, 5);
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
  std::array<ReadCompletion, kBatch> done;
  std::size_t read = 0;
  const CountAllocations allocations;
  for (int batch = 0; batch < 100; ++batch) {
    std::size_t submitted = 0, polled = 0;
    while (polled < kBatch) {
      submitted += queue->Submit(std::span(ops).subspan(submitted));
      polled += queue->Poll(done);
    }
    read += polled;
  }
  EXPECT_EQ(allocations.count(), 0);
  EXPECT_EQ(read, 100 * kBatch);
}

TEST_P(FabricTest, PushesBackInsteadOfFailing) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client, 4);
  const std::size_t count = client.fabric->info().max_outstanding + std::size_t{1000};
  Landing landing(*client.fabric, std::min<std::size_t>(count, 70'000) * kRow);
  const auto ops = RandomRows(rows, landing, std::min<std::size_t>(count, 70'000), 5);
  std::size_t accepted = 0;
  for (std::size_t taken = 1; taken > 0 && accepted < ops.size();) {
    taken = queue->Submit(std::span(ops).subspan(accepted));
    accepted += taken;
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_LT(accepted, ops.size());
  const auto statuses = Collect(*queue, accepted);
  ExpectAllRight(rows, std::span(ops).first(accepted), statuses);
  const auto again = std::span(ops).first(10);
  ExpectAllRight(rows, again, ReadAll(*queue, again));
}

TEST_P(FabricTest, LandsInUpToThreePlaces) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, {0, 0, 272 * 64, 272});
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 4096);
  std::vector<ReadOp> ops;
  for (std::uint8_t segments = 1; segments <= client.fabric->info().max_segments; ++segments) {
    ReadOp op = RowRead(rows, 272 * (5 + segments), 272, ops.size(), {});
    op.segments = segments;
    const std::uint32_t parts[3][3] = {{272, 0, 0}, {264, 8, 0}, {256, 8, 8}};
    for (std::uint8_t s = 0; s < segments; ++s) {
      op.local[s] = landing.At(segments * 1024u + s * 300u, parts[segments - 1][s]);
    }
    ops.push_back(op);
  }
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
  const std::vector<std::byte> gap = landing.Bytes(2 * 1024 + 264, 300 - 264);
  EXPECT_EQ(gap, std::vector<std::byte>(300 - 264, Landing::kUntouched));
}

TEST_P(FabricTest, ReadsOddLengthsToOddPlaces) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted bytes = Grant(*node, client, {1, 1 << 20, 1 << 20, 1});
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 1 << 19);
  std::vector<ReadOp> ops;
  std::uint64_t at = 1;
  for (std::uint32_t length : {1u,   2u,   3u,   7u,   8u,   9u,   15u,   31u,   33u,   63u,    65u,
                               127u, 255u, 257u, 263u, 265u, 511u, 1023u, 4095u, 4097u, 65'537u}) {
    if (length > client.fabric->info().max_op_bytes) continue;
    ops.push_back(RowRead(bytes, ops.size() * 13, length, ops.size(), landing.At(at, length)));
    at += length + 3;
  }
  ExpectAllRight(bytes, ops, ReadAll(*queue, ops));
  for (const ReadOp& op : ops) {
    EXPECT_EQ(op.local[0].data[-1], Landing::kUntouched) << op.length;
    EXPECT_EQ(op.local[0].data[op.length], Landing::kUntouched) << op.length;
  }
}

TEST_P(FabricTest, ReadsASliceLikeTheWhole) {
  auto node = StartNode();
  Client client = Connect(*node);
  Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, kRow);
  ReadOp op = RowRead(rows, 10 * kRow, kRow, 0, landing.At(0, kRow));
  op.region = rows.region.Slice(90 * kRow, 20 * kRow);
  const auto statuses = ReadAll(*queue, {&op, 1});
  ASSERT_EQ(statuses[0], ReadStatus::kOk);
  EXPECT_EQ(landing.Bytes(0, kRow), rows.Expected(100 * kRow, kRow));
}

TEST_P(FabricTest, ServesBothLanesInOneBatch) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 600 * kRow);
  auto ops = RandomRows(rows, landing, 600, 3);
  for (std::size_t i = 0; i < ops.size(); ++i)
    ops[i].lane = i % 3 == 0 ? Lane::kUrgent : Lane::kBulk;
  ExpectAllRight(rows, ops, ReadAll(*queue, ops));
}

TEST_P(FabricTest, ReadsSeveralRegionsAndSlabsInOneBatch) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted a = Grant(*node, client, {0, 0, 1 << 20, 8});
  const Granted b = Grant(*node, client, {1, 0, 1 << 20, 8});
  const Granted c = Grant(*node, client, {0, 1 << 20, 1 << 20, 8});
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 48 * kRow);
  std::vector<ReadOp> ops;
  const Granted* const from[] = {&a, &b, &c};
  for (std::size_t i = 0; i < 48; ++i) {
    ops.push_back(RowRead(*from[i % 3], i * 8 * 100, kRow, i, landing.At(i * kRow, kRow)));
  }
  const auto statuses = ReadAll(*queue, ops);
  for (std::size_t i = 0; i < 48; ++i) {
    ASSERT_EQ(statuses[i], ReadStatus::kOk);
    ASSERT_EQ(landing.Bytes(i * kRow, kRow), from[i % 3]->Expected(ops[i].offset, kRow)) << i;
  }
}

TEST_P(FabricTest, ReadsOnAfterARegionOfTheSameSlabIsReleased) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted a = Grant(*node, client, {0, 0, 1 << 20, 8});
  const Granted b = Grant(*node, client, {0, 1 << 20, 1 << 20, 8});
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, kRow);
  client.fabric->Release(a.region);
  const ReadOp op = RowRead(b, 800, kRow, 0, landing.At(0, kRow));
  ExpectAllRight(b, {&op, 1}, ReadAll(*queue, {&op, 1}));
  client.fabric->Release(b.region);
  auto again = client.fabric->Import(a.as_given);
  ASSERT_TRUE(again.ok()) << again.status();
  ReadOp last = RowRead(a, 800, kRow, 0, landing.At(0, kRow));
  last.region = *again;
  ExpectAllRight(a, {&last, 1}, ReadAll(*queue, {&last, 1}));
}

TEST_P(FabricTest, SleepsOnArmWait) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 2000 * kRow);
  const auto ops = RandomRows(rows, landing, 2000, 9);
  std::vector<ReadStatus> statuses(ops.size(), ReadStatus::kTimedOut);
  std::size_t submitted = 0, ended = 0;
  const Instant limit = Soon();
  while (ended < ops.size() && SystemClock::Get().Now() < limit) {
    submitted += queue->Submit(std::span(ops).subspan(submitted));
    ReadCompletion done[100];
    const std::size_t count = queue->Poll(done);
    for (std::size_t i = 0; i < count; ++i) statuses.at(done[i].cookie) = done[i].status;
    ended += count;
    if (count > 0) continue;
    pollfd wait{queue->ArmWait(), POLLIN, 0};
    if (wait.fd >= 0) {
      ASSERT_EQ(poll(&wait, 1, 10'000), 1) << "slept although a read could end";
    }
  }
  ExpectAllRight(rows, ops, statuses);
}

// Where the fabric checks alignment the read is refused, elsewhere its bytes are right.
TEST_P(FabricTest, AnOffsetOffTheStrideReadsNoOtherBytes) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 2 * kRow);
  const ReadOp ops[] = {RowRead(rows, 3 * kRow + 8, kRow, 0, landing.At(0, kRow)),
                        RowRead(rows, 3 * kRow, kRow, 1, landing.At(kRow, kRow))};
  const auto statuses = ReadAll(*queue, ops);
  EXPECT_EQ(statuses[1], ReadStatus::kOk);
  if (statuses[0] == ReadStatus::kOk) {
    EXPECT_EQ(landing.Bytes(0, kRow), rows.Expected(3 * kRow + 8, kRow));
  } else {
    EXPECT_EQ(statuses[0], ReadStatus::kRefused);
  }
}

}  // namespace
}  // namespace engram::fabric::conformance
