// One suite for every StateStore; each program that includes it says which ones.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "placement/store/state_store.h"

namespace engram::placement {

using ::testing::HasSubstr;

struct StoreKind {
  const char* name;
  std::function<std::unique_ptr<StateStore>(const std::string& folder)> open;
};

class StateStoreTest : public ::testing::TestWithParam<StoreKind> {
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

// What the watch reports until it has reported `count` changes: some stores hear of them later.
inline std::vector<StoreEvent> AwaitEvents(StoreWatch& watch, std::size_t count) {
  std::vector<StoreEvent> events;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (events.size() < count && std::chrono::steady_clock::now() < give_up) {
    const auto polled = watch.Poll();
    EXPECT_TRUE(polled.ok()) << polled.status();
    if (!polled.ok()) break;
    events.insert(events.end(), polled->begin(), polled->end());
    if (polled->empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return events;
}

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
  const std::vector<StoreEvent> events = AwaitEvents(**watch, 2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].key, "w/new");
  EXPECT_EQ(events[0].value, "2");
  EXPECT_EQ(events[1].key, "w/old");
  EXPECT_FALSE(events[1].value.has_value());
  EXPECT_LT(events[0].revision, events[1].revision);
  EXPECT_TRUE((*(*watch)->Poll()).empty());
}

TEST_P(StateStoreTest, WatchFromAnEarlierRevisionCatchesUp) {
  const Revision first = MustPut("w/1", "a");
  MustPut("w/2", "b");
  const Revision last = MustPut("w/1", "c");
  auto watch = store_->Watch("w/", first);
  ASSERT_TRUE(watch.ok());
  // Changes of one key may come as one.
  std::vector<StoreEvent> events;
  while (events.empty() || events.back().revision < last) {
    const std::vector<StoreEvent> more = AwaitEvents(**watch, 1);
    ASSERT_FALSE(more.empty());
    events.insert(events.end(), more.begin(), more.end());
  }
  EXPECT_EQ(events.back().key, "w/1");
  EXPECT_EQ(events.back().value, "c");
}

TEST_P(StateStoreTest, ListsMoreThanOneAnswerHolds) {
  constexpr int kEntries = 640;
  for (int at = 0; at < kEntries; at += 64) {
    StoreTxn txn;
    for (int i = at; i < at + 64; ++i) {
      std::string key = "many/" + std::to_string(100'000 + i);
      txn.puts.push_back({key, key + std::string(4'096, 'v')});
    }
    ASSERT_TRUE(store_->Txn(txn).ok());
  }
  const auto listing = store_->List("many/");
  ASSERT_TRUE(listing.ok()) << listing.status();
  ASSERT_EQ(listing->entries.size(), static_cast<std::size_t>(kEntries));
  for (int i = 0; i < kEntries; ++i) {
    const StoreEntry& entry = listing->entries[static_cast<std::size_t>(i)];
    EXPECT_EQ(entry.key, "many/" + std::to_string(100'000 + i));
    EXPECT_EQ(entry.value, entry.key + std::string(4'096, 'v'));
  }
}

TEST_P(StateStoreTest, AFailedTransactionChangesNothingAndTheNextGoesOn) {
  const Revision a = MustPut("a", "1");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsAborted(store_->Txn({{{"a", Revision()}}, {{"b", "1"}}, {}}).status()));
  }
  EXPECT_EQ((*store_->List("")).revision, a);
  EXPECT_TRUE(store_->Txn({{{"a", a}}, {{"b", "1"}}, {}}).ok());
}

}  // namespace engram::placement
