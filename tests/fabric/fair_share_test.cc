// Budgets of tenants and fair turns of their sessions, with a clock of the test's own.
#include "fabric/stream/fair_share.h"

#include <gtest/gtest.h>

#include <numeric>

namespace engram::fabric::stream {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FairShareTest : public testing::Test {
 protected:
  bool Ask(FairShare::Session session, std::uint32_t rows, FairShare::Ticket ticket,
           const std::string& tenant = "a") {
    return share_.Ask(now_, tenant, session, rows, ticket);
  }
  std::vector<FairShare::Ticket> After(Duration time) {
    now_ += time;
    return share_.Release(now_);
  }
  FairShare share_;
  Instant now_{seconds(100)};
};

TEST_F(FairShareTest, WhoHasNoBudgetIsNotHeldUp) {
  share_.SetBudget(now_, "b", 1);
  EXPECT_TRUE(Ask(1, 1'000'000, 1));
  EXPECT_TRUE(Ask(1, 1'000'000, 2));
  EXPECT_FALSE(share_.Next());
}

TEST_F(FairShareTest, ATenantGetsItsRateAndNoMore) {
  share_.SetBudget(now_, "a", 1000);
  std::uint64_t rows = 0, ticket = 0;
  std::uint32_t waiting = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    while (waiting < 4) {
      if (Ask(1, 10, ++ticket)) {
        rows += 10;
      } else {
        ++waiting;
      }
    }
    const auto gone = After(milliseconds(1));
    rows += 10 * gone.size();
    waiting -= static_cast<std::uint32_t>(gone.size());
  }
  // Ten seconds' worth, the burst at the start, and one gather of debt.
  EXPECT_GE(rows, 10'000u);
  EXPECT_LE(rows, 10'000u + 100 + 10);
}

TEST_F(FairShareTest, AGatherLargerThanTheBucketGoesAndIsPaidForLater) {
  share_.SetBudget(now_, "a", 1000);
  EXPECT_TRUE(Ask(1, 5000, 1));
  EXPECT_FALSE(Ask(1, 1, 2));
  EXPECT_TRUE(After(milliseconds(4899)).empty());
  ASSERT_TRUE(share_.Next());
  EXPECT_LE(*share_.Next(), now_ + milliseconds(2));
  EXPECT_EQ(After(milliseconds(2)), std::vector<FairShare::Ticket>{2});
}

TEST_F(FairShareTest, SessionsOfATenantHaveTheSameShareInRows) {
  share_.SetBudget(now_, "a", 1000);
  EXPECT_TRUE(Ask(9, 100, 1));  // empties the bucket
  std::uint64_t had[3] = {};
  std::uint64_t ticket = 10;
  // One asks for 50 rows at a time with many questions waiting, two for 5 with one.
  std::map<FairShare::Ticket, std::pair<int, std::uint32_t>> asked;
  const auto ask = [&](int session, std::uint32_t rows) {
    ASSERT_FALSE(Ask(static_cast<FairShare::Session>(session), rows, ++ticket));
    asked[ticket] = {session, rows};
  };
  for (int i = 0; i < 20; ++i) ask(0, 50);
  ask(1, 5);
  ask(2, 5);
  for (int ms = 0; ms < 9000; ++ms) {
    for (const FairShare::Ticket gone : After(milliseconds(1))) {
      const auto [session, rows] = asked.at(gone);
      had[session] += rows;
      ask(session, rows);
    }
  }
  const double all = static_cast<double>(had[0] + had[1] + had[2]);
  for (const std::uint64_t one : had) EXPECT_NEAR(static_cast<double>(one) / all, 1.0 / 3, 0.02);
}

TEST_F(FairShareTest, ATenantDoesNotWaitForAnother) {
  share_.SetBudget(now_, "a", 1);
  share_.SetBudget(now_, "b", 1000);
  EXPECT_TRUE(Ask(1, 1000, 1, "a"));
  EXPECT_FALSE(Ask(1, 1000, 2, "a"));
  EXPECT_TRUE(Ask(2, 100, 3, "b"));
  EXPECT_FALSE(Ask(2, 100, 4, "b"));
  EXPECT_EQ(After(milliseconds(1)), std::vector<FairShare::Ticket>{4});
}

TEST_F(FairShareTest, ABudgetThatIsTakenAwayLetsEverybodyGo) {
  share_.SetBudget(now_, "a", 1);
  EXPECT_TRUE(Ask(1, 1000, 1));
  EXPECT_FALSE(Ask(1, 1000, 2));
  EXPECT_FALSE(Ask(2, 1000, 3));
  share_.SetBudget(now_, "a", 0);
  EXPECT_EQ(After(Duration(0)).size(), 2u);
  EXPECT_FALSE(share_.has_budgets());
  EXPECT_TRUE(Ask(1, 1'000'000, 4));
}

TEST_F(FairShareTest, ReleaseAllForgetsNobody) {
  share_.SetBudget(now_, "a", 1);
  EXPECT_TRUE(Ask(1, 1000, 1));
  EXPECT_FALSE(Ask(1, 1, 2));
  EXPECT_FALSE(Ask(2, 1, 3));
  EXPECT_EQ(share_.ReleaseAll().size(), 2u);
  EXPECT_EQ(share_.waiting(), 0u);
}

}  // namespace
}  // namespace engram::fabric::stream
