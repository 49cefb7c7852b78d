// Tables from the request to delete them to the last replica.
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using DeletingTest = ControllerTest;

TEST_F(DeletingTest, DeletedTableIsGoneWhenEveryReplicaIsRetired) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  const auto answer = pool_.Delete(kSmall);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ((*answer)->state, TableState::kDeleting);
  EXPECT_EQ(pool_.Load(SmallLoad("r2"))->status().code(), absl::StatusCode::kAlreadyExists);
  a.Obey();
  pool_.Beat(a);
  EXPECT_EQ(pool_.state().tables.size(), 1u);
  b.Obey();
  pool_.Beat(b);
  EXPECT_TRUE(pool_.state().tables.empty());
  EXPECT_TRUE(pool_.map().tables().empty());
  for (const char* prefix : {"table/", "chunk/", "sums/"}) {
    EXPECT_TRUE((*pool_.store().List(prefix)).entries.empty()) << prefix;
  }
  EXPECT_TRUE(pool_.Delete(kSmall, "d1")->ok());
  EXPECT_EQ(pool_.Delete(kSmall, "d2")->status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(pool_.Load(SmallLoad("r3", 2))->ok());
}

TEST_F(DeletingTest, DeleteSurvivesAControllerRestart) {
  FakeNode a("a");
  LoadSmall({&a});
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Restart();
  pool_.Join(a);
  pool_.Settle({&a});
  EXPECT_TRUE(pool_.state().tables.empty());
  EXPECT_TRUE(a.held.empty());
}

TEST_F(DeletingTest, DeleteIsAnsweredAlikeAfterTheTableIsGoneAndTheControllerRestarted) {
  FakeNode a("a");
  LoadSmall({&a});
  const TableUid uid = pool_.Find(kSmall)->record.uid;
  ASSERT_TRUE(pool_.Delete(kSmall, "d1")->ok());
  pool_.Settle({&a});
  ASSERT_TRUE(pool_.state().tables.empty());
  pool_.Restart();
  const auto again = pool_.Delete(kSmall, "d1");
  ASSERT_TRUE(again && again->ok()) << again->status();
  EXPECT_EQ((*again)->uid, uid);
  EXPECT_EQ((*again)->state, TableState::kDeleting);
  EXPECT_EQ(pool_.Delete(kSmall, "d2")->status().code(), absl::StatusCode::kNotFound);
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad("r9"))->ok());
  EXPECT_EQ((*pool_.Delete(kSmall, "d1"))->uid, uid);  // not the new table
  EXPECT_NE(pool_.StateOf(kSmall), TableState::kDeleting);
}

TEST_F(DeletingTest, DeleteDoesNotWaitForTheDead) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  pool_.Break(b);
  pool_.Settle({&a}, 12);
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Settle({&a});
  EXPECT_TRUE(pool_.state().tables.empty());
  pool_.Join(b);  // it was only out of reach
  pool_.Settle({&a, &b});
  EXPECT_TRUE(b.held.empty());
}

TEST_F(DeletingTest, LoadCanBeDeletedInTheMiddle) {
  FakeNode a("a");
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  a.Obey(false);
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Settle({&a});
  EXPECT_TRUE(pool_.state().tables.empty());
  EXPECT_TRUE(a.held.empty());
}

}  // namespace
}  // namespace engram::placement
