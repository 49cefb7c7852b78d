#include "client/abi/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace engram::client::abi {
namespace {

using ::testing::HasSubstr;

TableShape Shape() {
  TableShape shape;
  shape.name = "t@1";
  shape.rows = 300;
  shape.row_bytes = 40;
  shape.columns = 4;
  shape.layers = {{0, 100}, {100, 200}};
  shape.planes = {32, 8};
  return shape;
}

engram_rows RowsOf(const std::vector<std::int64_t>& ids) {
  engram_rows rows{};
  rows.struct_size = sizeof rows;
  rows.ids = ids.data();
  rows.count = ids.size();
  rows.id_type = ENGRAM_ID_INT64;
  rows.layer_index = -1;
  return rows;
}

class ArgumentsTest : public testing::Test {
 protected:
  absl::Status Take(const engram_rows* rows, void* out, std::size_t bytes) {
    return TakeRows(Shape(), rows, out, bytes, nullptr).status();
  }
  void ExpectInvalid(const absl::Status& status, const char* says) {
    EXPECT_EQ(StatusOf(status), ENGRAM_INVALID_ARGUMENT) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  std::vector<std::byte> out_ = std::vector<std::byte>(400);
};

TEST_F(ArgumentsTest, RowsBecomeAPartOfTheWholeTableOrOfALayer) {
  const std::vector<std::int64_t> ids = {0, -1, 199};
  engram_rows rows = RowsOf(ids);
  rows.layer_index = 1;
  std::uint8_t status[3] = {};
  const auto part = TakeRows(Shape(), &rows, out_.data(), 120, status);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->first_row, 100u);
  EXPECT_EQ(part->row_limit, 200u);
  EXPECT_EQ(part->run_rows, 3u);
  EXPECT_EQ(part->row_stride, 40u);
  EXPECT_EQ(static_cast<void*>(part->row_status), static_cast<void*>(status));
}

TEST_F(ArgumentsTest, NamesWhatIsWrongWithRows) {
  const std::vector<std::int64_t> ids = {0, 5, 300};
  engram_rows rows = RowsOf(ids);
  ExpectInvalid(Take(nullptr, out_.data(), 400), "rows is NULL");
  ExpectInvalid(Take(&rows, out_.data(), 119), "out_bytes is 119; 3 rows of 40 bytes need 120");
  ExpectInvalid(Take(&rows, nullptr, 400), "out is NULL");
  ExpectInvalid(Take(&rows, out_.data(), 400), "ids[2] is 300; table t@1 has rows 0 to 299");
  rows.layer_index = 0;
  ExpectInvalid(Take(&rows, out_.data(), 400), "layer index 0 of table t@1 has rows 0 to 99");
  rows.layer_index = 2;
  ExpectInvalid(Take(&rows, out_.data(), 400), "rows->layer_index is 2");
  rows = RowsOf(ids);
  rows.id_type = 7;
  ExpectInvalid(Take(&rows, out_.data(), 400), "rows->id_type is 7");
  rows = RowsOf(ids);
  rows.ids = nullptr;
  ExpectInvalid(Take(&rows, out_.data(), 400), "rows->ids is NULL");
  rows = RowsOf(ids);
  rows.count = SIZE_MAX;
  ExpectInvalid(Take(&rows, out_.data(), 400), "rows->count is 18446744073709551615");
  rows = RowsOf(ids);
  rows.struct_size = 3;
  ExpectInvalid(Take(&rows, out_.data(), 400), "rows->struct_size is 3");
  rows.struct_size = offsetof(engram_rows, count) - 4;
  ExpectInvalid(Take(&rows, out_.data(), 400), "multiple of 8");  // half of a pointer
  rows.struct_size = SIZE_MAX;
  ExpectInvalid(Take(&rows, out_.data(), 400), "struct_size");
}

TEST_F(ArgumentsTest, AnOlderStructTakesTheDefaultsOfWhatItLacks) {
  const std::vector<std::int64_t> ids = {299};
  engram_rows rows = RowsOf(ids);
  rows.layer_index = 55;  // beyond what this caller's struct has
  rows.struct_size = offsetof(engram_rows, id_type);
  EXPECT_TRUE(Take(&rows, out_.data(), 400).ok());
}

TEST_F(ArgumentsTest, ANewerStructIsTakenOnlyWhileItsNewFieldsAreZero) {
  struct Newer {
    engram_rows rows;
    std::uint64_t field;
  };
  const std::vector<std::int64_t> ids = {1};
  Newer newer{RowsOf(ids), 0};
  newer.rows.struct_size = sizeof newer;
  EXPECT_TRUE(Take(&newer.rows, out_.data(), 400).ok());
  newer.field = 1;
  ExpectInvalid(Take(&newer.rows, out_.data(), 400), "use a newer library");
}

TEST_F(ArgumentsTest, InfoStructsAreFilledAsFarAsTheyReach) {
  engram_layer_info ours{};
  ours.layer = 14;
  ours.rows = 77;
  engram_layer_info theirs{};
  theirs.rows = 5;
  theirs.struct_size = offsetof(engram_layer_info, rows);
  ASSERT_TRUE(GiveStruct("info", ours, &theirs).ok());
  EXPECT_EQ(theirs.layer, 14u);
  EXPECT_EQ(theirs.rows, 5u) << "not theirs to receive";
  EXPECT_EQ(theirs.struct_size, offsetof(engram_layer_info, rows));
  ExpectInvalid(GiveStruct<engram_layer_info>("info", ours, nullptr), "info is NULL");
}

TEST_F(ArgumentsTest, RowStatusTellsSkippedRowsByTheirIds) {
  const std::vector<std::int64_t> ids = {1, -5, 2, 3, 4};
  engram_rows rows = RowsOf(ids);
  std::uint8_t status[5] = {0, 0, static_cast<std::uint8_t>(ReadStatus::kTimedOut),
                            static_cast<std::uint8_t>(ReadStatus::kCorrupt),
                            static_cast<std::uint8_t>(ReadStatus::kNoReplica)};
  const auto part = TakeRows(Shape(), &rows, out_.data(), 400, status);
  ASSERT_TRUE(part.ok());
  GiveRowStatus(*part, status);
  EXPECT_THAT(status, testing::ElementsAre(ENGRAM_ROW_OK, ENGRAM_ROW_SKIPPED, ENGRAM_ROW_TIMED_OUT,
                                           ENGRAM_ROW_CORRUPT, ENGRAM_ROW_FAILED));
}

TEST_F(ArgumentsTest, NamesWhatIsWrongWithTokens) {
  const std::vector<std::int64_t> ids = {1, 2};
  engram_tokens tokens{};
  tokens.struct_size = sizeof tokens;
  tokens.tokens = ids.data();
  tokens.count = 2;
  EXPECT_EQ(TakeTokens(Shape(), &tokens, out_.data(), 320, 40)->rows, 8u);
  ExpectInvalid(TakeTokens(Shape(), &tokens, out_.data(), 319, 40).status(), "need 320");
  ExpectInvalid(TakeTokens(Shape(), nullptr, out_.data(), 320, 40).status(), "tokens is NULL");
  tokens.lookback_count = 1;
  ExpectInvalid(TakeTokens(Shape(), &tokens, out_.data(), 320, 40).status(), "lookback is NULL");
  tokens.lookback_count = 0;
  tokens.count = SIZE_MAX / 2;
  ExpectInvalid(TakeTokens(Shape(), &tokens, out_.data(), 320, 40).status(), "the limit of each");
}

TEST_F(ArgumentsTest, EndpointsComeFromTheOptionsThenTheEnvironmentThenTheContext) {
  const std::string context = testing::TempDir() + "/context.yaml";
  std::ofstream(context) << "data_dir: /tmp/x\nendpoint: \"127.0.0.1:7\"\n";
  engram_pool_options options{};
  options.struct_size = sizeof options;
  options.endpoints = "a:1, b:2";
  EXPECT_THAT(TakePoolOptions(&options, "e:1", context)->endpoints,
              testing::ElementsAre("a:1", "b:2"));
  options.endpoints = nullptr;
  EXPECT_THAT(TakePoolOptions(&options, "e:1", context)->endpoints, testing::ElementsAre("e:1"));
  EXPECT_EQ(TakePoolOptions(&options, "e:1", context)->connect_timeout, std::chrono::seconds(5));
  EXPECT_EQ(TakePoolOptions(&options, "e:1,f:1", context)->connect_timeout,
            std::chrono::seconds(15));
  EXPECT_THAT(TakePoolOptions(nullptr, nullptr, context)->endpoints,
              testing::ElementsAre("127.0.0.1:7"));
  EXPECT_TRUE(TakePoolOptions(nullptr, nullptr, context + ".none")->endpoints.empty());
  std::remove(context.c_str());
}

TEST_F(ArgumentsTest, UnknownFabricsAreNamed) {
  engram_pool_options options{};
  options.struct_size = sizeof options;
  options.endpoints = "a:1";
  options.fabric = "pigeon";
  ExpectInvalid(TakePoolOptions(&options, nullptr, "").status(), "pigeon");
  options.fabric = "stream";
  EXPECT_EQ(TakePoolOptions(&options, nullptr, "")->fabric, FabricKind::kStream);
}

engram_layer_rows LayerOf(const std::vector<std::int32_t>& ids, std::vector<std::byte>& out) {
  engram_layer_rows rows{};
  rows.struct_size = sizeof rows;
  rows.ids = ids.data();
  rows.runs = ids.size() / 2;
  rows.columns = 2;
  rows.id_type = ENGRAM_ID_INT32;
  rows.layer_index = 1;
  rows.out = out.data();
  rows.out_bytes = out.size();
  return rows;
}

TEST(StepArgumentsTest, TakesALayerWithItsDefaultsAndFindsShortOutputs) {
  const std::vector<std::int32_t> ids = {1, 2, -1, 4};
  std::vector<std::byte> out(4 * 40);
  engram_layer_rows rows[2] = {LayerOf(ids, out), LayerOf(ids, out)};
  const Instant now{std::chrono::seconds(5)};
  rows[1].needed_in_ns = 7;
  const auto layer = TakeLayer(Shape(), rows, 1, now, {});
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->needed_by, now + Duration(7));
  EXPECT_EQ(layer->rows.runs, 2u);
  EXPECT_EQ(layer->rows.run_id_stride, 2u);
  EXPECT_EQ(layer->rows.row_stride, 40u);
  EXPECT_EQ(layer->rows.run_stride, 80u);
  EXPECT_EQ(layer->rows.first_row, 100u);
  EXPECT_EQ(layer->rows.row_limit, 200u);
  rows[1].needed_in_ns = ~std::uint64_t{0};
  EXPECT_GT(TakeLayer(Shape(), rows, 1, now, {})->needed_by, now);
  const auto refused = [&](auto change) {
    engram_layer_rows bad = LayerOf(ids, out);
    change(bad);
    return TakeLayer(Shape(), &bad, 0, now, {}).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& bad) { bad.out_bytes -= 1; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.row_stride = 39; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.run_stride = ~std::size_t{0}; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.runs = std::size_t{1} << 40; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.layer_index = 2; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.id_type = 2; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.ids = nullptr; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.out = nullptr; }));
  EXPECT_TRUE(refused([](auto& bad) { bad.struct_size = 0; }));
  EXPECT_FALSE(refused([](auto& bad) { bad.runs = 0; }));
}

