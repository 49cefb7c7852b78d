// A session whose stream broke while its lease runs.
#include "tests/client/held_session.h"

namespace engram::client {
namespace {

TEST_F(ClientSessionTest, AStreamThatBreaksLeavesTheGrantsInForceUntilTheLeaseEnds) {
  Open();
  Hold(1);
  const Instant until = session_.lease()->until();
  auto actions = Break();
  EXPECT_EQ(All<session::StreamCut>(actions).size(), 1u);
  EXPECT_TRUE(All<session::VoidRoutes>(actions).empty());
  EXPECT_TRUE(session_.cut());
  // The node does not answer: it is asked again and again, and nothing is said to the old stream.
  std::size_t asked = 0;
  while (now_ < until) {
    ASSERT_EQ(session_.state(), State::kOpen);
    EXPECT_EQ(session_.lease()->until(), until);
    now_ = *session_.NextTimer();
    actions = Feed(session::Timer{});
    EXPECT_TRUE(Said<RenewLease>(actions).empty());
    asked += Said<OpenSession>(actions).size();
  }
  EXPECT_GT(asked, 1u);
  EXPECT_EQ(now_, until);
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  EXPECT_EQ(session_.state(), State::kVoiding);
}

TEST_F(ClientSessionTest, ANodeThatAnswersAgainIsReadUnderItsNewGrantsOnceTheOldReadsAreOver) {
  Open();
  Hold(1);
  const auto old = session_.opening();
  const auto old_lease = session_.lease();
  Break();
  const auto reopened = AskedAgain();
  const RouteVersion pass = reader_.Enter();
  SessionOpened opened;
  opened.node = {"node-0"};
  opened.incarnation = Incarnation(7);
  opened.lease = seconds(9);
  const Instant sent = now_;
  now_ += milliseconds(1);
  auto actions = Feed(session::NodeSaid{reopened, opened});
  ASSERT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  EXPECT_EQ(All<session::VoidRoutes>(actions)[0].session, old);
  GrantUpdate update;
  update.revision = GrantRevision(1);
  update.granted = {HeldGrant(0)};
  EXPECT_TRUE(Feed(session::NodeSaid{reopened, update}).empty()) << "the old grants first";
  Feed(session::RoutesVoided{old, quiescence_.Publish()});
  EXPECT_TRUE(All<session::ReleaseAll>(Feed(session::Timer{})).empty());
  reader_.Exit(pass);
  EXPECT_EQ(All<session::ReleaseAll>(Feed(session::Timer{})).size(), 1u);
  actions = Feed(session::AllReleased{old});
  EXPECT_TRUE(Said<Goodbye>(actions).empty()) << "it would end the new session";
  const auto started = All<session::SessionStarted>(actions);
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].session, reopened);
  EXPECT_NE(started[0].lease, old_lease);
  EXPECT_EQ(started[0].lease->until(), sent + seconds(9));
  ASSERT_EQ(All<session::ChangeRoutes>(actions).size(), 1u);
  EXPECT_EQ(session_.opening(), reopened);
  EXPECT_EQ(session_.state(), State::kOpen);
  EXPECT_FALSE(session_.cut());
  RoutesChanged(1);
  EXPECT_EQ(session_.applied(), GrantRevision(1));
}

TEST_F(ClientSessionTest, ASessionThatIsRefusedAfterABreakLosesItsGrantsAtOnce) {
  Open();
  Hold(1);
  Break();
  auto actions =
      Feed(session::NodeSaid{AskedAgain(), SessionRefused{absl::PermissionDeniedError("revoked")}});
  ASSERT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  EXPECT_TRUE(absl::IsPermissionDenied(All<session::VoidRoutes>(actions)[0].why));
  Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  actions = Feed(session::AllReleased{session_.opening()});
  EXPECT_TRUE(All<session::SessionStarted>(actions).empty());
  EXPECT_EQ(session_.state(), State::kBackoff);
}

TEST_F(ClientSessionTest, AStreamThatTheNodeEndedWithAReasonEndsTheSession) {
  Open();
  Hold(1);
  const auto actions =
      Feed(session::StreamLost{session_.opening(), absl::PermissionDeniedError("revoked")});
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  EXPECT_EQ(session_.state(), State::kVoiding);
}

TEST_F(ClientSessionTest, AWithdrawalThatCameBeforeTheBreakIsCarriedOutAndNotAcknowledged) {
  Open();
  Hold(2);
  const RouteVersion pass = reader_.Enter();
  EXPECT_EQ(All<session::ChangeRoutes>(Withdraw(2, 0)).size(), 1u);
  RoutesChanged(2);
  Break();
  reader_.Exit(pass);
  EXPECT_EQ(All<session::ReleaseRegions>(Feed(session::Timer{})).size(), 1u);
  EXPECT_TRUE(Said<RenewLease>(Released(2)).empty());
  EXPECT_EQ(session_.applied(), GrantRevision(2));
  EXPECT_TRUE(session_.cut());
}

TEST_F(ClientSessionTest, ANodeThatRunsAnewAfterABreakIsNotReadUnderItsOldGrants) {
  Open();
  Hold(1);
  Break();
  const auto reopened = AskedAgain();
  auto actions = Feed(session::NodeMoved{Incarnation(8), "h:9"});
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  ASSERT_EQ(All<session::CloseStream>(actions).size(), 1u);
  EXPECT_EQ(All<session::CloseStream>(actions)[0].session, reopened);
  EXPECT_TRUE(Opened().empty());
  Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  Feed(session::AllReleased{session_.opening()});
  now_ = *session_.NextTimer();
  EXPECT_EQ(Said<OpenSession>(Feed(session::Timer{})).at(0).incarnation, Incarnation(8));
}

TEST_F(ClientSessionTest, LeavingAfterABreakEndsTheSessionThatWasAskedFor) {
  Open();
  Hold(1);
  Break();
  const auto reopened = AskedAgain();
  auto actions = Feed(session::Stop{});
  EXPECT_EQ(Said<Goodbye>(actions).size(), 1u);
  ASSERT_EQ(All<session::CloseStream>(actions).size(), 1u);
  EXPECT_EQ(All<session::CloseStream>(actions)[0].session, reopened);
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  EXPECT_EQ(All<session::Stopped>(Feed(session::AllReleased{session_.opening()})).size(), 1u);
}

TEST_F(ClientSessionTest, ATableThatIsWantedAfterABreakIsAskedForInTheNewSession) {
  Open();
  Hold(1);
  Break();
  EXPECT_TRUE(Feed(session::WantTable{TableUid{{2}}}).empty());
  now_ = *session_.NextTimer();
  EXPECT_EQ(Said<OpenSession>(Feed(session::Timer{})).at(0).tables.size(), 2u);
  EXPECT_TRUE(Feed(session::WantTable{TableUid{{3}}}).empty()) << "asked for when it is open";
}

}  // namespace
}  // namespace engram::client
