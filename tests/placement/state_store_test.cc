// One suite for every StateStore.
#include "placement/store/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>

#include "placement/store/memory_store.h"
#include "placement/store/sqlite_store.h"

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<StateStore>(const std::string& folder)> open;
};

class StateStoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/state_store_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    store_ = GetParam().open(folder_);
    ASSERT_NE(store_, nullptr);
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  Revision MustPut(const std::string& key, const std::string& value) {
    const auto revision = store_->Txn({{}, {{key, value}}, {}});
    EXPECT_TRUE(revision.ok()) << revision.status();
    return revision.value_or(Revision());
  }

  std::string folder_;
  std::unique_ptr<StateStore> store_;
};

TEST_P(StateStoreTest, ReadsWhatWasWritten) {
  const std::string value("bytes \0 \xff of any kind", 21);
  const Revision revision = MustPut("a", value);
  const auto entry = store_->Get("a");
  ASSERT_TRUE(entry.ok() && entry->has_value());
  EXPECT_EQ((*entry)->value, value);
  EXPECT_EQ((*entry)->revision, revision);
  EXPECT_FALSE((*store_->Get("b")).has_value());
  MustPut("empty", "");
  EXPECT_EQ((*store_->Get("empty"))->value, "");
}

TEST_P(StateStoreTest, RevisionsGrowByTransaction) {
  const Revision first = MustPut("a", "1");
  const Revision second = MustPut("b", "1");
  EXPECT_LT(first, second);
  EXPECT_EQ((*store_->Get("a"))->revision, first);
  EXPECT_EQ((*store_->List("")).revision, second);
}

TEST_P(StateStoreTest, ListsByPrefixInByteOrder) {
  for (const char* key : {"b/2", "b/10", "a", "b0", "b/", "c"}) MustPut(key, key);
  const auto listing = store_->List("b/");
  ASSERT_TRUE(listing.ok());
  std::vector<std::string> keys;
  for (const StoreEntry& entry : listing->entries) keys.push_back(entry.key);
  EXPECT_THAT(keys, ::testing::ElementsAre("b/", "b/10", "b/2"));
  EXPECT_EQ((*store_->List("")).entries.size(), 6u);
  EXPECT_EQ((*store_->List("zz")).entries.size(), 0u);
}

TEST_P(StateStoreTest, ComparesGuardTheWholeTransaction) {
  const Revision a = MustPut("a", "1");
  const auto absent = store_->Txn({{{"a", Revision()}}, {{"x", "1"}}, {"a"}});
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(absent.status().message()), HasSubstr("state key a"));
  EXPECT_FALSE((*store_->Get("x")).has_value());
  EXPECT_TRUE((*store_->Get("a")).has_value());

  EXPECT_TRUE(store_->Txn({{{"a", a}, {"x", Revision()}}, {{"x", "1"}, {"a", "2"}}, {}}).ok());
  EXPECT_EQ(store_->Txn({{{"a", a}}, {{"x", "2"}}, {}}).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ((*store_->Get("x"))->value, "1");
}

TEST_P(StateStoreTest, DeletesAndForgets) {
  MustPut("a", "1");
  EXPECT_TRUE(store_->Txn({{}, {}, {"a", "never was"}}).ok());
  EXPECT_FALSE((*store_->Get("a")).has_value());
  EXPECT_TRUE(store_->Txn({{{"a", Revision()}}, {{"a", "2"}}, {}}).ok());
}

TEST_P(StateStoreTest, EnforcesItsLimits) {
  StoreTxn many;
  for (int i = 0; i < 65; ++i) many.puts.push_back({"k" + std::to_string(i), "v"});
  const auto too_many = store_->Txn(many);
  EXPECT_EQ(too_many.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_many.status().message()), HasSubstr("64"));
  many.puts.pop_back();
  EXPECT_TRUE(store_->Txn(many).ok());

  EXPECT_TRUE(store_->Txn({{}, {{"big", std::string(kMaxValueBytes, 'x')}}, {}}).ok());
  const auto too_big = store_->Txn({{}, {{"big2", std::string(kMaxValueBytes + 1, 'x')}}, {}});
  EXPECT_EQ(too_big.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_big.status().message()), HasSubstr("big2"));
  EXPECT_FALSE(store_->Txn({{}, {{"", "v"}}, {}}).ok());
  EXPECT_FALSE(store_->Txn({{}, {{std::string(513, 'k'), "v"}}, {}}).ok());
  EXPECT_FALSE(store_->Txn({{}, {{"twice", "v"}}, {"twice"}}).ok());
}

TEST_P(StateStoreTest, WatchReportsChangesOfItsPrefixOnce) {
  MustPut("w/old", "1");
  const Revision from = (*store_->List("w/")).revision;
  auto watch = store_->Watch("w/", from);
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE((*(*watch)->Poll()).empty());
  MustPut("w/new", "2");
  MustPut("other", "3");
  ASSERT_TRUE(store_->Txn({{}, {}, {"w/old"}}).ok());
  const auto events = (*watch)->Poll();
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ((*events)[0].key, "w/new");
  EXPECT_EQ((*events)[0].value, "2");
  EXPECT_EQ((*events)[1].key, "w/old");
  EXPECT_FALSE((*events)[1].value.has_value());
  EXPECT_LT((*events)[0].revision, (*events)[1].revision);
  EXPECT_TRUE((*(*watch)->Poll()).empty());
}

TEST_P(StateStoreTest, WatchFromAnEarlierRevisionCatchesUp) {
  const Revision first = MustPut("w/1", "a");
  MustPut("w/2", "b");
  MustPut("w/1", "c");
  auto watch = store_->Watch("w/", first);
  const auto events = (*watch)->Poll();
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->back().key, "w/1");
  EXPECT_EQ(events->back().value, "c");
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StateStoreTest,
    ::testing::Values(Kind{"Memory",
                           [](const std::string&) { return std::make_unique<MemoryStore>(); }},
                      Kind{"Sqlite",
                           [](const std::string& folder) -> std::unique_ptr<StateStore> {
                             auto store = SqliteStore::Open({folder + "/state.db", 0});
                             return store.ok() ? *std::move(store) : nullptr;
                           }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace engram::placement
