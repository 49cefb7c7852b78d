// Aliases: what they name, who hears of it, and what they keep from being deleted.
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

const TableName kLive{"small", "live"};
const TableName kSecond{"small", "2"};

class AliasTest : public ControllerTest {
 protected:
  AliasTest() : a_("a") {
    LoadSmall({&a_});
    LoadRequest second = SmallLoad("r2");
    second.name = kSecond;
    const auto answer = pool_.Load(second);
    EXPECT_TRUE(answer && answer->ok());
    pool_.Settle({&a_});
    EXPECT_EQ(pool_.StateOf(kSecond), TableState::kReady);
  }
  void ExpectFails(const std::optional<absl::StatusOr<TableRecord>>& answer, absl::StatusCode code,
                   const char* says) {
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status().code(), code) << answer->status();
    EXPECT_THAT(MessageOf(answer->status()), testing::HasSubstr(says));
  }
  // What watchers of the map see it name.
  std::string Named() {
    const MapTable* table = pool_.map().FindAlias(kLive);
    return table == nullptr ? "" : table->name.Full();
  }
  FakeNode a_;
};

TEST_F(AliasTest, NamesOneVersionAfterTheOtherAndWatchersHearOfIt) {
  EXPECT_EQ(Named(), "");
  ASSERT_TRUE(pool_.SetAlias(kLive, "1")->ok());
  EXPECT_EQ(Named(), "small@1");
  const Epoch before = pool_.map().epoch();
  const auto moved = pool_.SetAlias(kLive, "2");
  ASSERT_TRUE(moved->ok());
  EXPECT_EQ((*moved)->name, kSecond);
  EXPECT_EQ(Named(), "small@2");
  EXPECT_EQ(pool_.map().epoch().value(), before.value() + 1) << "both tables at one epoch";
  ASSERT_TRUE(pool_.SetAlias(kLive, "2")->ok());
  EXPECT_EQ(pool_.map().epoch().value(), before.value() + 1) << "nothing to change";
  ASSERT_TRUE(pool_.SetAlias(kLive, "1")->ok()) << "back again";
  EXPECT_EQ(Named(), "small@1");
}

TEST_F(AliasTest, RollsBackToWhatItNamedBefore) {
  ExpectFails(pool_.Rollback(kLive), absl::StatusCode::kNotFound, "is no alias");
  ASSERT_TRUE(pool_.SetAlias(kLive, "1")->ok());
  ExpectFails(pool_.Rollback(kLive), absl::StatusCode::kFailedPrecondition, "named nothing but");
  ASSERT_TRUE(pool_.SetAlias(kLive, "2")->ok());
  pool_.Restart();
  ASSERT_TRUE(pool_.Rollback(kLive)->ok());
  EXPECT_EQ(pool_.state().FindAlias(kLive)->record.name, kSmall);
  ASSERT_TRUE(pool_.Rollback(kLive)->ok());
  EXPECT_EQ(pool_.state().FindAlias(kLive)->record.name, kSecond);
}

TEST_F(AliasTest, SurvivesAControllerRestart) {
  ASSERT_TRUE(pool_.SetAlias(kLive, "2")->ok());
  ASSERT_TRUE(pool_.SetAlias({"small", "canary"}, "2")->ok());
  pool_.Restart();
  ASSERT_NE(pool_.state().FindAlias(kLive), nullptr);
  EXPECT_EQ(pool_.state().FindAlias(kLive)->record.name, kSecond);
  EXPECT_EQ(pool_.Find(kSecond)->record.aliases, (std::vector<std::string>{"canary", "live"}));
  EXPECT_TRUE(pool_.Find(kSmall)->record.aliases.empty());
}

TEST_F(AliasTest, AVersionThatIsNamedIsNotDeleted) {
  ASSERT_TRUE(pool_.SetAlias(kLive, "1")->ok());
  ExpectFails(pool_.Delete(kSmall), absl::StatusCode::kFailedPrecondition,
              "table small@1 is what small@live names; let the alias name another version first");
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  ASSERT_TRUE(pool_.SetAlias(kLive, "2")->ok());
  EXPECT_TRUE(pool_.Delete(kSmall)->ok());
}

TEST_F(AliasTest, IsRemovedAndThenNamesNothing) {
  ExpectFails(pool_.SetAlias(kLive, ""), absl::StatusCode::kNotFound, "small@live is no alias");
  ASSERT_TRUE(pool_.SetAlias(kLive, "1")->ok());
  EXPECT_EQ((*pool_.SetAlias(kLive, "", /*dry_run=*/true))->name, kSmall);
  EXPECT_EQ(Named(), "small@1");
  EXPECT_EQ((*pool_.SetAlias(kLive, ""))->name, kSmall);
  EXPECT_EQ(Named(), "");
}

TEST_F(AliasTest, WhatItMayNotNameIsSaid) {
  ExpectFails(pool_.SetAlias(kLive, "3"), absl::StatusCode::kNotFound, "table small@3 is unknown");
  ExpectFails(pool_.SetAlias({"small", "1"}, "2"), absl::StatusCode::kAlreadyExists,
              "small@1 is a table of its own");
  ExpectFails(pool_.SetAlias({"small", "7"}, "2"), absl::StatusCode::kInvalidArgument,
              "small@7 reads like a version");
  LoadRequest third = SmallLoad("r3");
  third.name = {"small", "3"};
  ASSERT_TRUE(pool_.Load(third)->ok());
  ExpectFails(pool_.SetAlias(kLive, "3"), absl::StatusCode::kFailedPrecondition,
              "table small@3 is Loading, and an alias names a Ready one");
  ASSERT_TRUE(pool_.SetAlias(kLive, "1")->ok());
  LoadRequest taken = SmallLoad("r4");
  taken.name = kLive;
  ExpectFails(pool_.Load(taken), absl::StatusCode::kAlreadyExists,
              "small@live is an alias of table small@1");
}

}  // namespace
}  // namespace engram::placement
