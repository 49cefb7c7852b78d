#include "poolserver/pull_session.h"

#include <gtest/gtest.h>

namespace engram::poolserver {
namespace {

using std::chrono::seconds;

class PullSessionTest : public testing::Test {
 protected:
  PullSessionTest() : session_(Options(), now_) {}
  static PullSession::Options Options() {
    PullSession::Options options;
    options.client = "node b";
    options.request_id = "r";
    options.node = {"a"};
    options.incarnation = Incarnation(3);
    options.table.bytes[0] = 1;
    return options;
  }
  static ShardKey Shard(std::uint32_t index) { return {Options().table, ShardIndex(index)}; }
  void Open() {
    session_.TakeMessages();
    SessionOpened opened;
    opened.node = {"a"};
    opened.lease = seconds(9);
    session_.Hear(now_, opened);
    session_.Hear(now_, GrantUpdate{GrantRevision(1),
                                    {{Shard(0), Tier::kDram, {}}, {Shard(1), Tier::kDram, {}}},
                                    {}});
    session_.TakeMessages();
  }
  void Withdraw(std::uint32_t shard, std::uint64_t revision) {
    session_.Hear(now_, GrantUpdate{GrantRevision(revision), {}, {{Shard(shard), {}}}});
  }
  // The revision of the renewal that was sent; nothing when none was.
  std::optional<GrantRevision> Renewed() {
    std::optional<GrantRevision> applied;
    for (const ClientMessage& message : session_.TakeMessages()) {
      if (const auto* renew = std::get_if<RenewLease>(&message)) applied = renew->applied;
    }
    return applied;
  }

  Instant now_{seconds(100)};
  PullSession session_;
};

TEST_F(PullSessionTest, AsksForTheTableOfThatIncarnation) {
  const auto messages = session_.TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  const auto& open = std::get<OpenSession>(messages[0]);
  EXPECT_EQ(open.incarnation, Incarnation(3));
  EXPECT_EQ(open.tables, std::vector{Options().table});
  EXPECT_FALSE(session_.StartRead(now_, Shard(0)));
}

TEST_F(PullSessionTest, ReadsOnlyWhatIsGranted) {
  Open();
  EXPECT_TRUE(session_.StartRead(now_, Shard(0)));
  EXPECT_FALSE(session_.StartRead(now_, Shard(7)));
  session_.FinishRead(now_, Shard(0));
}

TEST_F(PullSessionTest, AcknowledgesAWithdrawalOnlyWhenItsReadsAreOver) {
  Open();
  ASSERT_TRUE(session_.StartRead(now_, Shard(0)));
  Withdraw(0, 2);
  EXPECT_EQ(Renewed(), std::nullopt);
  EXPECT_FALSE(session_.StartRead(now_, Shard(0)));
  Withdraw(1, 3);  // nobody reads it, but revisions are acknowledged in order
  EXPECT_EQ(Renewed(), std::nullopt);
  session_.FinishRead(now_, Shard(0));
  EXPECT_EQ(Renewed(), GrantRevision(3));
}

TEST_F(PullSessionTest, ReadsOnUnderANewGrantAndLetsGoOfTheOldOneAfterItsReads) {
  Open();
  ASSERT_TRUE(session_.StartRead(now_, Shard(0)));
  const Grant renewed{Shard(0), Tier::kDram, {{0, 0, 64, 9}}};
  session_.Hear(now_, GrantUpdate{GrantRevision(2), {renewed}, {{Shard(0), {}}}, {}});
  EXPECT_EQ(Renewed(), std::nullopt) << "a read under the old one is under way";
  session_.FinishRead(now_, Shard(0));
  EXPECT_EQ(Renewed(), GrantRevision(2));
  EXPECT_EQ(session_.StartRead(now_, Shard(0)), renewed);
  session_.FinishRead(now_, Shard(0));
}

TEST_F(PullSessionTest, AcknowledgesAtOnceWhatNobodyReads) {
  Open();
  Withdraw(1, 2);
  EXPECT_EQ(Renewed(), GrantRevision(2));
}

TEST_F(PullSessionTest, CountsTheLeaseFromWhenItWasAskedFor) {
  const Instant asked = now_;
  now_ += seconds(4);
  Open();
  now_ = asked + seconds(9);
  EXPECT_FALSE(session_.StartRead(now_, Shard(0)));
  session_.Timer(now_);
  EXPECT_EQ(session_.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PullSessionTest, RenewsAThirdIntoTheLeaseAndGoesOn) {
  Open();
  ASSERT_EQ(session_.NextTimer(), now_ + seconds(3));
  now_ += seconds(3);
  session_.Timer(now_);
  EXPECT_EQ(Renewed(), GrantRevision(1));
  const Instant sent = now_;
  now_ += seconds(2);
  session_.Hear(now_, LeaseRenewed{2, seconds(9)});  // 1 acknowledged the grants
  now_ = sent + seconds(9) - std::chrono::milliseconds(1);
  EXPECT_TRUE(session_.StartRead(now_, Shard(0)));
  now_ += std::chrono::milliseconds(1);
  EXPECT_FALSE(session_.StartRead(now_, Shard(0)));
  session_.FinishRead(now_, Shard(0));
}

TEST_F(PullSessionTest, EndsWhenRefusedOrSilent) {
  PullSession silent(Options(), now_);
  silent.Timer(now_ + seconds(5));
  EXPECT_EQ(silent.status().code(), absl::StatusCode::kDeadlineExceeded);
  session_.Hear(now_, SessionRefused{absl::FailedPreconditionError("other incarnation")});
  EXPECT_EQ(session_.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PullSessionTest, SaysGoodbye) {
  Open();
  session_.Close();
  const auto messages = session_.TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Goodbye>(messages[0]));
  EXPECT_FALSE(session_.StartRead(now_, Shard(0)));
}

}  // namespace
}  // namespace engram::poolserver
