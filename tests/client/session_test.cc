#include "tests/client/held_session.h"

namespace engram::client {
namespace {

TEST_F(ClientSessionTest, CountsTheLeaseFromWhenItSentTheRequest) {
  Feed(session::Start{});
  const Instant sent = now_;
  now_ += seconds(1);
  const auto started = All<session::SessionStarted>(Opened());
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].lease->until(), sent + seconds(9));
}

TEST_F(ClientSessionTest, CountsARenewalFromWhenItWasSent) {
  Open();
  now_ += seconds(3);
  const Instant sent = now_;
  const auto renewals = Said<RenewLease>(Feed(session::Timer{}));
  ASSERT_EQ(renewals.size(), 1u);
  now_ += seconds(2);
  Hear(LeaseRenewed{renewals[0].sequence, seconds(9)});
  EXPECT_EQ(session_.lease()->until(), sent + seconds(9));
}

TEST_F(ClientSessionTest, IgnoresAnAnswerToARenewalItNeverSent) {
  Open();
  const Instant until = session_.lease()->until();
  now_ += seconds(1);
  Hear(LeaseRenewed{5, seconds(9)});
  EXPECT_EQ(session_.lease()->until(), until);
}

TEST_F(ClientSessionTest, RenewsEveryThirdOfTheLease) {
  Open();
  now_ += milliseconds(2'999);
  EXPECT_TRUE(Said<RenewLease>(Feed(session::Timer{})).empty());
  now_ += milliseconds(1);
  EXPECT_EQ(session_.NextTimer(), now_);
  EXPECT_EQ(Said<RenewLease>(Feed(session::Timer{})).size(), 1u);
  now_ += seconds(3);
  EXPECT_EQ(Said<RenewLease>(Feed(session::Timer{})).size(), 1u);
}

TEST_F(ClientSessionTest, AcknowledgesGrantsOnceTheyAreRouted) {
  Open();
  GrantUpdate update;
  update.revision = GrantRevision(1);
  update.granted = {HeldGrant(0)};
  const auto actions = Hear(update);
  EXPECT_EQ(All<session::ChangeRoutes>(actions).size(), 1u);
  EXPECT_TRUE(Said<RenewLease>(actions).empty());
  const auto renewals = Said<RenewLease>(RoutesChanged(1));
  ASSERT_EQ(renewals.size(), 1u);
  EXPECT_EQ(renewals[0].applied, GrantRevision(1));
}

TEST_F(ClientSessionTest, AcknowledgesAWithdrawalOnlyAfterStartedReadsEndedAndTheRegionIsUnmapped) {
  Open();
  Hold(2);
  const RouteVersion pass = reader_.Enter();
  auto actions = Withdraw(2, 0);
  ASSERT_EQ(All<session::ChangeRoutes>(actions).size(), 1u);
  EXPECT_EQ(All<session::ChangeRoutes>(actions)[0].withdrawn, std::vector<ShardKey>{HeldShard(0)});
  EXPECT_TRUE(RoutesChanged(2).empty());
  now_ += milliseconds(1);
  EXPECT_EQ(session_.NextTimer(), now_);
  EXPECT_TRUE(Feed(session::Timer{}).empty());
  reader_.Exit(pass);
  actions = Feed(session::Timer{});
  ASSERT_EQ(All<session::ReleaseRegions>(actions).size(), 1u);
  EXPECT_TRUE(Said<RenewLease>(actions).empty());
  const auto renewals = Said<RenewLease>(Released(2));
  ASSERT_EQ(renewals.size(), 1u);
  EXPECT_EQ(renewals[0].applied, GrantRevision(2));
}

TEST_F(ClientSessionTest, AReplacedGrantIsRoutedAtOnceAndTheOldOneGivenBackAfterItsReads) {
  Open();
  Hold(2);
  const RouteVersion pass = reader_.Enter();
  GrantUpdate update;
  update.revision = GrantRevision(2);
  update.granted = {HeldGrant(0)};
  update.withdrawn.push_back({HeldShard(0), {}});
  update.paths.push_back({4, {}});
  auto actions = Hear(update);
  const auto changes = All<session::ChangeRoutes>(actions);
  ASSERT_EQ(changes.size(), 1u) << "the shard never leaves the routes";
  EXPECT_EQ(changes[0].granted.size(), 1u);
  EXPECT_TRUE(changes[0].withdrawn.empty());
  EXPECT_EQ(changes[0].paths.size(), 1u);
  EXPECT_TRUE(RoutesChanged(2).empty());
  EXPECT_EQ(session_.applied(), GrantRevision(1)) << "a read under the old key is under way";
  reader_.Exit(pass);
  actions = Feed(session::Timer{});
  ASSERT_EQ(All<session::ReleaseRegions>(actions).size(), 1u);
  EXPECT_EQ(All<session::ReleaseRegions>(actions)[0].withdrawn,
            std::vector<ShardKey>{HeldShard(0)});
  EXPECT_EQ(Said<RenewLease>(Released(2)).size(), 1u);
  EXPECT_EQ(session_.applied(), GrantRevision(2));
  // It is still held.
  EXPECT_EQ(All<session::ChangeRoutes>(Withdraw(3, 0)).size(), 1u);
}

TEST_F(ClientSessionTest, ReadsStartedAfterTheWithdrawalDoNotDelayIt) {
  Open();
  Hold(1);
  Withdraw(2, 0);
  const RouteVersion version = quiescence_.Publish();
  const RouteVersion pass = reader_.Enter();
  const auto actions = Feed(session::RoutesChanged{session_.opening(), GrantRevision(2), version});
  EXPECT_EQ(All<session::ReleaseRegions>(actions).size(), 1u);
  reader_.Exit(pass);
}

TEST_F(ClientSessionTest, TurnsReadsAwayOnlyWhenTheSuccessorIsReached) {
  Open();
  Hold(1);
  auto actions = Withdraw(2, 0, {{{"node-1"}, Incarnation(3), "h:2"}});
  ASSERT_EQ(All<session::ReachSuccessors>(actions).size(), 1u);
  EXPECT_TRUE(All<session::ChangeRoutes>(actions).empty());
  actions = Feed(session::SuccessorsReached{session_.opening(), GrantRevision(2)});
  EXPECT_EQ(All<session::ChangeRoutes>(actions).size(), 1u);
}

TEST_F(ClientSessionTest, GoesOnWithoutASuccessorThatCannotBeReached) {
  Open();
  Hold(1);
  Withdraw(2, 0, {{{"node-1"}, Incarnation(3), "h:2"}});
  now_ += seconds(3);
  EXPECT_EQ(session_.NextTimer(), now_);
  EXPECT_EQ(All<session::ChangeRoutes>(Feed(session::Timer{})).size(), 1u);
}

TEST_F(ClientSessionTest, ALaterRevisionIsNotAcknowledgedBeforeAnEarlierOne) {
  Open();
  Hold(2);
  const RouteVersion pass = reader_.Enter();
  Withdraw(2, 0);
  RoutesChanged(2);
  GrantUpdate update;
  update.revision = GrantRevision(3);
  update.granted = {HeldGrant(5)};
  EXPECT_EQ(All<session::ChangeRoutes>(Hear(update)).size(), 1u);
  RoutesChanged(3);
  EXPECT_EQ(session_.applied(), GrantRevision(1));
  reader_.Exit(pass);
  Feed(session::Timer{});
  Released(2);
  EXPECT_EQ(session_.applied(), GrantRevision(3));
}

TEST_F(ClientSessionTest, ARevisionThatIsMissingEndsTheSession) {
  Open();
  Hold(1);
  const auto actions = Withdraw(3, 0);
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  EXPECT_EQ(session_.state(), State::kVoiding);
}

TEST_F(ClientSessionTest, AnExpiredLeaseVoidsEveryGrantAndSaysGoodbyeWhenQuiet) {
  Open();
  Hold(1);
  now_ += seconds(9);
  auto actions = Feed(session::Timer{});
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  EXPECT_TRUE(Said<Goodbye>(actions).empty());
  actions = Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  EXPECT_EQ(All<session::ReleaseAll>(actions).size(), 1u);
  EXPECT_TRUE(Said<Goodbye>(actions).empty());
  actions = Feed(session::AllReleased{session_.opening()});
  EXPECT_EQ(Said<Goodbye>(actions).size(), 1u);
  EXPECT_EQ(All<session::CloseStream>(actions).size(), 1u);
}

TEST_F(ClientSessionTest, AnUnextendedRenewalLetsTheLeaseRunOut) {
  Open();
  Hold(1);
  const Instant until = session_.lease()->until();
  now_ += seconds(3);
  const auto renewals = Said<RenewLease>(Feed(session::Timer{}));
  Hear(LeaseRenewed{renewals.at(0).sequence, Duration(0)});
  EXPECT_EQ(session_.lease()->until(), until);
}

TEST_F(ClientSessionTest, ANewSessionNeverVouchesForReadsOfTheOldOne) {
  Open();
  const auto old_lease = session_.lease();
  Feed(session::StreamLost{session_.opening(), absl::InternalError("reset")});
  Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  Feed(session::AllReleased{session_.opening()});
  const Instant until = old_lease->until();
  now_ = *session_.NextTimer();
  Feed(session::Timer{});
  Opened();
  EXPECT_NE(session_.lease(), old_lease);
  EXPECT_EQ(old_lease->until(), until);
}

TEST_F(ClientSessionTest, GoodbyeComesOnlyAfterQuiescence) {
  Open();
  Hold(1);
  const RouteVersion pass = reader_.Enter();
  auto actions = Feed(session::Stop{});
  EXPECT_TRUE(Said<Goodbye>(actions).empty());
  Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  EXPECT_TRUE(Feed(session::Timer{}).empty());
  reader_.Exit(pass);
  Feed(session::Timer{});
  actions = Feed(session::AllReleased{session_.opening()});
  EXPECT_EQ(Said<Goodbye>(actions).size(), 1u);
  EXPECT_EQ(All<session::Stopped>(actions).size(), 1u);
  EXPECT_EQ(session_.state(), State::kStopped);
}

TEST_F(ClientSessionTest, AnOpeningWithoutAnswerIsRepeatedUnderTheSameRequestId) {
  const auto first = Said<OpenSession>(Feed(session::Start{}));
  now_ += seconds(2);
  EXPECT_EQ(All<session::CloseStream>(Feed(session::Timer{})).size(), 1u);
  now_ = *session_.NextTimer();
  const auto second = Said<OpenSession>(Feed(session::Timer{}));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first.at(0).request_id, second[0].request_id);
}