TEST(StepArgumentsTest, TakesOptionsAndKinds) {
  bool check = true;
  EXPECT_EQ(TakePrefetcherOptions(nullptr, &check)->steps, 8u);
  engram_prefetcher_options options{};
  options.struct_size = sizeof options;
  options.steps = 3;
  options.poller = 1;
  EXPECT_EQ(TakePrefetcherOptions(&options, &check)->steps, 3u);
  EXPECT_TRUE(TakePrefetcherOptions(&options, &check)->poller);
  EXPECT_EQ(TakePrefetcherOptions(&options, &check)->cache_bytes, 0u);
  options.cache_bytes = 1 << 20;
  options.pinned_file = "hot";
  EXPECT_FALSE(TakePrefetcherOptions(&options, &check)->host_cache);
  options.host_cache = 1;
  EXPECT_TRUE(TakePrefetcherOptions(&options, &check)->host_cache);
  EXPECT_EQ(TakePrefetcherOptions(&options, &check)->cache_bytes, 1u << 20);
  EXPECT_EQ(TakePrefetcherOptions(&options, &check)->pinned_file, "hot");
  options.poller = 2;
  EXPECT_FALSE(TakePrefetcherOptions(&options, &check).ok());
  EXPECT_EQ(*TakeKind(ENGRAM_STEP_PREFILL), StepKind::kPrefill);
  EXPECT_FALSE(TakeKind(3).ok());
}

}  // namespace
}  // namespace engram::client::abi
