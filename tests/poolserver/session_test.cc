#include "poolserver/session.h"

#include <gtest/gtest.h>

namespace engram::poolserver {
namespace {

ShardKey KeyOf(std::uint32_t index) { return {TableUid{{1}}, ShardIndex(index)}; }
Grant GrantOf(std::uint32_t index) { return {KeyOf(index), Tier::kDram, {{0, 0, 64, index}}}; }

constexpr RegistrationId kFirstKeys{1}, kSecondKeys{2};

class NodeSessionTest : public testing::Test {
 protected:
  NodeSessionTest() {
    OpenSession open;
    open.client = "replica-0";
    open.tables = {TableUid{{1}}};
    session_.emplace(SessionId(9), SessionToken{}, open, StreamId(4));
  }
  std::optional<NodeSession> session_;
};

TEST_F(NodeSessionTest, NumbersUpdatesFromOneAndCollectsChanges) {
  EXPECT_FALSE(session_->TakeUpdate());
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->AddGrant(GrantOf(2), kFirstKeys);
  const auto first = session_->TakeUpdate();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->revision, GrantRevision(1));
  EXPECT_EQ(first->granted.size(), 2u);
  session_->AddWithdrawal({KeyOf(1), {}});
  EXPECT_EQ(session_->TakeUpdate()->revision, GrantRevision(2));
  EXPECT_FALSE(session_->TakeUpdate());
}

TEST_F(NodeSessionTest, IsQuietOnlyForRevisionsItApplied) {
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->AddGrant(GrantOf(2), kFirstKeys);
  session_->TakeUpdate();
  session_->AddWithdrawal({KeyOf(1), {}});
  session_->TakeUpdate();
  session_->AddWithdrawal({KeyOf(2), {}});
  session_->TakeUpdate();
  EXPECT_TRUE(session_->Apply(GrantRevision(1))->empty());
  EXPECT_TRUE(session_->HasUnapplied());
  EXPECT_EQ(*session_->Apply(GrantRevision(2)),
            (std::vector<RegistrationKey>{{KeyOf(1), kFirstKeys}}));
  EXPECT_TRUE(session_->HasUnapplied());
  EXPECT_EQ(*session_->Apply(GrantRevision(3)),
            (std::vector<RegistrationKey>{{KeyOf(2), kFirstKeys}}));
  EXPECT_FALSE(session_->HasUnapplied());
}

TEST_F(NodeSessionTest, RefusesARevisionThatWasNeverSentOrGoesBack) {
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->TakeUpdate();
  EXPECT_EQ(session_->Apply(GrantRevision(2)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(session_->Apply(GrantRevision(1)).ok());
  EXPECT_EQ(session_->Apply(GrantRevision(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NodeSessionTest, KeepsWithdrawalsOfABrokenStreamUnapplied) {
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->TakeUpdate();
  session_->StreamBroken();
  session_->AddWithdrawal({KeyOf(1), {}});
  EXPECT_FALSE(session_->TakeUpdate());
  EXPECT_TRUE(session_->HasUnapplied());
}

TEST_F(NodeSessionTest, AReplacedGrantIsWithdrawnAndGivenInOneUpdate) {
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->TakeUpdate();
  session_->Replace(GrantOf(1), kSecondKeys);
  const auto update = session_->TakeUpdate();
  EXPECT_EQ(update->granted.size(), 1u);
  EXPECT_EQ(update->withdrawn.size(), 1u);
  EXPECT_TRUE(session_->HasUnapplied());
  EXPECT_EQ(session_->MayRead(KeyOf(1)), kSecondKeys);
  // Withdrawn altogether before the client has let go of the first one.
  session_->AddWithdrawal({KeyOf(1), {}});
  EXPECT_FALSE(session_->Holds(KeyOf(1)));
  EXPECT_EQ(session_->MayRead(KeyOf(1)), kSecondKeys) << "until it has applied that";
  session_->TakeUpdate();
  EXPECT_EQ(*session_->Apply(GrantRevision(2)),
            (std::vector<RegistrationKey>{{KeyOf(1), kFirstKeys}}));
  EXPECT_EQ(*session_->Apply(GrantRevision(3)),
            (std::vector<RegistrationKey>{{KeyOf(1), kSecondKeys}}));
  EXPECT_EQ(session_->MayRead(KeyOf(1)), std::nullopt);
}

TEST_F(NodeSessionTest, APathIsToldOnceWithTheFirstGrantThatNamesIt) {
  session_->AddPath(7, {FabricKind::kOfi, "tcp!00", true, false, 0});
  EXPECT_FALSE(session_->TakeUpdate()) << "nothing is granted there";
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->AddPath(7, {});
  const auto update = session_->TakeUpdate();
  ASSERT_EQ(update->paths.size(), 1u);
  EXPECT_EQ(update->paths[0].address.address, "tcp!00");
  session_->AddGrant(GrantOf(2), kFirstKeys);
  session_->AddPath(7, {});
  EXPECT_TRUE(session_->TakeUpdate()->paths.empty());
}

TEST_F(NodeSessionTest, StartsOverOnANewStreamOnlyWhileItsClientHoldsNothing) {
  session_->AddGrant(GrantOf(1), kFirstKeys);
  session_->TakeUpdate();
  EXPECT_TRUE(session_->MayReattach());
  session_->Reattach(StreamId(5));
  EXPECT_FALSE(session_->Holds(KeyOf(1)));
  session_->AddGrant(GrantOf(1), kFirstKeys);
  EXPECT_EQ(session_->TakeUpdate()->revision, GrantRevision(2));
  EXPECT_TRUE(session_->Apply(GrantRevision(2)).ok());
  EXPECT_FALSE(session_->MayReattach());
}

}  // namespace
}  // namespace engram::poolserver
