#include "proto/convert.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace engram::wire {
namespace {

TableUid Uid(std::uint8_t fill) {
  TableUid uid;
  uid.bytes.fill(fill);
  return uid;
}

TableRecord SomeTable() {
  TableRecord table;
  table.uid = Uid(7);
  table.name = {"deepseek-v4.1", "1"};
  table.spec.columns = {{1, 2, 0, 101}, {14, 2, 0, 103}};
  table.spec.planes = {{"weight", DType::kE4M3, 256}, {"scale", DType::kUE8M0, 8}};
  table.spec.addressing.function = "deepseek-v4.1";
  table.spec.addressing.layers = {1, 14};
  table.spec.addressing.multipliers = {{76632096046245, 4839876093313}, {1, 3}};
  table.options.shard_bytes = 1 << 20;
  table.options.seal = SealKind::kNone;
  table.source = {TableSource::Kind::kCheckpoint, "/ckpt", "{}", 0};
  table.state = TableState::kReady;
  table.spec_digest = table.spec.Digest();
  return table;
}

TEST(Convert, TableRecordSurvivesTheWire) {
  const TableRecord table = SomeTable();
  auto back = FromWire(ToWire(table));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, table);
}

TEST(Convert, RelativeCheckpointPathIsRefused) {
  v1::TableSource source;
  source.mutable_checkpoint()->set_directory("ckpt");
  EXPECT_THAT(FromWire(source).status().message(), testing::HasSubstr("absolute path"));
}

TEST(Convert, UidOfTheWrongLengthIsRefused) {
  EXPECT_EQ(TableUidFromWire("short").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Convert, TokenMapSurvivesTheWireWithNegativeIds) {
  const TokenMap map{0, -1, 128814, 2147483647};
  auto back = TokenMapFromWire(ToWire(map));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, map);
  EXPECT_FALSE(TokenMapFromWire("abc").ok());
}

TEST(Convert, GrantsSurviveTheWire) {
  GrantUpdate update{GrantRevision(5),
                     {{{Uid(1), ShardIndex(9)}, Tier::kDram, {{1, 2, 3, ~0ull}}}},
                     {{{Uid(2), ShardIndex(4)}, {{NodeId{"n2"}, Incarnation(3), "h:1"}}}},
                     {{7, {FabricKind::kOfi, "tcp!00", true, false, 3}}}};
  auto back = FromWire(ToWire(NodeMessage(update)));
  ASSERT_TRUE(back.ok()) << back.status();
  const auto& got = std::get<GrantUpdate>(*back);
  EXPECT_EQ(got.revision, update.revision);
  EXPECT_EQ(got.granted, update.granted);
  EXPECT_EQ(got.withdrawn, update.withdrawn);
  EXPECT_EQ(got.paths, update.paths);
  update.paths[0].path = 5'000;
  EXPECT_EQ(FromWire(ToWire(NodeMessage(update))).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Convert, CommandsSurviveTheWire) {
  Command command{3, Incarnation(8), FencingToken(2),
                  LoadReplicas{SomeTable(),
                               {ShardIndex(1)},
                               Tier::kDram,
                               Successor{NodeId{"n2"}, Incarnation(3), "h:1"},
                               {~0ull}}};
  auto back = FromWire(ToWire(ControllerToNode(command)));
  ASSERT_TRUE(back.ok()) << back.status();
  const auto& got = std::get<Command>(*back);
  EXPECT_EQ(got.token, FencingToken(2));
  const auto& load = std::get<LoadReplicas>(got.body);
  EXPECT_EQ(load.table, SomeTable());
  EXPECT_EQ(load.source, (Successor{NodeId{"n2"}, Incarnation(3), "h:1"}));
  EXPECT_EQ(load.sums, std::vector<std::uint64_t>{~0ull});
}

TEST(Convert, ALoadNeedsASumForEachShardOrNone) {
  Command command{3, Incarnation(8), FencingToken(2),
                  LoadReplicas{SomeTable(), {ShardIndex(1), ShardIndex(2)}, Tier::kDram, {}, {7}}};
  const auto back = FromWire(ToWire(ControllerToNode(command)));
  EXPECT_EQ(back.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Convert, TheAnswerToAHeartbeatCarriesTheEpochOfTheMap) {
  auto back = FromWire(ToWire(ControllerToNode(HeartbeatSeen{5, Epoch(9)})));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<HeartbeatSeen>(*back).sequence, 5u);
  EXPECT_EQ(std::get<HeartbeatSeen>(*back).map_epoch, Epoch(9));
}

TEST(Convert, TiersOfATableAndOfANodeSurviveTheWire) {
  TableOptions options;
  options.tiers = {Tier::kDram, Tier::kNvme};
  auto back = FromWire(ToWire(options));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, options);
  v1::TableOptions twice = ToWire(options);
  twice.add_tiers(v1::TIER_NVME);
  EXPECT_EQ(FromWire(twice).status().code(), absl::StatusCode::kInvalidArgument);
  twice.set_tiers(2, v1::TIER_UNSPECIFIED);
  EXPECT_EQ(FromWire(twice).status().code(), absl::StatusCode::kInvalidArgument);

  const TierCapacity capacity{Tier::kCxl, 100, 5, 7, "/dev/dax0.0 is gone"};
  auto tier = FromWire(ToWire(capacity));
  ASSERT_TRUE(tier.ok()) << tier.status();
  EXPECT_EQ(*tier, capacity);
}

TEST(Convert, EmptyMessagesAreRefused) {
  EXPECT_FALSE(FromWire(v1::ReadSessionRequest()).ok());
  EXPECT_FALSE(FromWire(v1::ReadSessionResponse()).ok());
  EXPECT_FALSE(FromWire(v1::JoinRequest()).ok());
  EXPECT_FALSE(FromWire(v1::JoinResponse()).ok());
}

MapDelta LargeDelta() {
  MapDelta delta{Epoch(0), Epoch(12), {}, {}, {}, {}, {}};
  delta.nodes.push_back({NodeId{"n1"}, Incarnation(2), "h:1", "rack1", true});
  delta.tables.push_back({Uid(1), {"t", "1"}, TableState::kReady, "s", "c", {"live", "next"}});
  for (std::uint32_t i = 0; i < 40; ++i) {
    delta.chunks.push_back({Uid(1), i, {{{NodeId{"n1"}, Tier::kDram, ReplicaState::kServing}}}});
  }
  return delta;
}

TEST(Convert, MapDeltaIsCutAndPutTogether) {
  const MapDelta delta = LargeDelta();
  const auto pieces = ToWire(delta);
  ASSERT_GT(pieces.size(), 1u);
  MapDeltaAssembler assembler;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto whole = assembler.Add(pieces[i]);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(*whole, i + 1 == pieces.size());
  }
  const MapDelta back = assembler.Take();
  EXPECT_EQ(back.to, Epoch(12));
  EXPECT_EQ(back.nodes, delta.nodes);
  EXPECT_EQ(back.tables, delta.tables);
  EXPECT_EQ(back.chunks, delta.chunks);
}

TEST(Convert, PiecesOfTwoDeltasDoNotMix) {
  MapDeltaAssembler assembler;
  v1::WatchMapResponse piece;
  piece.set_to_epoch(4);
  ASSERT_TRUE(assembler.Add(piece).ok());
  piece.set_to_epoch(5);
  EXPECT_FALSE(assembler.Add(piece).ok());
}

}  // namespace
}  // namespace engram::wire
