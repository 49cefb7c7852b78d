// Tenants: what is stored of them, what nodes are told, and what holders keep from being deleted.
#include "engram/identity.h"
#include "placement/heat/open_tables.h"
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using std::chrono::seconds;

class TenantTest : public ControllerTest {
 protected:
  TenantTest() : a_("a") { LoadSmall({&a_}); }

  absl::StatusOr<TenantRecord> Set(decltype(TenantRequest::change) change,
                                   const std::string& tenant = "team-a", bool dry_run = false) {
    return pool_.SetTenant({{"test", "", ""}, tenant, std::move(change), dry_run});
  }
  FakeNode a_;
};

TEST_F(TenantTest, ChangesAreStoredAndNodesAreTold) {
  EXPECT_FALSE(a_.policies);
  ASSERT_TRUE(Set(ClientRevocation{"bad", false}).ok());
  ASSERT_TRUE(Set(TableGrant{"small@1", false}).ok());
  ASSERT_TRUE(Set(TenantBudget{1000}).ok());
  const TenantPolicy wanted{"team-a", 1000, {"small@1"}, {"bad"}};
  ASSERT_TRUE(a_.policies);
  EXPECT_EQ(*a_.policies, std::vector<TenantPolicy>{wanted});
  pool_.Restart();
  const TenantRecord kept = pool_.state().TenantNamed("team-a");
  EXPECT_EQ(kept, (TenantRecord{"team-a", 1000, {"small@1"}, {"bad"}}));
}

TEST_F(TenantTest, ANodeKnowsThePoliciesBeforeItIsWelcomed) {
  ASSERT_TRUE(Set(ClientRevocation{"bad", false}).ok());
  FakeNode b("b");
  pool_.Join(b);
  ASSERT_TRUE(b.policies);
  EXPECT_EQ(b.policies->at(0).revoked_clients, std::vector<std::string>{"bad"});
}

TEST_F(TenantTest, WhatIsTakenBackIsGone) {
  ASSERT_TRUE(Set(ClientRevocation{"bad", false}).ok());
  ASSERT_TRUE(Set(ClientRevocation{"bad", false}).ok()) << "twice is once";
  ASSERT_TRUE(Set(ClientRevocation{"bad", true}).ok());
  EXPECT_TRUE(pool_.state().tenants.empty());
  EXPECT_EQ(*a_.policies, std::vector<TenantPolicy>{});
}

TEST_F(TenantTest, ADryRunChangesNothing) {
  const auto would = Set(TenantBudget{5}, "team-a", true);
  ASSERT_TRUE(would.ok());
  EXPECT_EQ(would->rows_per_second, 5u);
  EXPECT_TRUE(pool_.state().tenants.empty());
  EXPECT_FALSE(a_.policies);
}

TEST_F(TenantTest, NamesThatNoCertificateCanCarryAreRefused) {
  EXPECT_EQ(Set(TenantBudget{5}, "team/a").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Set(ClientRevocation{"", false}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Set(TableGrant{"@", false}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TenantTest, ABudgetIsSharedByTheNodesThatHoldTablesOfTheTenant) {
  FakeNode b("b");
  pool_.Join(b);
  ASSERT_TRUE(Set(TenantBudget{1000}).ok());
  ASSERT_TRUE(Set(TableGrant{"small", false}).ok());
  EXPECT_EQ(a_.policies->at(0).rows_per_second, 1000u) << "b has none of its tables";
  ASSERT_TRUE(pool_.Move(0, "a", "b").ok());
  pool_.Settle({&a_, &b}, 12);
  EXPECT_EQ(a_.policies->at(0).rows_per_second, 500u);
  EXPECT_EQ(b.policies->at(0).rows_per_second, 500u);
}

TEST(TenantMayRead, ItsOwnTablesAndThoseItWasGranted) {
  const TableName table{"t", "2"};
  const auto may = [&](const char* tenant, const char* owner, std::vector<std::string> granted) {
    return TenantMayRead(tenant, owner, table, granted);
  };
  EXPECT_TRUE(may("a", "a", {}));
  EXPECT_FALSE(may("a", "b", {}));
  EXPECT_TRUE(may("default", "", {}));
  EXPECT_FALSE(may("a", "", {}));
  EXPECT_TRUE(may("a", "b", {"t"}));
  EXPECT_TRUE(may("a", "b", {"t@2"}));
  EXPECT_FALSE(may("a", "b", {"t@1", "tt"}));
}

TEST(Delete, IsRefusedWhileClientsHoldTheTableUnlessForced) {
  std::vector<std::string> holders{"replica-1 of team-a"};
  ControllerOptions options;
  options.holders = [&](Instant, const TableUid&) { return holders; };
  SmallPool pool(1, options);
  FakeNode a("a");
  pool.Join(a);
  ASSERT_TRUE(pool.Load(SmallLoad("r1"))->ok());
  pool.Settle({&a});
  const auto refused = pool.Delete(kSmall);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(refused->status()), testing::HasSubstr("replica-1 of team-a"));
  EXPECT_THAT(MessageOf(refused->status()), testing::HasSubstr("--force"));
  EXPECT_EQ(pool.StateOf(kSmall), TableState::kReady);
  const auto forced = pool.DeleteForced(kSmall);
  ASSERT_TRUE(forced);
  EXPECT_TRUE(forced->ok()) << forced->status();
}

TEST(Delete, NeedsNoForceOnceNobodyHoldsTheTable) {
  ControllerOptions options;
  options.holders = [](Instant, const TableUid&) { return std::vector<std::string>(); };
  SmallPool pool(1, options);
  FakeNode a("a");
  pool.Join(a);
  ASSERT_TRUE(pool.Load(SmallLoad("r1"))->ok());
  pool.Settle({&a});
  EXPECT_TRUE(pool.Delete(kSmall)->ok());
}

class OpenTablesTest : public testing::Test {
 protected:
  ClientProcess Process(std::uint64_t number, std::vector<OpenedTable> open) {
    return {"c" + std::to_string(number), "t", number, std::move(open), {}};
  }
  static TableUid Uid(std::uint8_t number) {
    TableUid uid;
    uid.bytes[0] = number;
    return uid;
  }
  FakeClock clock_;
  OpenTables open_{seconds(10)};
};

TEST_F(OpenTablesTest, KnowsWhoHoldsWhatUntilItSaysOtherwise) {
  open_.Take(clock_.Now(), Process(1, {{Uid(1), "small", "live"}}));
  open_.Take(clock_.Now(), Process(2, {{Uid(2), "small", "live"}}));
  EXPECT_EQ(open_.Holders(clock_.Now(), Uid(1)), std::vector<std::string>{"c1 of t"});
  open_.Take(clock_.Now(), Process(1, {{Uid(2), "small", "live"}}));
  EXPECT_TRUE(open_.Holders(clock_.Now(), Uid(1)).empty()) << "it has adopted";
  EXPECT_EQ(open_.Holders(clock_.Now(), Uid(2)).size(), 2u);
  open_.Take(clock_.Now(), Process(2, {}));
  EXPECT_EQ(open_.All(clock_.Now()).size(), 1u);
}

TEST_F(OpenTablesTest, ForgetsAProcessThatIsNotHeardAnyMore) {
  open_.Take(clock_.Now(), Process(1, {{Uid(1), "small", "1"}}));
  clock_.Advance(seconds(10));
  EXPECT_EQ(open_.Holders(clock_.Now(), Uid(1)).size(), 1u);
  clock_.Advance(seconds(1));
  EXPECT_TRUE(open_.Holders(clock_.Now(), Uid(1)).empty());
}

}  // namespace
}  // namespace engram::placement
