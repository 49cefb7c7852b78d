#include "placement/state/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "placement/plan/place_table.h"
#include "placement/state/map_history.h"
#include "placement/state/records.h"
#include "placement/store/memory_store.h"
#include "tests/placement/small_pool.h"

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

NodeRecord SomeNode(const std::string& name) {
  return {{name},
          Incarnation(4),
          "nonce",
          name + ":1",
          "rack",
          "1.0",
          {{Tier::kDram, 100, 5, 1}},
          false,
          -1};
}

StoredTable SomeTable(std::uint8_t id, std::uint64_t rows = 10'000) {
  StoredTable table;
  table.record.uid.bytes[0] = id;
  table.record.name = {"t", std::to_string(id)};
  table.record.spec = SmallSpec(rows);
  table.record.spec.addressing.multipliers = {{-5, std::int64_t{1} << 62}};
  table.record.spec.addressing.pad_token = -2;
  table.record.options.shard_bytes = kMinShardBytes;
  table.record.source = {TableSource::Kind::kCheckpoint, "/x", "{}", 9};
  table.record.error = "why";
  table.load_request = "t/c/r";
  table.delete_request = "t/c/d";
  return table;
}

std::vector<MapChunk> ChunksOf(const StoredTable& table) {
  std::vector<MapChunk> chunks =
      EmptyChunks(table.record.uid, ShardLayout(table.record.spec, table.record.options));
  std::uint32_t i = 0;
  for (MapChunk& chunk : chunks) {
    for (auto& replicas : chunk.shards) {
      replicas = {{{"a"}, Tier::kDram, ReplicaState::kServing},
                  {{"b" + std::to_string(i++ % 3)}, Tier::kCxl, ReplicaState::kLoading}};
    }
  }
  return chunks;
}

TEST(RecordsTest, DeletedKeysAreReadStrictly) {
  EXPECT_EQ(*DeletedNumber(DeletedKey(0x1fffffffff)), 0x1fffffffffu);
  EXPECT_LT(DeletedKey(9), DeletedKey(16));
  for (const char* bad : {"deleted/", "deleted/1", "deleted/000000000000000g", "x"}) {
    EXPECT_EQ(DeletedNumber(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  }
}

TEST(RecordsTest, TiersOfATableAndOfAMoveAreKeptAndOldRecordsHaveNone) {
  StoredTable table = SomeTable(1);
  const std::string old = Encode(table);
  table.record.options.tiers = {Tier::kDram, Tier::kNvme};
  EXPECT_EQ(*DecodeTable("k", Encode(table)), table);
  table.record.aliases = {"live"};
  EXPECT_EQ(*DecodeTable("k", Encode(table)), table);
  table.alias_before["live"] = "0";
  EXPECT_EQ(*DecodeTable("k", Encode(table)), table);
  EXPECT_TRUE(DecodeTable("k", old)->record.options.tiers.empty());
  EXPECT_LT(old.size(), Encode(table).size());

  MoveRecord move;
  move.to = {"b"};
  const std::string before = Encode(move);
  move.to_tier = Tier::kNvme;
  EXPECT_EQ(*DecodeMove("k", Encode(move)), move);
  EXPECT_EQ(DecodeMove("k", before)->to_tier, Tier::kDram);
}

TEST(RegistryTest, RemembersTheNewestDeletes) {
  MemoryStore store;
  auto registry = *Registry::Open(&store);
  StoredTable table = SomeTable(1);
  for (std::size_t i = 0; i < kRememberedDeletes + 3; ++i) {
    table.delete_request = std::to_string(i);
    Change change;
    change.tables_removed.push_back(table.record.uid);
    change.deletes_remembered.push_back(table);
    ASSERT_TRUE(registry->Commit(std::move(change)).ok());
  }
  for (int opened = 0; opened < 2; ++opened) {
    const auto& deleted = registry->state().deleted;
    EXPECT_EQ(deleted.size(), kRememberedDeletes);
    EXPECT_EQ(deleted.begin()->second->delete_request, "3");
    EXPECT_EQ(deleted.rbegin()->second->delete_request, std::to_string(kRememberedDeletes + 2));
    registry = *Registry::Open(&store);
  }
}

TEST(RecordsTest, ValuesSurviveTheStore) {
  const NodeRecord node = SomeNode("a");
  EXPECT_EQ(*DecodeNode("k", Encode(node)), node);
  const StoredTable table = SomeTable(3);
  EXPECT_EQ(*DecodeTable("k", Encode(table)), table);
  const MapChunk chunk = ChunksOf(table)[0];
  EXPECT_EQ(*DecodeChunk("k", Encode(chunk)), chunk);
}

TEST(RecordsTest, DamagedValuesAreErrorsThatNameTheKey) {
  const std::string good[] = {Encode(SomeNode("a")), Encode(SomeTable(3)),
                              Encode(ChunksOf(SomeTable(3))[0])};
  for (const std::string& bytes : good) {
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      const std::string_view part(bytes.data(), cut);
      EXPECT_FALSE(DecodeNode("k", part).ok() && DecodeTable("k", part).ok() &&
                   DecodeChunk("k", part).ok());
    }
  }
  const auto damaged = DecodeTable("table/7", std::string(good[1]).replace(0, 1, "\x09"));
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("table/7"));
}

