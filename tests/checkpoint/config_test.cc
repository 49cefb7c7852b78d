#include "engram/checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace engram {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Fields() {
  return {{"engram_layer_ids", {1, 14}}, {"engram_num_embeddings", {384006168, 384016682}},
          {"engram_max_ngram_size", 4},  {"engram_vocab_size", 16000000},
          {"engram_n_heads", 8},         {"engram_head_dim", 256},
          {"engram_pad_token_id", 2},    {"engram_compressed_vocab_size", 99092}};
}

// A map with the published counts: enough for the geometry, whatever the tokens are.
TokenMap MapOfSize(std::int32_t raw, std::int32_t compressed) {
  TokenMap map;
  for (std::int32_t id = 0; id < raw; ++id) map.push_back(std::min(id, compressed - 1));
  return map;
}

std::string ConfigError(const json& config) {
  return std::string(ParseCheckpointConfig(config.dump(), "config.json").status().message());
}

TEST(CheckpointConfigTest, FlashGivesThePublishedTable) {
  const auto config = ParseCheckpointConfig(Fields().dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const auto spec = SpecOf(*config, MapOfSize(129280, 99092), "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->Rows(), 384006168u + 384016682u);
  EXPECT_EQ(spec->addressing.raw_vocab, 129280u);
  EXPECT_EQ(spec->RowBytes(), 264u);
  EXPECT_EQ(spec->addressing.multipliers[0][0], 76632096046245);
}

TEST(CheckpointConfigTest, FieldsUnderTextConfigAreTheSame) {
  const json nested = {{"model_type", "vlm"}, {"text_config", Fields()}};
  const auto config = ParseCheckpointConfig(nested.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->geometry.layers, (std::vector<std::uint32_t>{1, 14}));
  json both = Fields();
  both["text_config"] = Fields();
  EXPECT_TRUE(ParseCheckpointConfig(both.dump(), "c").ok()) << "equal in both places";
  both["text_config"]["engram_n_heads"] = 4;
  EXPECT_THAT(ConfigError(both), HasSubstr("engram_n_heads has one value at the top and another"));
}

TEST(CheckpointConfigTest, EveryFieldIsNeededAndNamed) {
  const json fields = Fields();
  for (const auto& [field, value] : fields.items()) {
    json config = fields;
    config.erase(field);
    EXPECT_THAT(ConfigError(config), HasSubstr("config.json has no field " + field));
  }
}

TEST(CheckpointConfigTest, WrongValuesAreNamed) {
  const auto with = [](const char* field, const json& value) {
    json config = Fields();
    config[field] = value;
    return ConfigError(config);
  };
  EXPECT_THAT(with("engram_vocab_size", 9007199254740993),
              HasSubstr("engram_vocab_size is 9007199254740993, above 2^53"));
  EXPECT_THAT(with("engram_num_embeddings", {1, 9007199254740993}),
              HasSubstr("engram_num_embeddings[1]"));
  EXPECT_THAT(with("engram_num_embeddings", {1}), HasSubstr("1 entries and engram_layer_ids 2"));
  EXPECT_THAT(with("engram_n_heads", -8), HasSubstr("engram_n_heads is"));
  EXPECT_THAT(with("engram_n_heads", 8.5), HasSubstr("whole number"));
  EXPECT_THAT(with("engram_n_heads", 4294967304), HasSubstr("the limit is 4294967295"));
  EXPECT_THAT(with("engram_layer_ids", {1, 4294967296}),
              HasSubstr("engram_layer_ids lists 4294967296"));
  EXPECT_THAT(with("engram_layer_ids", 1), HasSubstr("must be a list"));
  EXPECT_THAT(std::string(ParseCheckpointConfig("[]", "c").status().message()),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(std::string(ParseCheckpointConfig("{", "c").status().message()),
              HasSubstr("does not parse"));
}

TEST(CheckpointConfigTest, CountsThatDisagreeAreRefused) {
  auto config = *ParseCheckpointConfig(Fields().dump(), "config.json");
  EXPECT_THAT(
      std::string(SpecOf(config, MapOfSize(129280, 98627), "config.json").status().message()),
      HasSubstr("engram_compressed_vocab_size is 99092, but the tokenizer has 129280 tokens "
                "that compress to 98627"));
  config.layer_rows[1] += 1;
  EXPECT_THAT(
      std::string(SpecOf(config, MapOfSize(129280, 99092), "config.json").status().message()),
      HasSubstr("engram_num_embeddings says 384016683 rows for layer 14, but the primes from "
                "engram_vocab_size 16000000 add up to 384016682"));
}

}  // namespace
}  // namespace engram
