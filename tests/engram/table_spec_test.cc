#include "engram/table_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace engram {
namespace {

using testing::HasSubstr;

TableSpec TwoLayers() {
  TableSpec spec;
  spec.planes = {{"weight", DType::kE4M3, 32}, {"scale", DType::kUE8M0, 1}};
  spec.addressing.function = "deepseek-v4.1";
  spec.addressing.layers = {5, 2};
  spec.addressing.multipliers = {{1, 3}, {5, 7}};
  spec.columns = {{5, 2, 0, 11}, {5, 2, 1, 13}, {2, 2, 0, 17}, {2, 2, 1, 19}};
  return spec;
}

TEST(TableSpecTest, CountsRowsPerLayerInListedOrder) {
  const TableSpec spec = TwoLayers();
  ASSERT_TRUE(spec.Validate().ok());
  EXPECT_EQ(spec.RowBytes(), 33u);
  EXPECT_EQ(spec.Rows(), 60u);
  EXPECT_EQ(spec.LayerFirstRow(5), 0u);
  EXPECT_EQ(spec.LayerFirstRow(2), 24u);
  EXPECT_EQ(spec.LayerRows(2), 36u);
  EXPECT_EQ(spec.ColumnsPerLayer(), 2u);
}

TEST(TableSpecTest, EqualSpecsHaveEqualDigestsAndEveryFieldChangesIt) {
  EXPECT_EQ(TwoLayers().Digest(), TwoLayers().Digest());
  std::set<std::string> digests = {TwoLayers().Digest()};
  const auto changed = [&](auto change) {
    TableSpec spec = TwoLayers();
    change(spec);
    return digests.insert(spec.Digest()).second;
  };
  EXPECT_TRUE(changed([](auto& s) { s.columns[0].rows = 12; }));
  EXPECT_TRUE(changed([](auto& s) { s.columns[0].head = 9; }));
  EXPECT_TRUE(changed([](auto& s) { s.columns[0].order = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.columns[0].layer = 6; }));
  EXPECT_TRUE(changed([](auto& s) { s.columns.pop_back(); }));
  EXPECT_TRUE(changed([](auto& s) { s.planes[0].name = "values"; }));
  EXPECT_TRUE(changed([](auto& s) { s.planes[0].dtype = DType::kBytes; }));
  EXPECT_TRUE(changed([](auto& s) { s.planes[0].bytes = 64; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.function = "x"; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.layers = {2, 5}; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.max_order = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.heads = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.base_rows = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.base_seed = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.pad_token = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.raw_vocab = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.compressed_vocab = 3; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.multipliers[1][0] = 9; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.multipliers = {{1}, {3, 5, 7}}; }));
  EXPECT_TRUE(changed([](auto& s) { s.addressing.token_map_digest = "ab"; }));
}

TEST(TableSpecTest, InvalidSpecsNameTheProblem) {
  const auto refused = [](auto change) {
    TableSpec spec = TwoLayers();
    change(spec);
    return std::string(spec.Validate().message());
  };
  EXPECT_THAT(refused([](auto& s) { s.planes.clear(); }), HasSubstr("no planes"));
  EXPECT_THAT(refused([](auto& s) { s.planes[1].bytes = 0; }), HasSubstr("\"scale\" has 0 bytes"));
  EXPECT_THAT(refused([](auto& s) { s.planes[0].bytes = ~0u; }), HasSubstr("the limit is 1048576"));
  EXPECT_THAT(refused([](auto& s) { s.columns.clear(); }), HasSubstr("0 columns"));
  EXPECT_THAT(refused([](auto& s) { s.columns[2].rows = 0; }),
              HasSubstr("(layer 2, order 2, head 0) has 0"));
  EXPECT_THAT(refused([](auto& s) { s.columns[1].rows = kMaxColumnRows + 1; }),
              HasSubstr("the limit is"));
  EXPECT_THAT(refused([](auto& s) { s.columns[1] = s.columns[0]; }), HasSubstr("listed twice"));
  EXPECT_THAT(refused([](auto& s) { s.columns.pop_back(); }), HasSubstr("do not divide evenly"));
  EXPECT_THAT(refused([](auto& s) {
                s.addressing.layers = {2, 5};
              }),
              HasSubstr("layer order wants 2"));
  EXPECT_THAT(refused([](auto& s) { s.addressing.layers.clear(); }), HasSubstr("0 layers"));
}

TEST(DTypeTest, NamesRoundTrip) {
  for (DType dtype :
       {DType::kE4M3, DType::kUE8M0, DType::kBF16, DType::kNVFP4, DType::kF8Scale, DType::kBytes}) {
    EXPECT_EQ(*ParseDType(Name(dtype)), dtype);
  }
  EXPECT_THAT(std::string(ParseDType("fp64").status().message()), HasSubstr("\"fp64\" is unknown"));
}

TEST(TableOptionsTest, ShardBytesAndReplicasAreBounded) {
  TableOptions options;
  EXPECT_TRUE(options.Validate().ok());
  options.shard_bytes = kMinShardBytes - 1;
  EXPECT_THAT(std::string(options.Validate().message()), HasSubstr("1048575"));
  options.shard_bytes = kMaxShardBytes + 1;
  EXPECT_FALSE(options.Validate().ok());
  options = {};
  options.replicas = 0;
  EXPECT_THAT(std::string(options.Validate().message()), HasSubstr("replicas is 0"));
}

TEST(TableNameTest, ParsesNameAndVersionOnly) {
  const auto name = TableName::Parse("deepseek-v4.1@2025_b");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->name, "deepseek-v4.1");
  EXPECT_EQ(name->version, "2025_b");
  EXPECT_EQ(name->Full(), "deepseek-v4.1@2025_b");
  for (const char* text : {"", "a", "@1", "a@", "a@b@c", "A@1", "a b@1", ".a@1", "a@-1", "a/b@1"}) {
    EXPECT_FALSE(TableName::Parse(text).ok()) << text;
  }
  EXPECT_FALSE(TableName::Parse(std::string(64, 'a') + "@1").ok());
}

TEST(Sha256Test, IsTheStandardDigest) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace engram