TEST(RecordsTest, AnyBytesAreReadWithoutACrash) {
  SeededRandom random(5);
  const std::string good = Encode(SomeTable(3));
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 3; ++i)
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    (void)DecodeTable("k", bytes);
    (void)DecodeNode("k", bytes);
    (void)DecodeChunk("k", bytes);
  }
}

TEST(RegistryTest, ReopensWithEverythingAtALaterEpoch) {
  MemoryStore store;
  const StoredTable table = SomeTable(1);
  ClusterState before;
  {
    auto registry = Registry::Open(&store);
    ASSERT_TRUE(registry.ok());
    Change change;
    change.nodes = {SomeNode("a"), SomeNode("b")};
    change.tables = {table};
    change.chunks = ChunksOf(table);
    change.last_incarnation = Incarnation(4);
    const auto delta = (*registry)->Commit(change);
    ASSERT_TRUE(delta.ok() && *delta != nullptr);
    EXPECT_EQ((*delta)->to, (*registry)->state().epoch);
    before = (*registry)->state();
  }
  auto registry = Registry::Open(&store);
  ASSERT_TRUE(registry.ok()) << registry.status();
  const ClusterState& after = (*registry)->state();
  EXPECT_GT(after.epoch, before.epoch);
  EXPECT_GT(after.token, before.token);
  EXPECT_EQ(after.last_incarnation, Incarnation(4));
  EXPECT_EQ(after.Snapshot().nodes, before.Snapshot().nodes);
  EXPECT_EQ(after.Snapshot().tables, before.Snapshot().tables);
  EXPECT_EQ(after.Snapshot().chunks, before.Snapshot().chunks);
  EXPECT_EQ(static_cast<const StoredTable&>(*after.FindTable(table.record.uid)), table);
}

// 200 chunks and a token map of several pieces: many transactions, of which a crash may leave any
// number. Whatever it leaves, the table is there whole or not at all.
class CrashingStore final : public StateStore {
 public:
  CrashingStore(MemoryStore* store, int writes) : store_(store), left_(writes) {}
  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override {
    return store_->Get(key);
  }
  absl::StatusOr<StoreListing> List(const std::string& prefix) override {
    return store_->List(prefix);
  }
  absl::StatusOr<Revision> Txn(const StoreTxn& txn) override {
    if (left_-- <= 0) return absl::UnavailableError("crashed");
    return store_->Txn(txn);
  }
  absl::StatusOr<std::unique_ptr<StoreWatch>> Watch(const std::string& prefix,
                                                    Revision after) override {
    return store_->Watch(prefix, after);
  }
  std::string Describe() const override { return "crashing"; }

