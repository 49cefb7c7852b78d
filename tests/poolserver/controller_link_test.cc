#include "poolserver/controller_link.h"

#include <gtest/gtest.h>

namespace engram::poolserver {
namespace {

using std::chrono::seconds;

NodeHello OwnHello() {
  NodeHello hello;
  hello.node = {"node-0"};
  hello.process_nonce = "abc";
  return hello;
}

ReplicaReport Report(std::uint32_t shard, ReplicaState state) {
  ReplicaReport report;
  report.shard = {TableUid{{1}}, ShardIndex(shard)};
  report.state = state;
  return report;
}

NodeWelcome Welcome(std::uint64_t incarnation, std::uint64_t token) {
  return {Incarnation(incarnation), FencingToken(token), seconds(1), seconds(5)};
}

Command CommandOf(std::uint64_t incarnation, std::uint64_t token) {
  Command command;
  command.incarnation = Incarnation(incarnation);
  command.token = FencingToken(token);
  return command;
}

class ControllerLinkTest : public testing::Test {
 protected:
  void Join(std::uint64_t incarnation = 7, std::uint64_t token = 3) {
    link_.Connected({});
    ASSERT_TRUE(link_.Welcomed(now_, Welcome(incarnation, token)).ok());
  }
  Instant now_{seconds(100)};
  ControllerLink link_{OwnHello()};
};

TEST_F(ControllerLinkTest, AcceptsNothingBeforeItIsWelcomedOnThisStream) {
  EXPECT_FALSE(link_.Check(CommandOf(7, 3)).ok());
  EXPECT_FALSE(link_.Welcomed(now_, Welcome(7, 3)).ok());
  Join();
  EXPECT_TRUE(link_.Check(CommandOf(7, 3)).ok());
  link_.Lost();
  EXPECT_FALSE(link_.Check(CommandOf(7, 3)).ok());
}

TEST_F(ControllerLinkTest, RefusesAnOlderFencingToken) {
  Join();
  EXPECT_TRUE(link_.Check(CommandOf(7, 5)).ok());
  EXPECT_EQ(link_.Check(CommandOf(7, 4)).code(), absl::StatusCode::kAborted);
  link_.Connected({});
  EXPECT_EQ(link_.Welcomed(now_, Welcome(7, 4)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(link_.welcomed());
}

TEST_F(ControllerLinkTest, RefusesACommandForAnotherIncarnation) {
  Join();
  EXPECT_EQ(link_.Check(CommandOf(6, 3)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(link_.Check(CommandOf(8, 3)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ControllerLinkTest, AsksToExitWhenAnotherIncarnationIsIssued) {
  Join(7);
  link_.Connected({});
  EXPECT_EQ(link_.Welcomed(now_, Welcome(8, 3)).code(), absl::StatusCode::kAborted);
}

TEST_F(ControllerLinkTest, SaysTheSameIncarnationWhenItJoinsAgain) {
  Join(7);
  EXPECT_EQ(link_.Connected({}).incarnation, Incarnation(7));
}

TEST_F(ControllerLinkTest, BeatsByTheClock) {
  Join();
  EXPECT_TRUE(link_.Beat(now_));
  EXPECT_FALSE(link_.Beat(now_));
  EXPECT_EQ(link_.NextBeat(), now_ + seconds(1));
  EXPECT_TRUE(link_.Beat(now_ + seconds(1)));
}

TEST_F(ControllerLinkTest, RepeatsAReportUntilItIsSeenByTheNextStream) {
  Join();
  link_.Beat(now_);
  link_.Seen({1});
  link_.Changed(Report(4, ReplicaState::kServing));
  ASSERT_EQ(link_.Beat(now_)->changed.size(), 1u);
  EXPECT_EQ(link_.Beat(now_ + seconds(1))->changed.size(), 0u);
  link_.Lost();
  Join();
  const auto again = link_.Beat(now_);
  ASSERT_EQ(again->changed.size(), 1u);
  link_.Seen({again->sequence});
  link_.Lost();
  Join();
  EXPECT_EQ(link_.Beat(now_)->changed.size(), 0u);
}

TEST_F(ControllerLinkTest, ReportsAChangeAtOnceButKeepsOneHeartbeatInFlight) {
  Join();
  link_.Beat(now_);
  link_.Changed(Report(4, ReplicaState::kLoading));
  EXPECT_FALSE(link_.Beat(now_));
  link_.Seen({1});
  link_.Changed(Report(4, ReplicaState::kServing));
  const auto beat = link_.Beat(now_);
  ASSERT_TRUE(beat);
  ASSERT_EQ(beat->changed.size(), 1u);
  EXPECT_EQ(beat->changed[0].state, ReplicaState::kServing);
}

TEST_F(ControllerLinkTest, AChangeAfterTheHeartbeatSurvivesItsAnswer) {
  Join();
  link_.Changed(Report(4, ReplicaState::kLoading));
  link_.Beat(now_);
  link_.Changed(Report(4, ReplicaState::kServing));
  link_.Seen({1});
  const auto beat = link_.Beat(now_);
  ASSERT_TRUE(beat);
  EXPECT_EQ(beat->changed[0].state, ReplicaState::kServing);
}

TEST_F(ControllerLinkTest, SplitsManyReportsOverHeartbeats) {
  Join();
  for (std::uint32_t shard = 0; shard < 1500; ++shard) {
    link_.Changed(Report(shard, ReplicaState::kServing));
  }
  EXPECT_EQ(link_.Beat(now_)->changed.size(), 1024u);
  link_.Seen({1});
  EXPECT_EQ(link_.Beat(now_)->changed.size(), 476u);
}

}  // namespace
}  // namespace engram::poolserver
