// Nodes that join, die, are replaced and come back: what the controller tells them.
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using MembershipTest = ControllerTest;

TEST_F(MembershipTest, IncarnationsGrowOverAllNodesAndRestarts) {
  FakeNode a("a"), b("b"), again("a", 1 << 30, "", "2");
  pool_.Join(a);
  pool_.Join(b);
  EXPECT_LT(a.welcomed->incarnation, b.welcomed->incarnation);
  pool_.Break(a);
  pool_.Restart();
  pool_.Join(again);
  EXPECT_LT(b.welcomed->incarnation, again.welcomed->incarnation);
}

TEST_F(MembershipTest, TheSameProcessKeepsItsIncarnation) {
  FakeNode a("a");
  pool_.Join(a);
  const Incarnation first = a.welcomed->incarnation;
  pool_.Break(a);
  pool_.Join(a);
  EXPECT_EQ(a.welcomed->incarnation, first);
  pool_.Break(a);
  a.hello.incarnation = Incarnation();  // its welcome was lost
  pool_.Join(a);
  EXPECT_EQ(a.welcomed->incarnation, first);
}

TEST_F(MembershipTest, FencingTokenGrowsWithEveryStart) {
  FakeNode a("a");
  pool_.Join(a);
  const FencingToken first = a.welcomed->token;
  pool_.Restart();
  pool_.Join(a);
  EXPECT_LT(first, a.welcomed->token);
}

