#include "engram/checkpoint/synthetic_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engram/checkpoint/writer.h"
#include "tests/checkpoint/temporary_folder.h"

namespace engram {
namespace {

using testing::HasSubstr;

absl::StatusOr<SyntheticTable> Parse(const std::string& json, const std::string& folder = ".") {
  return ParseSyntheticSpec(json, "spec.json", folder);
}
std::string SpecError(const std::string& json, const std::string& folder = ".") {
  return std::string(Parse(json, folder).status().message());
}

TEST(SyntheticSpecTest, TheDocumentedExampleIsTheIdentityTable) {
  const auto table = Parse(
      R"({"model": "deepseek-v4.1", "engram_vocab_size": 160000, "layers": [1, 14], "seed": 7})");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->seed, 7u);
  EXPECT_TRUE(table->token_map.empty());
  EXPECT_EQ(table->spec.addressing.raw_vocab, 129280u);
  EXPECT_EQ(table->spec.addressing.compressed_vocab, 129280u);
  EXPECT_EQ(table->spec.columns.size(), 48u);
  EXPECT_EQ(table->spec.columns[0].rows, 160001u);
  EXPECT_TRUE(Addressing::Make(table->spec, table->token_map).ok());
}

TEST(SyntheticSpecTest, EveryGeometryKeyCounts) {
  const auto table = Parse(
      R"({"model": "deepseek-v4.1", "engram_vocab_size": 100, "engram_layer_ids": [3], "engram_n_heads": 2,
          "engram_max_ngram_size": 3, "engram_head_dim": 64, "engram_pad_token_id": 5, "vocab_size": 50,
          "engram_compressed_vocab_size": 50, "engram_num_embeddings": [420], "base_seed": "18446744073709521594",
          "seed": "18446744073709551615"})");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->spec.RowBytes(), 66u);
  EXPECT_EQ(table->spec.Rows(), 101u + 103 + 107 + 109);
  EXPECT_EQ(table->spec.addressing.pad_token, 5);
  EXPECT_EQ(table->spec.addressing.base_seed, 18446744073709521594u);
  EXPECT_EQ(table->seed, ~std::uint64_t{0});
}

TEST(SyntheticSpecTest, TokenMapFromFileOrTokenizer) {
  const TemporaryFolder folder;
  folder.Write("map.i32", std::string("\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0", 16));
  const std::string start = R"({"model": "deepseek-v4.1", "engram_vocab_size": 100, )";
  auto table = Parse(start + R"("token_map": "map.i32"})", folder.path());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->token_map, (TokenMap{0, 1, 0, 2}));
  EXPECT_EQ(table->spec.addressing.compressed_vocab, 3u);
  EXPECT_TRUE(Addressing::Make(table->spec, table->token_map).ok());
  EXPECT_THAT(SpecError(start + R"("token_map": "map.i32", "engram_compressed_vocab_size": 4})",
                        folder.path()),
              HasSubstr("compress to 3"));
  EXPECT_THAT(SpecError(start + R"("token_map": "map.i32", "vocab_size": 5})", folder.path()),
              HasSubstr("token_map has 4 entries"));

  folder.Write("tokenizer.json", GenerateTokenizer(300));
  folder.Write("spec.json", start + R"("token_map": "tokenizer.json"})");
  table = ReadSyntheticSpec(folder.File("spec.json"));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->token_map.size(), 300u);

  folder.Write("odd.i32", "12345");
  EXPECT_THAT(SpecError(start + R"("token_map": "odd.i32"})", folder.path()), HasSubstr("5 bytes"));
  folder.Write("negative.i32", "\xff\xff\xff\xff");
  EXPECT_THAT(SpecError(start + R"("token_map": "negative.i32"})", folder.path()),
              HasSubstr("entry 0 is negative"));
  EXPECT_EQ(Parse(start + R"("token_map": "none"})", folder.path()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(SyntheticSpecTest, MistakesAreNamed) {
  const auto with = [](const std::string& more) {
    return SpecError(R"({"model": "deepseek-v4.1")" + more + "}");
  };
  EXPECT_THAT(with(R"(, "engram_vocab_sise": 1)"),
              HasSubstr("unknown key \"engram_vocab_sise\"; did you mean engram_vocab_size?"));
  EXPECT_THAT(with(R"(, "seed": 9007199254740993)"), HasSubstr("above 2^53"));
  EXPECT_THAT(with(R"(, "seed": -1)"), HasSubstr("seed is"));
  EXPECT_THAT(with(R"(, "layers": [1], "engram_layer_ids": [1])"), HasSubstr("not both"));
  EXPECT_THAT(with(R"(, "layers": [1, 1])"), HasSubstr("listed twice"));
  EXPECT_THAT(with(R"(, "layers": [4294967296])"), HasSubstr("4294967296"));
  EXPECT_THAT(with(R"(, "engram_num_embeddings": [1])"), HasSubstr("1 entries for 2 layers"));
  EXPECT_THAT(with(R"(, "engram_num_embeddings": [1, 2])"), HasSubstr("says 1 rows for layer 1"));
  EXPECT_THAT(with(R"(, "engram_compressed_vocab_size": 99092)"), HasSubstr("the raw one, 129280"));
  EXPECT_THAT(with(R"(, "token_map": 7)"), HasSubstr("must be a string"));
  EXPECT_THAT(with(R"(, "engram_n_heads": 0)"), HasSubstr("heads is 0"));
  EXPECT_THAT(with(R"(, "engram_vocab_size": 0)"), HasSubstr("engram_vocab_size is 0"));
  EXPECT_THAT(SpecError(R"({"seed": 1})"), HasSubstr("there is no \"model\""));
  EXPECT_THAT(SpecError(R"({"model": "gpt"})"), HasSubstr("model \"gpt\" is unknown"));
  EXPECT_THAT(SpecError("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(SpecError("{"), HasSubstr("does not parse"));
}

}  // namespace
}  // namespace engram
