// A pool connection against real nodes, over real gRPC and real fabrics.
#include "client/rpc/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "engram/synthetic.h"
#include "poolserver/rpc/pool_node.h"
#include "tests/client/rpc/scripted_controller.h"

namespace engram::client {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TableRecord SmallTable() {
  EngramGeometry geometry;
  geometry.layers = {1, 14};
  geometry.base_rows = 1000;
  geometry.raw_vocab = geometry.compressed_vocab = 1000;
  TableRecord table;
  table.uid.bytes.fill(0x42);
  table.name = {"small", "1"};
  table.spec = *MakeEngramSpec(geometry);
  table.options.shard_bytes = kMinShardBytes;
  table.source.seed = 99;
  table.state = TableState::kReady;
  table.spec_digest = table.spec.Digest();
  table.content_digest = std::string(64, 'c');
  return table;
}

class PoolTest : public testing::Test {
 protected:
  PoolTest() : record_(SmallTable()), controller_(record_) {}

  void SetUp() override { controller_.Listen(); }
  void TearDown() override {
    table_.reset();
    pool_.reset();
    for (auto& [name, node] : nodes_) node->Stop();
    controller_.GoAway();
  }

  void StartNode(const std::string& name) {
    poolserver::PoolNodeOptions options;
    options.node = {name};
    options.controller = controller_.endpoint();
    options.memory[0].capacity_bytes = std::uint64_t{64} << 20;
    options.memory[0].slab_bytes = std::uint64_t{8} << 20;
    options.lease = 120s;  // longer than any wait here: what depends on its end fails
    options.targets.node = options.node;
    auto node = poolserver::PoolNode::Start(options, [](const absl::Status&) {});
    ASSERT_TRUE(node.ok()) << node.status();
    nodes_[name] = *std::move(node);
    ASSERT_TRUE(controller_.WaitServing(name));
  }

  void Open(std::optional<FabricKind> fabric = {}) {
    PoolOptions options;
    options.endpoints = {controller_.endpoint()};
    options.fabric = fabric;
    options.connect_timeout = 60s;
    auto pool = Pool::Open(options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    OpenTableOptions patient;
    patient.open_timeout = 60s;
    auto table = pool_->OpenTable("small@1", patient);
    ASSERT_TRUE(table.ok()) << table.status();
    table_ = *std::move(table);
  }

  // Reads rows all over the table; every delivered byte must be right.
  absl::Status Read(Duration timeout = 60s) {
    const std::uint64_t rows = table_->layout().rows();
    std::vector<RowId> ids;
    for (std::uint64_t i = 0; i < 2000; ++i) ids.push_back(RowId(i * 7919 % rows));
    const std::size_t bytes = table_->layout().row_bytes();
    std::vector<std::byte> out(ids.size() * bytes), want(bytes);
    std::vector<ReadStatus> status(ids.size());
    const absl::Status result =
        table_->ReadRows({ids, out, status}, SystemClock::Get().Now() + timeout);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (status[i] != ReadStatus::kOk) continue;
      FillSyntheticRow(record_.source.seed, ids[i], want);
      EXPECT_EQ(std::memcmp(&out[i * bytes], want.data(), bytes), 0) << "row " << ids[i].value();
    }
    return result;
  }
  template <class Holds>
  bool Eventually(Holds holds) {
    for (int i = 0; i < 6000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  const TableRecord record_;
  ScriptedController controller_;
  std::map<std::string, std::unique_ptr<poolserver::PoolNode>> nodes_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Table> table_;
};

TEST_F(PoolTest, ReadsVerifiedRowsOverTheCheapestFabric) {
  StartNode("n1");
  Open();
  EXPECT_EQ(Read(), absl::OkStatus());
  const auto routes = table_->RoutesOf(RowId(0));
  ASSERT_EQ(routes.size(), 2u);
  EXPECT_EQ(routes[0].fabric, FabricKind::kMapped);
  EXPECT_EQ(routes[1].fabric, FabricKind::kStream);
  EXPECT_EQ(table_->Totals().rows_delivered, 2000u);
}

TEST_F(PoolTest, AForcedFabricIsTheOnlyOne) {
  StartNode("n1");
  Open(FabricKind::kStream);
  EXPECT_EQ(Read(), absl::OkStatus());
  const ReadTotals totals = table_->Totals();
  EXPECT_EQ(totals.rows[static_cast<int>(FabricKind::kStream)][0], 2000u);
  EXPECT_EQ(totals.rows[static_cast<int>(FabricKind::kMapped)][0], 0u);
}

TEST_F(PoolTest, ReadsTokensThroughTheTablesAddresses) {
  StartNode("n1");
  Open();
  const std::vector<std::int64_t> tokens = {1, 2, 3, 999, 0};
  TokenSpan span;
  span.tokens = tokens;
  const std::size_t columns = table_->addressing()->columns();
  std::vector<RowId> ids(tokens.size() * columns);
  ASSERT_TRUE(table_->addressing()->Rows(span, ids).ok());
  const std::size_t bytes = table_->layout().row_bytes();
  std::vector<std::byte> out(ids.size() * bytes), want(bytes);
  ASSERT_EQ(table_->ReadTokens(span, out, {}, SystemClock::Get().Now() + 20s), absl::OkStatus());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    FillSyntheticRow(record_.source.seed, ids[i], want);
    ASSERT_EQ(std::memcmp(&out[i * bytes], want.data(), bytes), 0) << i;
  }
}

TEST_F(PoolTest, NamesATokenOutsideTheVocabulary) {
  StartNode("n1");
  Open();
  std::vector<std::byte> out(table_->addressing()->columns() * table_->layout().row_bytes());
  // As int64, 2^63 is the smallest value.
  for (const std::int64_t outside :
       {std::int64_t{5000}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()}) {
    TokenSpan span;
    span.tokens = {&outside, 1};
    const auto status = table_->ReadTokens(span, out, {}, SystemClock::Get().Now() + 20s);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(outside)));
  }
}