TEST_F(MembershipTest, NewcomerIsRefusedWhileTheOtherProcessSpeaks) {
  FakeNode old_process("a"), newcomer("a", 1 << 30, "", "2");
  pool_.Join(old_process);
  pool_.Join(newcomer);
  EXPECT_FALSE(newcomer.welcomed);
  EXPECT_TRUE(newcomer.refused.ok());
  pool_.clock().Advance(seconds(1));
  pool_.Beat(old_process);
  EXPECT_EQ(newcomer.refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(MessageOf(newcomer.refused), AllOf(HasSubstr("node a"), HasSubstr("is alive")));
  EXPECT_TRUE(old_process.refused.ok());
}

TEST_F(MembershipTest, StreamThatNeverSaysHelloIsClosed) {
  FakeNode a("a");
  const LinkId mute(1'000), prompt(1'001), gone(1'002);
  for (LinkId link : {mute, prompt, gone}) pool_.Feed(LinkOpened{link});
  pool_.Feed(NodeSaid{mute, CommandDone{1, absl::OkStatus(), {}}});  // is no hello
  pool_.Feed(NodeSaid{prompt, a.hello});
  pool_.Feed(LinkBroke{gone});
  pool_.clock().Advance(seconds(9));
  pool_.Feed(Tick{});
  EXPECT_FALSE(pool_.closed.contains(mute));
  pool_.clock().Advance(seconds(1));
  pool_.Feed(Tick{});
  ASSERT_TRUE(pool_.closed.contains(mute));
  EXPECT_EQ(pool_.closed.at(mute).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(pool_.closed.at(mute)), HasSubstr("within 10s"));
  EXPECT_FALSE(pool_.closed.contains(gone));
}

TEST_F(MembershipTest, RestartAfterAKillJoinsAtOnceWhenTheOldStreamBreaks) {
  FakeNode old_process("a"), newcomer("a", 1 << 30, "", "2");
  pool_.Join(old_process);
  pool_.Join(newcomer);
  pool_.Break(old_process);
  ASSERT_TRUE(newcomer.welcomed);
  EXPECT_LT(old_process.welcomed->incarnation, newcomer.welcomed->incarnation);
}

TEST_F(MembershipTest, SilentProcessIsReplacedAndRefusedWhenItWakes) {
  FakeNode stopped("a"), newcomer("a", 1 << 30, "", "2");
  pool_.Join(stopped);
  const LinkId old_link = *stopped.link;
  pool_.Join(newcomer);
  pool_.clock().Advance(seconds(5));
  pool_.Feed(Tick{});
  ASSERT_TRUE(newcomer.welcomed);
  stopped.link = old_link;
  pool_.Join(stopped);  // woken, on a new stream
  EXPECT_EQ(stopped.refused.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(stopped.refused), HasSubstr("must exit"));
}

TEST_F(MembershipTest, ANodeIsDeletedOnceItIsDeadAndEmpty) {
  FakeNode a("a"), b("b");
  LoadSmall({&a});
  pool_.Join(b);
  const auto refused = [&](const FakeNode& node, const char* says) {
    const auto reply = pool_.SetIntent(node, NodeIntent::kDelete);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(MessageOf(reply.status()), HasSubstr(says));
  };
  refused(b, "node b is alive; drain it");
  pool_.clock().Advance(seconds(5));
  pool_.Feed(Tick{});
  refused(a, "node a still has 6 replicas");
  EXPECT_TRUE(pool_.SetIntent(b, NodeIntent::kDelete, /*dry_run=*/true).ok());
  EXPECT_NE(pool_.map().FindNode(b.hello.node), nullptr);
  EXPECT_TRUE(pool_.SetIntent(b, NodeIntent::kDelete).ok());
  EXPECT_EQ(pool_.map().FindNode(b.hello.node), nullptr);
  pool_.Restart();
  EXPECT_EQ(pool_.state().FindNode(b.hello.node), nullptr);
  EXPECT_EQ(pool_.SetIntent(b, NodeIntent::kDelete).status().code(), absl::StatusCode::kNotFound);
  FakeNode again("b");
  pool_.Join(again);
  EXPECT_TRUE(again.welcomed);
}

TEST_F(MembershipTest, SilentNodesDieAndComeBack) {
  FakeNode a("a");
  pool_.Join(a);
  pool_.clock().Advance(milliseconds(4'900));
  pool_.Feed(Tick{});
  EXPECT_TRUE(pool_.map().FindNode({"a"})->alive);
  pool_.clock().Advance(milliseconds(100));
  pool_.Feed(Tick{});
  EXPECT_FALSE(pool_.map().FindNode({"a"})->alive);
  pool_.Join(a);
  EXPECT_TRUE(pool_.map().FindNode({"a"})->alive);
}

TEST_F(MembershipTest, RestartedNodeLoadsItsReplicasAgainAndTheTableStaysReady) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  const std::string digest = pool_.Find(kSmall)->record.content_digest;
  pool_.Break(b);
  FakeNode again("b", 1 << 30, "", "2");
  pool_.Join(again);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.Find(kSmall)->counts().loading, 6u);
  pool_.Settle({&a, &again});
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
  EXPECT_EQ(again.held.size(), 6u);
  EXPECT_EQ(pool_.Find(kSmall)->record.content_digest, digest);
}

TEST_F(MembershipTest, ANodeThatReturnsWithAnotherVersionAndCapacityIsTakenAsItIsNow) {
  FakeNode a("a", 4 << 20);
  a.hello.version = "2.0";
  pool_.Join(a);
  EXPECT_EQ(pool_.Load(SmallLoad())->status().code(), absl::StatusCode::kResourceExhausted);
  pool_.Break(a);
  FakeNode again("a", 64 << 20, "", "2");
  again.hello.version = "1.0";  // an older program
  pool_.Join(again);
  const NodeRecord* record = pool_.state().FindNode({"a"});
  EXPECT_EQ(record->version, "1.0");
  EXPECT_EQ(record->tiers.at(0).capacity_bytes, 64u << 20);
  ASSERT_TRUE(pool_.Load(SmallLoad("r2"))->ok());
  pool_.Settle({&again});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  // The process of before wakes up.
  a.hello.incarnation = a.welcomed->incarnation;
  pool_.Join(a);
  EXPECT_EQ(a.refused.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(pool_.state().FindNode({"a"})->version, "1.0");
}

TEST_F(MembershipTest, ReloadedReplicaWithOtherBytesNeverServes) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  pool_.Break(b);
  FakeNode again("b", 1 << 30, "", "2");
  again.corrupt = true;  // the source has changed
  pool_.Join(again);
  pool_.Settle({&a, &again}, 8);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 6u);
  EXPECT_TRUE(again.held.empty());
  EXPECT_THAT(pool_.said, ::testing::Contains(HasSubstr("source has changed")));
  again.corrupt = false;
  pool_.Settle({&a, &again}, 20);
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
}

TEST_F(MembershipTest, ControllerRestartKeepsTablesServingWithoutReloading) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  const Epoch before = pool_.state().epoch;
  pool_.Restart();
  EXPECT_GT(pool_.state().epoch, before);
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
  pool_.Join(a);
  pool_.Join(b);
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
  EXPECT_EQ(pool_.controller().counters().loads_commanded, 0u);
}

TEST_F(MembershipTest, ControllerRestartInTheMiddleOfALoadFinishesIt) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  a.Obey();
  pool_.Beat(a);  // a is done and its checksums are known, and then forgotten
  pool_.Restart();
  pool_.Join(a);
  pool_.Join(b);
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
}

TEST_F(MembershipTest, ReplicasThatNobodyKnowsAreRetired) {
  FakeNode a("a");
  LoadSmall({&a});
  const ShardKey stranger{SeededRandom(99).Bits<struct TableUidTag>(), ShardIndex(3)};
  a.held[stranger] = {pool_.Find(kSmall)->record, ReplicaState::kServing};
  pool_.Break(a);
  pool_.Join(a);
  pool_.Settle({&a});
  EXPECT_FALSE(a.held.contains(stranger));
  EXPECT_EQ(a.held.size(), 6u);
}

}  // namespace
}  // namespace engram::placement
