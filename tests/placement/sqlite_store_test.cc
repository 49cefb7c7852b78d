#include "placement/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/sqlite_store_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/state.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void RawSql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  std::string folder_, path_;
};

TEST_F(SqliteStoreTest, KeepsStateAcrossReopening) {
  Revision revision;
  {
    auto store = SqliteStore::Open({path_, 0});
    ASSERT_TRUE(store.ok()) << store.status();
    revision = *(*store)->Txn({{}, {{"a", "1"}}, {}});
  }
  auto store = SqliteStore::Open({path_, 0});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*(*store)->Get("a"))->value, "1");
  EXPECT_LT(revision, *(*store)->Txn({{}, {{"a", "2"}}, {}}));
}

TEST_F(SqliteStoreTest, SecondProcessIsRefused) {
  auto first = SqliteStore::Open({path_, 0});
  ASSERT_TRUE(first.ok());
  auto second = SqliteStore::Open({path_, 0});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(path_));
}

TEST_F(SqliteStoreTest, NewerSchemaIsRefused) {
  ASSERT_TRUE(SqliteStore::Open({path_, 0}).ok());
  RawSql("PRAGMA user_version=7");
  auto store = SqliteStore::Open({path_, 0});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("schema version 7"));
}

TEST_F(SqliteStoreTest, FilesOfOthersAreRefused) {
  std::ofstream(path_) << std::string(8192, 'x');
  EXPECT_THAT(std::string(SqliteStore::Open({path_, 0}).status().message()),
              HasSubstr("is not a state file"));
  std::filesystem::remove(path_);
  RawSql("CREATE TABLE theirs(x)");
  EXPECT_THAT(std::string(SqliteStore::Open({path_, 0}).status().message()),
              HasSubstr("another program"));
  EXPECT_THAT(std::string(SqliteStore::Open({folder_ + "/no/such/folder", 0}).status().message()),
              HasSubstr("check that its folder exists"));
}

TEST_F(SqliteStoreTest, FullStoreRefusesWritesAndGoesOnReading) {
  auto store = SqliteStore::Open({path_, 256 << 10});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Txn({{}, {{"kept", "1"}}, {}}).ok());
  const StoreTxn large{{}, {{"large", std::string(400 << 10, 'x')}, {"kept", "2"}}, {}};
  const auto full = (*store)->Txn(large);
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.status().message()), HasSubstr(path_));
  EXPECT_EQ((*(*store)->Get("kept"))->value, "1");
  EXPECT_FALSE((*(*store)->Get("large")).has_value());
  EXPECT_TRUE((*store)->Txn({{}, {{"kept", "3"}}, {}}).ok());
}

// A child commits numbered transactions, reporting each on a pipe, and is killed at a random
// moment. All that it reported must be there, and at most one more.
TEST_F(SqliteStoreTest, KillLosesNoCommittedTransaction) {
  for (int round = 0; round < 8; ++round) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto store = SqliteStore::Open({path_, 0});
      for (std::uint64_t i = 0; store.ok(); ++i) {
        const std::string text = std::to_string(i);
        if (!(*store)->Txn({{}, {{"left", text}, {"right", text}}, {}}).ok()) _exit(1);
        if (write(fds[1], &i, sizeof i) != sizeof i) _exit(1);
      }
      _exit(1);
    }
    close(fds[1]);
    std::uint64_t last = 0;
    for (int i = 0; i <= round * 7; ++i) ASSERT_EQ(read(fds[0], &last, sizeof last), 8);
    kill(child, SIGKILL);
    while (read(fds[0], &last, sizeof last) == 8) {
    }
    close(fds[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));

    auto store = SqliteStore::Open({path_, 0});
    ASSERT_TRUE(store.ok()) << store.status();
    const auto left = *(*store)->Get("left"), right = *(*store)->Get("right");
    EXPECT_EQ(left->value, right->value);
    const std::uint64_t found = std::stoull(left->value);
    EXPECT_GE(found, last);
    EXPECT_LE(found, last + 1);
  }
}

}  // namespace
}  // namespace engram::placement