TEST_F(ClientSessionTest, RefusesAnotherIncarnation) {
  Feed(session::Start{});
  SessionOpened opened;
  opened.node = {"node-0"};
  opened.incarnation = Incarnation(8);
  opened.lease = seconds(9);
  const auto actions = Hear(opened);
  EXPECT_TRUE(All<session::SessionStarted>(actions).empty());
  EXPECT_EQ(session_.state(), State::kBackoff);
}

TEST_F(ClientSessionTest, FollowsTheNodeToItsNewIncarnation) {
  Open();
  Hold(1);
  auto actions = Feed(session::NodeMoved{Incarnation(8), "h:9"});
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  Feed(session::AllReleased{session_.opening()});
  now_ = *session_.NextTimer();
  actions = Feed(session::Timer{});
  const auto open = Said<OpenSession>(actions);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].incarnation, Incarnation(8));
  EXPECT_EQ(All<session::OpenStream>(actions).at(0).endpoint, "h:9");
}

TEST_F(ClientSessionTest, IgnoresWhatAnEarlierStreamSays) {
  Open();
  const auto old = session_.opening();
  Feed(session::StreamLost{old, absl::InternalError("reset")});
  Feed(session::RoutesVoided{old, quiescence_.Publish()});
  Feed(session::AllReleased{old});
  now_ = *session_.NextTimer();
  Feed(session::Timer{});
  Opened();
  GrantUpdate update;
  update.revision = GrantRevision(1);
  update.granted = {HeldGrant(0)};
  EXPECT_TRUE(Feed(session::NodeSaid{old, update}).empty());
  EXPECT_TRUE(Feed(session::StreamLost{old, absl::OkStatus()}).empty());
  EXPECT_EQ(session_.state(), State::kOpen);
}

TEST_F(ClientSessionTest, AsksForATableThatWasWantedWhileOpening) {
  Feed(session::Start{});
  EXPECT_TRUE(Feed(session::WantTable{TableUid{{2}}}).empty());
  EXPECT_EQ(Said<AddTable>(Opened()).size(), 1u);
  EXPECT_TRUE(Feed(session::WantTable{TableUid{{2}}}).empty());
  EXPECT_EQ(Said<AddTable>(Feed(session::WantTable{TableUid{{3}}})).size(), 1u);
}

}  // namespace
}  // namespace engram::client
