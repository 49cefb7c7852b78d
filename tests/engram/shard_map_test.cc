#include "engram/shard_map.h"

#include <gtest/gtest.h>

namespace engram {
namespace {

TableUid Uid(std::uint8_t first) {
  TableUid uid;
  uid.bytes[0] = first;
  return uid;
}

MapChunk ChunkOf(std::uint8_t table, std::uint32_t chunk, const std::string& node) {
  return {Uid(table), chunk, {{{NodeId{node}, Tier::kDram, ReplicaState::kServing}}, {}}};
}

MapDelta First() {
  MapDelta delta;
  delta.to = Epoch(5);
  delta.nodes = {{NodeId{"a"}, Incarnation(1), "a:1", "rack", true}};
  delta.tables = {{Uid(1), {"t", "1"}, TableState::kReady, "s", "c", {}},
                  {Uid(2), {"u", "1"}, TableState::kReady, "s", "c", {}}};
  delta.chunks = {ChunkOf(1, 0, "a"), ChunkOf(1, 1, "a"), ChunkOf(2, 0, "a")};
  return delta;
}

TEST(ShardMapTest, AnAliasNamesOneVersionOfItsOwnTable) {
  MapDelta delta = First();
  delta.tables[1].aliases = {"canary", "live"};
  const auto map = *ShardMap::Empty()->Apply(delta);
  ASSERT_NE(map->FindAlias({"u", "live"}), nullptr);
  EXPECT_EQ(map->FindAlias({"u", "live"})->uid, Uid(2));
  EXPECT_EQ(map->FindAlias({"t", "live"}), nullptr);
  EXPECT_EQ(map->FindAlias({"u", "1"}), nullptr);
  EXPECT_EQ(map->FindTable({"u", "live"}), nullptr);
}

TEST(ShardMapTest, FindsReplicasByChunk) {
  const auto map = *ShardMap::Empty()->Apply(First());
  EXPECT_EQ(map->epoch(), Epoch(5));
  ASSERT_EQ(map->Replicas({Uid(1), ShardIndex(kChunkShards)}).size(), 1u);
  EXPECT_EQ(map->Replicas({Uid(1), ShardIndex(0)})[0].node.name, "a");
  EXPECT_TRUE(map->Replicas({Uid(1), ShardIndex(1)}).empty());
  EXPECT_TRUE(map->Replicas({Uid(1), ShardIndex(2)}).empty()) << "past the end of its chunk";
  EXPECT_TRUE(map->Replicas({Uid(9), ShardIndex(0)}).empty()) << "unknown table";
  EXPECT_TRUE(map->Replicas({Uid(1), ShardIndex(~0u)}).empty());
}

TEST(ShardMapTest, DeltaChangesOnlyWhatItNamesAndLeavesTheOldSnapshotAlone) {
  const auto before = *ShardMap::Empty()->Apply(First());
  MapDelta delta;
  delta.from = Epoch(5);
  delta.to = Epoch(6);
  delta.chunks = {ChunkOf(1, 1, "b")};
  delta.nodes = {{NodeId{"b"}, Incarnation(2), "b:1", "rack", true}};
  const auto after = *before->Apply(delta);
  EXPECT_EQ(after->Replicas({Uid(1), ShardIndex(kChunkShards)})[0].node.name, "b");
  EXPECT_EQ(after->Replicas({Uid(1), ShardIndex(0)})[0].node.name, "a");
  EXPECT_EQ(before->Replicas({Uid(1), ShardIndex(kChunkShards)})[0].node.name, "a");
  EXPECT_EQ(before->FindNode(NodeId{"b"}), nullptr);
  EXPECT_NE(after->FindNode(NodeId{"b"}), nullptr);
}

TEST(ShardMapTest, DeltaOfAnotherEpochIsRefused) {
  const auto map = *ShardMap::Empty()->Apply(First());
  MapDelta delta;
  delta.from = Epoch(4);
  delta.to = Epoch(6);
  EXPECT_EQ(map->Apply(delta).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ShardMapTest, SnapshotDeltaReplacesEverything) {
  const auto map = *ShardMap::Empty()->Apply(First());
  MapDelta whole;
  whole.to = Epoch(9);
  whole.tables = {{Uid(3), {"v", "1"}, TableState::kReady, "s", "c", {}}};
  const auto replaced = *map->Apply(whole);
  EXPECT_TRUE(replaced->nodes().empty());
  EXPECT_EQ(replaced->FindTable(Uid(1)), nullptr);
  EXPECT_NE(replaced->FindTable(Uid(3)), nullptr);
}

TEST(ShardMapTest, RemovingATableRemovesAllItsChunksAndNoOthers) {
  const auto before = *ShardMap::Empty()->Apply(First());
  MapDelta delta;
  delta.from = Epoch(5);
  delta.to = Epoch(6);
  delta.tables_removed = {Uid(1)};
  delta.nodes_removed = {NodeId{"a"}};
  const auto after = *before->Apply(delta);
  EXPECT_TRUE(after->Replicas({Uid(1), ShardIndex(0)}).empty());
  EXPECT_TRUE(after->Replicas({Uid(1), ShardIndex(kChunkShards)}).empty());
  EXPECT_EQ(after->Replicas({Uid(2), ShardIndex(0)}).size(), 1u);
  EXPECT_TRUE(after->nodes().empty());
}

TEST(ShardMapTest, SnapshotRebuildsAnEqualMap) {
  const auto map = *ShardMap::Empty()->Apply(First());
  const auto copy = *ShardMap::Empty()->Apply(map->Snapshot());
  EXPECT_EQ(copy->epoch(), map->epoch());
  EXPECT_EQ(copy->nodes(), map->nodes());
  EXPECT_EQ(copy->tables(), map->tables());
  EXPECT_EQ(copy->Snapshot().chunks, map->Snapshot().chunks);
}

TEST(ShardMapTest, NameOfADeletingTableIsFree) {
  MapDelta delta = First();
  delta.tables[0].state = TableState::kDeleting;
  const auto map = *ShardMap::Empty()->Apply(delta);
  EXPECT_EQ(map->FindTable(TableName{"t", "1"}), nullptr);
  EXPECT_NE(map->FindTable(Uid(1)), nullptr);
  EXPECT_NE(map->FindTable(TableName{"u", "1"}), nullptr);
}

}  // namespace
}  // namespace engram
