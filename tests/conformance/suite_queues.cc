// Queues: abandoned, closed, destroyed, left alone, and many at once.

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/conformance/suite.h"

namespace engram::fabric::conformance {
namespace {

constexpr MemoryPlace kQueueRows{0, 0, std::uint64_t{kRow} * 8000, kRow};
constexpr std::byte kReused{0xaa};

class QueueTest : public FabricTest {};

TEST_P(QueueTest, AbandonEndsEveryReadOnceAndNoneLandsLater) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kQueueRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 1000 * kRow);
  for (std::uint64_t round = 0; round < 5; ++round) {
    landing.Fill(Landing::kUntouched);
    const auto ops = RandomRows(rows, landing, 1000, round);
    const std::size_t accepted = queue->Submit(ops);
    ASSERT_GT(accepted, 0u);
    queue->Abandon(client.peer);
    landing.Fill(kReused);
    const auto statuses = Collect(*queue, accepted);
    for (ReadStatus status : statuses) {
      EXPECT_TRUE(status == ReadStatus::kFlushed || status == ReadStatus::kOk) << Name(status);
    }
    EXPECT_EQ(PollFor(*queue, std::chrono::milliseconds(5)), 0u);
    EXPECT_TRUE(landing.IsAll(kReused)) << "round " << round;
  }
  const auto again = RandomRows(rows, landing, 24, 99);
  ExpectAllRight(rows, again, ReadAll(*queue, again));
}

TEST_P(QueueTest, AbandonOfAnotherPeerEndsNothing) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kQueueRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 48 * kRow);
  const auto ops = RandomRows(rows, landing, 48, 1);
  SubmitAll(*queue, ops);
  queue->Abandon(PeerId(client.peer.value() + 100));
  ExpectAllRight(rows, ops, Collect(*queue, ops.size()));
}

TEST_P(QueueTest, CloseEndsReadsWithoutCompletionsAndRefusesNewOnes) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kQueueRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 500 * kRow);
  const auto ops = RandomRows(rows, landing, 500, 1);
  ASSERT_GT(queue->Submit(ops), 0u);
  queue->Close();
  landing.Fill(kReused);
  EXPECT_EQ(queue->Submit(ops), 0u);
  EXPECT_EQ(PollFor(*queue, std::chrono::milliseconds(5)), 0u);
  EXPECT_EQ(queue->ArmWait(), -1);
  queue->Close();
  EXPECT_TRUE(landing.IsAll(kReused));
}

TEST_P(QueueTest, ADestroyedQueueLandsNothing) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kQueueRows);
  Landing landing(*client.fabric, 1000 * kRow);
  auto survivor = OpenQueue(client);
  for (std::uint64_t round = 0; round < 5; ++round) {
    auto queue = OpenQueue(client);
    const auto ops = RandomRows(rows, landing, 1000, round);
    ASSERT_GT(queue->Submit(ops), 0u);
    queue.reset();
    landing.Fill(kReused);
    PollFor(*survivor, std::chrono::milliseconds(5));
    EXPECT_TRUE(landing.IsAll(kReused)) << "round " << round;
  }
  const auto ops = RandomRows(rows, landing, 24, 77);
  ExpectAllRight(rows, ops, ReadAll(*survivor, ops));
}

TEST_P(QueueTest, ManyClientsReadAtOnce) {
  auto node = StartNode();
  constexpr std::size_t kClients = 4, kQueues = 2, kRounds = 20;
  std::vector<Client> clients;
  std::vector<Granted> grants;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(Connect(*node));
    grants.push_back(Grant(*node, clients.back(), {i % 2 == 0 ? 0u : 1u, 0, kRow * 8000ull, kRow}));
  }
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kClients * kQueues; ++i) {
    threads.emplace_back([&, i] {
      Client& client = clients[i % kClients];
      const Granted& rows = grants[i % kClients];
      auto queue = OpenQueue(client, 512);
      Landing landing(*client.fabric, 200 * kRow);
      for (std::size_t round = 0; round < kRounds; ++round) {
        const auto ops = RandomRows(rows, landing, 200, i * 1000 + round);
        ExpectAllRight(rows, ops, ReadAll(*queue, ops));
        right += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, static_cast<int>(kClients * kQueues * kRounds));
}

TEST_P(QueueTest, AClientThatNeverReadsItsRepliesHoldsUpNobody) {
  auto node = StartNode();
  Client lazy = Connect(*node);
  Client busy = Connect(*node);
  const Granted lazy_bytes = Grant(*node, lazy, {1, 0, kSlabBytes, 1});
  const Granted rows = Grant(*node, busy, kQueueRows);
  // Far more than sockets hold: 32 reads of 1 MiB or what the fabric allows.
  const std::uint64_t limit = std::min<std::uint64_t>(lazy.fabric->info().max_op_bytes, 1 << 20);
  const auto bytes = static_cast<std::uint32_t>(limit);
  auto lazy_queue = OpenQueue(lazy);
  Landing lazy_landing(*lazy.fabric, std::uint64_t{bytes} * 32);
  std::vector<ReadOp> large;
  for (std::uint64_t i = 0; i < 32; ++i) {
    large.push_back(RowRead(lazy_bytes, i, bytes - 64, i, lazy_landing.At(i * bytes, bytes - 64)));
  }
  ASSERT_GT(lazy_queue->Submit(large), 0u);

  auto queue = OpenQueue(busy);
  Landing landing(*busy.fabric, 48 * kRow);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto ops = RandomRows(rows, landing, 48, round);
    ExpectAllRight(rows, ops, ReadAll(*queue, ops));
  }
}

// The destination is in use again after the first half: reads of one batch must not wait for Poll
// of another queue of the same fabric.
TEST_P(QueueTest, QueuesOfOneFabricAreIndependent) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kQueueRows);
  auto first = OpenQueue(client);
  auto second = OpenQueue(client);
  Landing landing(*client.fabric, 96 * kRow);
  const auto ops = RandomRows(rows, landing, 96, 1);
  SubmitAll(*first, std::span(ops).first(48));
  std::vector<ReadOp> others(ops.begin() + 48, ops.end());
  for (std::size_t i = 0; i < others.size(); ++i) others[i].cookie = i;
  ExpectAllRight(rows, others, ReadAll(*second, others));
  ExpectAllRight(rows, std::span(ops).first(48), Collect(*first, 48));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, QueueTest, testing::ValuesIn(AllRigs()),
                         [](const auto& info) { return info.param->name(); });

}  // namespace
}  // namespace engram::fabric::conformance
