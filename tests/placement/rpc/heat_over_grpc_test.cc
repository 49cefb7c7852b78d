// Heat and plans over gRPC: what clients report is what operators see, and what a stranger sends
// changes nothing.
#include <gmock/gmock.h>

#include "tests/placement/rpc/grpc_pool.h"

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

class HeatOverGrpcTest : public GrpcPoolTest {
 protected:
  // A table of six shards, two copies each, on two nodes.
  void SetUp() override {
    GrpcPoolTest::SetUp();
    auto server = Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const std::string endpoint = EndpointOf(*server_);
    client_ = std::make_unique<PoolClient>(endpoint);
    a_ = std::make_unique<GrpcNode>("a", endpoint);
    b_ = std::make_unique<GrpcNode>("b", endpoint);
    ASSERT_TRUE(
        PoolClient::Await([&] { return a_->incarnation() != 0 && b_->incarnation() != 0; }));
    ASSERT_TRUE(client_->Load("1", "r1").ok());
    ASSERT_TRUE(client_->AwaitReady("1"));
    v1::ListTablesResponse tables;
    grpc::ClientContext context;
    ASSERT_TRUE(client_->stub().ListTables(&context, {}, &tables).ok());
    uid_ = tables.tables(0).table().uid();
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
  }

  v1::ReportHeatRequest Report(std::uint64_t sequence) const {
    v1::ReportHeatRequest request;
    request.mutable_caller()->set_client("replica-1");
    request.set_process(7);
    request.set_sequence(sequence);
    v1::TableHeat* table = request.add_tables();
    table->set_table(uid_);
    for (const std::uint32_t step : {1, 3}) table->add_shard_steps(step);  // shards 1 and 4
    for (const std::uint64_t reads : {1'000, 5'000}) table->add_reads(reads);
    v1::NgramHeat* ngram = table->add_ngrams();
    ngram->add_rows(3);
    ngram->add_rows(17);
    ngram->set_reads(90);
    ngram->set_error(40);
    return request;
  }
  grpc::Status Send(const v1::ReportHeatRequest& request) {
    grpc::ClientContext context;
    return client_->stub().ReportHeat(&context, request, &reported_);
  }
  v1::GetHeatResponse Heat() {
    grpc::ClientContext context;
    v1::GetHeatResponse heat;
    EXPECT_TRUE(client_->stub().GetHeat(&context, {}, &heat).ok());
    return heat;
  }

  std::unique_ptr<PlacementServer> server_;
  std::unique_ptr<PoolClient> client_;
  std::unique_ptr<GrpcNode> a_, b_;
  std::string uid_;
  v1::ReportHeatResponse reported_;
};

TEST_F(HeatOverGrpcTest, WhatIsReportedIsListedTheHottestFirst) {
  const grpc::Status sent = Send(Report(1));
  ASSERT_TRUE(sent.ok()) << sent.error_message();
  EXPECT_GT(reported_.report_every_ns(), 0);
  const v1::GetHeatResponse heat = Heat();
  ASSERT_EQ(heat.shards_size(), 2);
  EXPECT_EQ(heat.shards(0).shard(), 4u);
  EXPECT_EQ(heat.shards(1).shard(), 1u);
  EXPECT_NEAR(heat.shards(0).reads_per_second() / heat.shards(1).reads_per_second(), 5, 1e-6);
  EXPECT_EQ(heat.shards(0).nodes_size(), 2);
  ASSERT_EQ(heat.tables_size(), 1);
  EXPECT_EQ(heat.tables(0).shards_read(), 2u);
  ASSERT_EQ(heat.clients_size(), 1);
  EXPECT_EQ(heat.clients(0).client(), "replica-1");
  ASSERT_EQ(heat.ngrams_size(), 1);
  EXPECT_EQ(heat.ngrams(0).rows(1), 17u);
  EXPECT_FALSE(heat.ngrams(0).spec_digest().empty());
}

TEST_F(HeatOverGrpcTest, WhatMakesNoSenseIsRefusedOrLeftOut) {
  v1::ReportHeatRequest uneven = Report(1);
  uneven.mutable_tables(0)->add_reads(1);
  const grpc::Status refused = Send(uneven);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("3 reads"));
  v1::ReportHeatRequest other = Report(1);
  other.mutable_tables(0)->set_table(std::string(16, 'x'));
  EXPECT_TRUE(Send(other).ok());
  v1::ReportHeatRequest far = Report(2);
  far.mutable_tables(0)->set_shard_steps(0, 0xffffffff);
  far.mutable_tables(0)->mutable_ngrams(0)->set_rows(0, ~std::uint64_t{0});
  EXPECT_TRUE(Send(far).ok());
  const v1::GetHeatResponse heat = Heat();
  EXPECT_EQ(heat.shards_size(), 0);
  EXPECT_EQ(heat.ngrams_size(), 0);
}

TEST(TurnsTest, WhoComesBeyondTheLimitIsTurnedAwayUntilOneIsOver) {
  Turns turns(2);
  const Turns::Turn one = turns.Take();
  Turns::Turn two = turns.Take();
  EXPECT_TRUE(one && two);
  EXPECT_FALSE(turns.Take());
  two.reset();
  EXPECT_TRUE(turns.Take());
}

TEST_F(HeatOverGrpcTest, ThePlanOfAPoolInOrderIsEmpty) {
  grpc::ClientContext context;
  v1::GetPlanResponse plan;
  ASSERT_TRUE(client_->stub().GetPlan(&context, {}, &plan).ok());
  EXPECT_EQ(plan.steps_total(), 0u);
  EXPECT_EQ(plan.unmet_size(), 0);
}

}  // namespace
}  // namespace engram::placement
