// Peers that restart, die, stop and wake, or are not there.

#include <algorithm>

#include "tests/conformance/suite.h"

namespace engram::fabric::conformance {
namespace {

constexpr MemoryPlace kFirst{0, 0, std::uint64_t{kRow} * 4000, kRow};
constexpr MemoryPlace kSecond{1, 0, std::uint64_t{kRow} * 4000, kRow};

class PeerTest : public FabricTest {
 protected:
  // Reads and Polls go on without the target's program.
  static bool NeedsNoTarget(const FabricInfo& info) {
    return info.one_sided && !info.target_progress;
  }
  // What each read brought is either an error or right.
  void ExpectNothingWrong(const Granted& from, std::span<const ReadOp> ops,
                          const std::vector<ReadStatus>& statuses) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (statuses[i] == ReadStatus::kOk) ExpectAllRight(from, ops.subspan(i, 1), {statuses[i]});
      EXPECT_NE(statuses[i], ReadStatus::kTimedOut);
    }
  }
};

// A client of a node that is a process of its own and may die or be stopped.
class OtherProcessTest : public PeerTest {
 protected:
  void SetUp() override {
    PeerTest::SetUp();
    if (IsSkipped()) return;
    if (!rig().across_processes()) GTEST_SKIP() << "target and reader share a process";
    node_ = StartNode(Where::kChild);
    ASSERT_NE(node_, nullptr);
    client_ = Connect(*node_);
    rows_ = Grant(*node_, client_, kFirst);
    queue_ = OpenQueue(client_);
  }
  std::unique_ptr<Node> node_;
  Client client_;
  Granted rows_;
  std::unique_ptr<ReadQueue> queue_;
};

TEST_P(PeerTest, NobodyAnswersAfterAnOrderlyStop) {
  auto node = StartNode();
  Client client = Connect(*node);
  node->Stop();
  const auto peer = client.fabric->AddPeer(AddressOf(*node, client.token), Soon());
  EXPECT_TRUE(absl::IsUnavailable(peer.status())) << peer.status();
}

TEST_P(PeerTest, ARestartAtTheSameAddressNeverServesOldKeys) {
  auto node = StartNode();
  const std::string address = node->address().address;
  Client client = Connect(*node);
  const Granted first = Grant(*node, client, kFirst);
  Grant(*node, client, kSecond);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 64 * kRow);
  const auto ops = RandomRows(first, landing, 24, 1);
  ExpectAllRight(first, ops, ReadAll(*queue, ops));

  node->Stop();
  node.reset();
  const Incarnation later(8);
  node = StartNode(Where::kHere, later, address);
  ASSERT_NE(node, nullptr);
  Client fresh = Connect(*node, later);
  const Granted new_second = Grant(*node, fresh, kSecond, later);  // the other order
  const Granted new_first = Grant(*node, fresh, kFirst, later);

  // The old peer: an error, or (mapped) the bytes that were granted.
  landing.Fill(Landing::kUntouched);
  ExpectNothingWrong(first, ops, ReadAll(*queue, ops));
  // The old session at the new incarnation, by either of its names.
  EXPECT_FALSE(client.fabric->AddPeer(AddressOf(*node, client.token), Soon()).ok());
  if (client.fabric->info().kind != FabricKind::kOfi && rig().asks_target()) {
    EXPECT_FALSE(client.fabric->AddPeer(AddressOf(*node, client.token, later), Soon()).ok());
  }
  // A new session with an old key.
  RemoteRegion stale = first.as_given;
  stale.peer = fresh.peer;
  auto imported = fresh.fabric->Import(stale);
  auto fresh_queue = OpenQueue(fresh);
  Landing fresh_landing(*fresh.fabric, 64 * kRow);
  if (imported.ok()) {
    ReadOp op = RowRead(first, 0, kRow, 0, fresh_landing.At(0, kRow));
    op.region = *imported;
    EXPECT_NE(ReadAll(*fresh_queue, {&op, 1})[0], ReadStatus::kOk);
  }
  const auto right = RandomRows(new_first, fresh_landing, 24, 2);
  ExpectAllRight(new_first, right, ReadAll(*fresh_queue, right));
  const auto other = RandomRows(new_second, fresh_landing, 24, 3);
  ExpectAllRight(new_second, other, ReadAll(*fresh_queue, other));
}

TEST_P(OtherProcessTest, APeerThatDiesEndsEveryReadAndReturnsNoWrongByte) {
  Landing landing(*client_.fabric, 4000 * kRow);
  const auto ops = RandomRows(rows_, landing, 4000, 4);
  const auto few = std::span(ops).first(16);
  ExpectAllRight(rows_, few, ReadAll(*queue_, few));

  std::size_t accepted = queue_->Submit(ops);
  node_->Kill();
  ExpectNothingWrong(rows_, std::span(ops).first(accepted), Collect(*queue_, accepted));
  const auto after = ReadAll(*queue_, few);
  ExpectNothingWrong(rows_, few, after);
  if (!NeedsNoTarget(client_.fabric->info())) {
    EXPECT_EQ(after[0], ReadStatus::kUnreachable);
  }
  if (!rig().asks_target()) return;
  EXPECT_FALSE(client_.fabric
                   ->AddPeer(AddressOf(*node_, client_.token),
                             SystemClock::Get().Now() + std::chrono::seconds(2))
                   .ok());
}