 private:
  MemoryStore* store_;
  int left_;
};

TEST(RegistryTest, TableOfManyChunksIsCreatedWholeOrNotAtAll) {
  StoredTable table = SomeTable(1, std::uint64_t{3'840} * 1'024 * 100);
  TokenMap map(400'000);
  for (std::size_t i = 0; i < map.size(); ++i) map[i] = static_cast<std::int32_t>(i / 2);
  table.record.spec.addressing.token_map_digest = Digest(map);
  bool whole = false;
  int crashes = 0;
  for (int writes = 1; !whole; ++writes) {
    MemoryStore store;
    CrashingStore crashing(&store, writes);
    auto registry = Registry::Open(&crashing);
    ASSERT_TRUE(registry.ok());
    Change change;
    change.tables = {table};
    change.chunks = ChunksOf(table);
    change.token_maps = {map};
    const bool committed = (*registry)->Commit(std::move(change)).ok();
    EXPECT_EQ((*registry)->state().tables.size(), committed ? 1u : 0u);
    auto after = Registry::Open(&store);
    ASSERT_TRUE(after.ok()) << after.status();
    whole = !(*after)->state().tables.empty();
    EXPECT_EQ(whole, committed);
    if (whole) {
      EXPECT_EQ(*(*after)->state().token_maps.at(Digest(map)), map);
      EXPECT_EQ((*after)->state().Snapshot().chunks, ChunksOf(table));
    } else {
      ++crashes;
      for (const char* prefix : {"chunk/", "token_map/", "sums/"}) {
        EXPECT_TRUE((*store.List(prefix)).entries.empty());
      }
    }
  }
  EXPECT_GE(crashes, 4);
}

TEST(RegistryTest, FailedCommitChangesNothing) {
  MemoryStore store;
  auto registry = Registry::Open(&store);
  const Epoch epoch = (*registry)->state().epoch;
  store.FailWrites(absl::ResourceExhaustedError("full"));
  Change change;
  change.nodes = {SomeNode("a")};
  EXPECT_EQ((*registry)->Commit(change).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*registry)->state().epoch, epoch);
  EXPECT_TRUE((*registry)->state().nodes.empty());
}

TEST(RegistryTest, OlderLeaderIsFenced) {
  MemoryStore store;
  auto first = Registry::Open(&store);
  auto second = Registry::Open(&store);
  EXPECT_LT((*first)->state().token, (*second)->state().token);
  Change change;
  change.nodes = {SomeNode("a")};
  const auto fenced = (*first)->Commit(change);
  EXPECT_EQ(fenced.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(fenced.status().message()), HasSubstr("another controller"));
  EXPECT_TRUE((*second)->Commit(change).ok());
}

TEST(MapHistoryTest, GivesDeltasWhileItRemembersThem) {
  MapHistory history(Epoch(10), 3);
  const auto append = [&](std::uint64_t to) {
    MapDelta delta;
    delta.from = Epoch(to - 1);
    delta.to = Epoch(to);
    history.Append(std::make_shared<const MapDelta>(delta));
  };
  EXPECT_TRUE(history.Since(Epoch(10))->empty());
  EXPECT_FALSE(history.Since(Epoch(9)));
  for (std::uint64_t to = 11; to <= 15; ++to) append(to);
  EXPECT_FALSE(history.Since(Epoch(11)));
  ASSERT_EQ(history.Since(Epoch(12))->size(), 3u);
  EXPECT_EQ(history.Since(Epoch(12))->front()->to, Epoch(13));
  EXPECT_EQ(history.Since(Epoch(14))->size(), 1u);
  // A map of another store.
  EXPECT_FALSE(history.Since(Epoch(99)));
  EXPECT_FALSE(history.Since(Epoch(0)));
}

}  // namespace
}  // namespace engram::placement
