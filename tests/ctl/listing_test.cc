#include "client/ctl/listing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "client/ctl/row_output.h"

namespace engram::ctl {
namespace {

using nlohmann::json;

v1::ListTablesResponse Tables() {
  v1::ListTablesResponse tables;
  auto* entry = tables.add_tables();
  v1::Table* table = entry->mutable_table();
  table->set_uid(std::string(16, '\x0f'));
  table->set_name("small");
  table->set_version("1");
  table->set_state(v1::TABLE_STATE_READY);
  table->mutable_options()->set_replicas(2);
  table->mutable_options()->set_shard_bytes(1 << 20);
  table->mutable_options()->set_seal(v1::SEAL_KIND_CRC32C);
  auto* column = table->mutable_spec()->add_columns();
  column->set_rows(1000);
  table->mutable_spec()->add_planes()->set_bytes(256);
  table->mutable_spec()->add_planes()->set_bytes(8);
  table->set_created_unix_ms(1'000);
  entry->set_shards_serving(1);
  entry->set_shards_total(2);
  return tables;
}

Shards TwoShards() {
  Shards shards(2);
  for (int i = 0; i < 2; ++i) {
    shards[i].set_table(std::string(16, '\x0f'));
    shards[i].set_shard(static_cast<std::uint32_t>(i));
    shards[i].set_rows(500);
    shards[i].set_stored_bytes(136'000);
  }
  auto* serving = shards[0].add_replicas();
  serving->set_node("node-0");
  serving->set_tier(v1::TIER_DRAM);
  serving->set_state(v1::REPLICA_STATE_SERVING);
  auto* loading = shards[0].add_replicas();
  loading->set_node("node-1");
  loading->set_tier(v1::TIER_DRAM);
  loading->set_state(v1::REPLICA_STATE_LOADING);
  return shards;
}

std::string Text(const Listing& listing) {
  std::ostringstream out;
  listing.table.Print(out, false);
  return out.str();
}

TEST(Listing, TablesShowStateShardsAndSizeWithSeals) {
  const Listing listing = ListTables(Tables(), "", 61'000);
  EXPECT_EQ(Text(listing),
            "NAME     STATE     SHARDS      SIZE  COPIES  AGE\n"
            "small@1  Degraded     1/2  265.6KiB       2  60s\n");
  EXPECT_EQ(listing.names, std::vector<std::string>{"table/small@1"});
  const json document = json::parse(listing.json);
  EXPECT_EQ(document["tables"][0]["table"]["state"], "TABLE_STATE_READY");
  EXPECT_EQ(document["tables"][0]["shardsTotal"], "2");
  EXPECT_EQ(RowBytesOf(Tables().tables(0).table()), 264u);
}

TEST(Listing, ATableThatIsServedWithFewerCopiesIsDegradedAndSaysHowMany) {
  v1::ListTablesResponse tables = Tables();
  auto* entry = tables.mutable_tables(0);
  entry->set_shards_serving(2);
  EXPECT_NE(Text(ListTables(tables, "", 0)).find("Ready"), std::string::npos);
  entry->set_copies_missing(1);
  EXPECT_NE(Text(ListTables(tables, "", 0)).find("Degraded"), std::string::npos);
  EXPECT_NE(Text(ListTables(tables, "", 0)).find("2 (1 missing)"), std::string::npos);
  v1::GetTableResponse answer;
  *answer.mutable_table() = entry->table();
  answer.set_shards_serving(2);
  answer.set_shards_total(2);
  EXPECT_EQ(StateWord(answer), "Ready");
  EXPECT_EQ(MissingCopies(answer), "");
  answer.set_copies_missing(1);
  answer.set_note("no room");
  EXPECT_EQ(StateWord(answer), "Degraded");
  EXPECT_EQ(MissingCopies(answer), "1 of 4 copies are missing: no room");
}

TEST(Listing, OneTableIsTheDocumentItself) {
  EXPECT_EQ(json::parse(ListTables(Tables(), "small@1", 0).json)["table"]["name"], "small");
  EXPECT_TRUE(ListTables(Tables(), "other@1", 0).names.empty());
}

TEST(Listing, ShardsNameTheirTableAndMarkNodesThatDoNotServe) {
  const Listing listing = ListShards(TwoShards(), Tables(), 61'000);
  EXPECT_EQ(listing.names[1], "shard/small@1/1");
  EXPECT_NE(Text(listing).find("node-0,node-1(Loading)"), std::string::npos) << Text(listing);
  EXPECT_EQ(json::parse(listing.json)["shards"].size(), 2u);
}

TEST(Listing, ReplicasAreOneLineEach) {
  const Listing listing = ListReplicas(TwoShards(), Tables(), 61'000);
  EXPECT_EQ(listing.table.rows(), 2u);
  EXPECT_EQ(json::parse(listing.json)["replicas"][1]["state"], "REPLICA_STATE_LOADING");
}

TEST(Listing, DeadNodesAreShownAsDead) {
  v1::ListNodesResponse nodes;
  auto* node = nodes.add_nodes();
  node->set_node("node-0");
  node->set_endpoint("127.0.0.1:5000");
  node->set_alive(false);
  auto* tier = node->add_tiers();
  tier->set_capacity_bytes(1 << 30);
  tier->set_allocated_bytes(1 << 20);
  const Listing listing = ListNodes(nodes, "", 0);
  EXPECT_NE(Text(listing).find("node-0  Dead   127.0.0.1:5000  1.0MiB/1.0GiB"), std::string::npos)
      << Text(listing);
}

TEST(Listing, ADeadNodeThatWasDrainedIsStopped) {
  v1::Node node;
  node.set_draining(true);
  EXPECT_EQ(StateWord(node), "Stopped");
  node.set_replicas_serving(1);
  EXPECT_EQ(StateWord(node), "Dead");
}

TEST(Listing, NodesWithSeveralTiersShowEachAndMarkTrouble) {
  v1::ListNodesResponse nodes;
  auto* node = nodes.add_nodes();
  node->set_node("node-0");
  node->set_alive(true);
  for (const v1::Tier one : {v1::TIER_DRAM, v1::TIER_CXL}) {
    auto* tier = node->add_tiers();
    tier->set_tier(one);
    tier->set_capacity_bytes(1 << 30);
  }
  node->mutable_tiers(1)->set_trouble("/dev/dax0.0 is gone");
  EXPECT_NE(Text(ListNodes(nodes, "", 0)).find("dram 0B/1.0GiB, cxl 0B/1.0GiB!"), std::string::npos)
      << Text(ListNodes(nodes, "", 0));
}

TEST(Listing, MovesNameTheTierWhereItIsNotDram) {
  v1::ListMovesResponse moves;
  auto* move = moves.add_moves();
  move->set_table_name("small@1");
  move->set_from("node-0");
  move->set_from_tier(v1::TIER_NVME);
  move->set_to("node-1");
  move->set_to_tier(v1::TIER_DRAM);
  EXPECT_NE(Text(ListMoves(moves, 0)).find("node-0/nvme  node-1"), std::string::npos)
      << Text(ListMoves(moves, 0));
}

TEST(RowOutput, HexJsonAndNpy) {
  const std::vector<std::byte> bytes{std::byte{0x00}, std::byte{0xff}, std::byte{0x0a},
                                     std::byte{0x10}};
  const RowOutput rows{"small@1", {7, 12}, 2, bytes};
  std::ostringstream hex;
  WriteHex(rows, hex);
  EXPECT_EQ(hex.str(), " 7  00ff\n12  0a10\n");
  EXPECT_EQ(json::parse(RowsAsJson(rows))["rows"][1]["hex"], "0a10");
  std::ostringstream npy;
  WriteNpy(rows, npy);
  const std::string file = npy.str();
  EXPECT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ((file.size() - bytes.size()) % 64, 0u);
  EXPECT_NE(file.find("'shape': (2, 2)"), std::string::npos);
  EXPECT_EQ(file.substr(file.size() - 4), std::string("\x00\xff\x0a\x10", 4));
}

}  // namespace
}  // namespace engram::ctl