TEST_F(PoolTest, ReadsGoOnWhileTheControllerIsAway) {
  StartNode("n1");
  Open();
  controller_.GoAway();
  ASSERT_TRUE(Eventually([&] { return !pool_->connected(); }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Read(), absl::OkStatus());
  controller_.Listen();
  EXPECT_TRUE(Eventually([&] { return pool_->connected(); }));
}

TEST_F(PoolTest, ADeadNodeIsNamedAndOneThatRestartedIsReadAgain) {
  StartNode("n1");
  Open();  // mapped: the memory would be there, but a node that stops ends its sessions
  ASSERT_EQ(Read(), absl::OkStatus());
  nodes_["n1"]->Stop();
  nodes_.erase("n1");
  controller_.DeclareDead("n1");
  absl::Status status;
  // On a slow machine a read may also just be late.
  ASSERT_TRUE(Eventually([&] {
    status = Read(500ms);
    return absl::IsUnavailable(status);
  })) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("small@1"), HasSubstr("n1")));
  StartNode("n1");  // with a new incarnation, at another address
  EXPECT_TRUE(Eventually([&] { return Read(5s).ok(); }));
}

TEST_F(PoolTest, ReadsFromTheOtherReplicaWhenANodeDies) {
  StartNode("n1");
  StartNode("n2");
  Open(FabricKind::kStream);
  ASSERT_TRUE(Eventually([&] { return table_->RoutesOf(RowId(0)).size() == 2; }));
  nodes_["n1"]->Stop();
  nodes_.erase("n1");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Read(), absl::OkStatus());
}

TEST_F(PoolTest, RetirementIsAcknowledgedBeforeTheLeaseEnds) {
  StartNode("n1");
  Open();
  ASSERT_EQ(Read(), absl::OkStatus());
  controller_.Retire("n1");
  ASSERT_TRUE(controller_.WaitRetired("n1"));
  EXPECT_EQ(Read(200ms).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PoolTest, RefusesTablesThatAreNotTheExpectedOnes) {
  StartNode("n1");
  Open();
  EXPECT_EQ(pool_->OpenTable("other@1", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pool_->OpenTable("Not A Name", {}).status().code(), absl::StatusCode::kInvalidArgument);
  OpenTableOptions options;
  options.expected_content_digest = "abc";
  const absl::Status status = pool_->OpenTable("small@1", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("content"), HasSubstr("abc")));
}

TEST_F(PoolTest, SaysWhichShardsCannotBeReachedAtOpen) {
  PoolOptions options;
  options.endpoints = {controller_.endpoint()};
  auto pool = Pool::Open(options);
  ASSERT_TRUE(pool.ok());
  OpenTableOptions table;
  table.open_timeout = 100ms;
  const absl::Status status = (*pool)->OpenTable("small@1", table).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 48 shards cannot be read"));
}

TEST(PoolOpenTest, SaysWhatToDoWhenNobodyAnswers) {
  PoolOptions options;
  options.connect_timeout = 50ms;
  EXPECT_EQ(Pool::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.endpoints = {"127.0.0.1:1"};
  const absl::Status status = Pool::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("engramctl local up")));
}

}  // namespace
}  // namespace engram::client
