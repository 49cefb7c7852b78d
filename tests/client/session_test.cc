#include "client/session.h"

#include <gtest/gtest.h>

namespace engram::client {
namespace {

using session::Action;
using std::chrono::milliseconds;
using std::chrono::seconds;
using State = ClientSession::State;

ShardKey Shard(std::uint32_t index) { return {TableUid{{1}}, ShardIndex(index)}; }
Grant GrantOf(std::uint32_t index) { return {Shard(index), Tier::kDram, {{0, 0, 64, index}}}; }

template <class T>
std::vector<T> All(const std::vector<Action>& actions) {
  std::vector<T> out;
  for (const Action& action : actions) {
    if (const T* found = std::get_if<T>(&action)) out.push_back(*found);
  }
  return out;
}

template <class T>
std::vector<T> Said(const std::vector<Action>& actions) {
  std::vector<T> out;
  for (const session::SendToNode& send : All<session::SendToNode>(actions)) {
    if (const T* found = std::get_if<T>(&send.message)) out.push_back(*found);
  }
  return out;
}

class ClientSessionTest : public testing::Test {
 protected:
  ClientSessionTest() : random_(1), session_(Options(), &quiescence_, &random_) {}

  static ClientSessionOptions Options() {
    ClientSessionOptions options;
    options.client = "replica-0";
    options.node = {"node-0"};
    options.incarnation = Incarnation(7);
    options.endpoint = "h:1";
    options.tables = {TableUid{{1}}};
    return options;
  }

  std::vector<Action> Feed(session::Event event) {
    return session_.OnEvent(now_, std::move(event));
  }
  std::vector<Action> Hear(NodeMessage message) {
    return Feed(session::NodeSaid{session_.opening(), std::move(message)});
  }
  std::vector<Action> Opened() {
    SessionOpened opened;
    opened.node = {"node-0"};
    opened.incarnation = Incarnation(7);
    opened.lease = seconds(9);
    return Hear(opened);
  }
  void Open() {
    Feed(session::Start{});
    Opened();
    ASSERT_EQ(session_.state(), State::kOpen);
  }
  // Publishes as the adapter would.
  std::vector<Action> RoutesChanged(std::uint64_t revision) {
    return Feed(
        session::RoutesChanged{session_.opening(), GrantRevision(revision), quiescence_.Publish()});
  }
  std::vector<Action> Released(std::uint64_t revision) {
    return Feed(session::RegionsReleased{session_.opening(), GrantRevision(revision)});
  }
  void Hold(std::uint32_t shards) {
    GrantUpdate update;
    update.revision = GrantRevision(1);
    for (std::uint32_t i = 0; i < shards; ++i) update.granted.push_back(GrantOf(i));
    Hear(update);
    RoutesChanged(1);
    ASSERT_EQ(session_.applied(), GrantRevision(1));
  }
  std::vector<Action> Withdraw(std::uint64_t revision, std::uint32_t shard,
                               std::vector<Successor> successors = {}) {
    GrantUpdate update;
    update.revision = GrantRevision(revision);
    update.withdrawn.push_back({Shard(shard), std::move(successors)});
    return Hear(update);
  }

  Instant now_{seconds(100)};
  SeededRandom random_;
  Quiescence quiescence_;
  QuiescenceReader reader_{&quiescence_};
  ClientSession session_;
};

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
  update.granted = {GrantOf(0)};
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
  EXPECT_EQ(All<session::ChangeRoutes>(actions)[0].withdrawn, std::vector<ShardKey>{Shard(0)});
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
  update.granted = {GrantOf(0)};
  update.withdrawn.push_back({Shard(0), {}});
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
  EXPECT_EQ(All<session::ReleaseRegions>(actions)[0].withdrawn, std::vector<ShardKey>{Shard(0)});
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
  update.granted = {GrantOf(5)};
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

TEST_F(ClientSessionTest, ALostStreamVoidsEveryGrantAndReleasesAfterQuiescence) {
  Open();
  Hold(1);
  const RouteVersion pass = reader_.Enter();
  auto actions = Feed(session::StreamLost{session_.opening(), absl::UnavailableError("reset")});
  EXPECT_EQ(All<session::VoidRoutes>(actions).size(), 1u);
  actions = Feed(session::RoutesVoided{session_.opening(), quiescence_.Publish()});
  EXPECT_TRUE(All<session::ReleaseAll>(actions).empty());
  reader_.Exit(pass);
  EXPECT_EQ(All<session::ReleaseAll>(Feed(session::Timer{})).size(), 1u);
  actions = Feed(session::AllReleased{session_.opening()});
  EXPECT_TRUE(actions.empty());
  EXPECT_EQ(session_.state(), State::kBackoff);
  const auto lost = session_.opening();
  now_ = *session_.NextTimer();
  actions = Feed(session::Timer{});
  EXPECT_EQ(Said<OpenSession>(actions).size(), 1u);
  EXPECT_GT(session_.opening(), lost);
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
  Feed(session::StreamLost{session_.opening(), absl::UnavailableError("reset")});
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
  Feed(session::StreamLost{old, absl::UnavailableError("reset")});
  Feed(session::RoutesVoided{old, quiescence_.Publish()});
  Feed(session::AllReleased{old});
  now_ = *session_.NextTimer();
  Feed(session::Timer{});
  Opened();
  GrantUpdate update;
  update.revision = GrantRevision(1);
  update.granted = {GrantOf(0)};
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