TEST_P(OtherProcessTest, TheDeathOfOnePeerLeavesTheOthersAlone) {
  auto living = StartNode(Where::kHere, Incarnation(9));
  Client second{nullptr, random_.Bits<SessionTokenTag>(), {}};
  living->Admit(second.token);
  auto peer = client_.fabric->AddPeer(AddressOf(*living, second.token, Incarnation(9)), Soon());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto exposed = living->Expose(kSecond);
  ASSERT_TRUE(exposed.ok());
  living->Allow(second.token, exposed->key);
  Granted kept{
      {}, {*peer, exposed->address, exposed->length, exposed->key}, Incarnation(9), kSecond};
  auto imported = client_.fabric->Import(kept.as_given);
  ASSERT_TRUE(imported.ok()) << imported.status();
  kept.region = *imported;

  Landing landing(*client_.fabric, 200 * kRow);
  std::vector<ReadOp> ops;
  for (std::size_t i = 0; i < 200; ++i) {
    const Granted& from = i % 2 == 0 ? rows_ : kept;
    ops.push_back(RowRead(from, i * kRow, kRow, i, landing.At(i * kRow, kRow)));
  }
  node_->Kill();
  const auto statuses = ReadAll(*queue_, ops);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i % 2 == 1) {
      ExpectAllRight(kept, std::span(ops).subspan(i, 1), {statuses[i]});
    } else {
      ExpectNothingWrong(rows_, std::span(ops).subspan(i, 1), {statuses[i]});
    }
  }
}

TEST_P(OtherProcessTest, AStoppedPeerDelaysItsReadsAndServesThemWhenItWakes) {
  Landing landing(*client_.fabric, 100 * kRow);
  const auto ops = RandomRows(rows_, landing, 100, 4);
  ExpectAllRight(rows_, ops, ReadAll(*queue_, ops));
  landing.Fill(Landing::kUntouched);

  node_->Pause();
  SubmitAll(*queue_, ops);
  if (NeedsNoTarget(client_.fabric->info())) {
    ExpectAllRight(rows_, ops, Collect(*queue_, ops.size()));
    node_->Resume();
    return;
  }
  ReadCompletion done[8];
  EXPECT_EQ(queue_->Poll(done), 0u);  // and it returned
  EXPECT_TRUE(landing.IsAll(Landing::kUntouched));
  node_->Resume();
  ExpectAllRight(rows_, ops, Collect(*queue_, ops.size()));
}

TEST_P(OtherProcessTest, AddPeerOfAStoppedPeerEndsAtItsDeadline) {
  if (client_.fabric->info().kind == FabricKind::kOfi || !rig().asks_target()) {
    GTEST_SKIP() << "an address is resolved without the peer";
  }
  node_->Pause();
  const auto peer = client_.fabric->AddPeer(
      AddressOf(*node_, client_.token), SystemClock::Get().Now() + std::chrono::milliseconds(200));
  EXPECT_TRUE(absl::IsUnavailable(peer.status())) << peer.status();
  node_->Resume();
}

// The buffer belongs to the caller again once Abandon has returned, although the peer wakes later.
TEST_P(OtherProcessTest, AbandonedReadsOfAStoppedPeerNeverLand) {
  Landing landing(*client_.fabric, 500 * kRow);
  const auto ops = RandomRows(rows_, landing, 500, 6);
  const auto few = std::span(ops).first(8);
  ExpectAllRight(rows_, few, ReadAll(*queue_, few));

  node_->Pause();
  const std::size_t accepted = queue_->Submit(ops);
  ASSERT_GT(accepted, 0u);
  queue_->Abandon(client_.peer);
  constexpr std::byte kReused{0xaa};
  landing.Fill(kReused);
  node_->Resume();
  const auto statuses = Collect(*queue_, accepted);
  for (ReadStatus status : statuses) {
    EXPECT_TRUE(status == ReadStatus::kFlushed || status == ReadStatus::kOk) << Name(status);
  }
  EXPECT_EQ(PollFor(*queue_, std::chrono::milliseconds(100)), 0u);
  EXPECT_TRUE(landing.IsAll(kReused));
  // The peer is readable again.
  ExpectAllRight(rows_, few, ReadAll(*queue_, few));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, PeerTest, testing::ValuesIn(AllRigs()),
                         [](const auto& info) { return info.param->name(); });
INSTANTIATE_TEST_SUITE_P(Fabrics, OtherProcessTest, testing::ValuesIn(AllRigs()),
                         [](const auto& info) { return info.param->name(); });

}  // namespace
}  // namespace engram::fabric::conformance
