#include "engram/checkpoint/token_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace engram {
namespace {

using testing::HasSubstr;

std::string Tokenizer(const std::string& vocab, const std::string& added = "[]") {
  return R"({"decoder": {"type": "ByteLevel"}, "added_tokens": )" + added +
         R"(, "model": {"type": "BPE", "merges": [], "vocab": )" + vocab + "}}";
}
std::string TokenizerError(const std::string& json) {
  return std::string(ParseTokenizer(json, "tokenizer.json").status().message());
}

TEST(DecodeTokenTest, TurnsTheByteLevelAlphabetBackIntoBytes) {
  EXPECT_EQ(DecodeToken("Ġthe"), " the");
  EXPECT_EQ(DecodeToken("Ċ"), "\n");
  EXPECT_EQ(DecodeToken("ä¸Ń"), "中");
  EXPECT_EQ(DecodeToken("Ń"), "\xad");
  EXPECT_EQ(DecodeToken("Ā"), std::string(1, '\0'));
  EXPECT_EQ(DecodeToken("<｜x｜>"), "<｜x｜>") << "added tokens are plain text";
}

TEST(CompressionKeyTest, FoldsCaseMarksWidthAndSpace) {
  EXPECT_EQ(CompressionKey("ĠThe"), "the");
  EXPECT_EQ(CompressionKey("THE"), "the");
  EXPECT_EQ(CompressionKey("Ã©"), "e");   // é
  EXPECT_EQ(CompressionKey("ï¼¡"), "a");  // fullwidth A
  EXPECT_EQ(CompressionKey("aĠĠĉb"), "a b");
  EXPECT_EQ(CompressionKey("ï¬ģ"), "fi");  // the ligature
}

TEST(CompressionKeyTest, ASingleSpaceIsProtectedAndEmptyKeepsItsText) {
  EXPECT_EQ(CompressionKey("Ġ"), " ");
  EXPECT_EQ(CompressionKey("ĠĠĠ"), " ") << "a run collapses to one space first";
  EXPECT_EQ(CompressionKey("Ċ"), " ");
  EXPECT_EQ(CompressionKey("Âł"), " ") << "NFKC turns a no-break space into a space";
  EXPECT_EQ(CompressionKey("Ìģ"), "\u0301") << "only a combining mark: nothing is left";
}

TEST(CompressionKeyTest, TextThatDoesNotDecodeIsItsOwnKey) {
  EXPECT_EQ(CompressionKey("Ã"), "Ã");
  EXPECT_EQ(CompressionKey("ï¿½"), "ï¿½") << "a real U+FFFD counts, too";
}

TEST(MapOfTest, NumbersNewKeysInOrder) {
  EXPECT_EQ(MapOf({"a", "B", "A", "Ġb", "c"}), (TokenMap{0, 1, 0, 1, 2}));
  EXPECT_EQ(CompressedCount({0, 1, 0, 1, 2}), 3u);
  EXPECT_EQ(CompressedCount({}), 0u);
}

TEST(ParseTokenizerTest, AddedTokensExtendAndHideTheVocabulary) {
  const auto tokens =
      ParseTokenizer(Tokenizer(R"({"a": 0, "b": 1})",
                               R"([{"id": 2, "content": "<x>"}, {"id": 1, "content": "<y>"}])"),
                     "t");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, (std::vector<std::string>{"a", "<y>", "<x>"}));
}

TEST(ParseTokenizerTest, HostileFilesAreRefusedWithTheReason) {
  EXPECT_THAT(TokenizerError("{"), HasSubstr("tokenizer.json does not parse as JSON"));
  EXPECT_THAT(TokenizerError("[]"), HasSubstr("no \"model\" object"));
  EXPECT_THAT(TokenizerError(R"({"model": {"type": "Unigram", "vocab": []}})"),
              HasSubstr("not BPE"));
  EXPECT_THAT(TokenizerError(R"({"model": {"type": "WordPiece", "vocab": {}}})"),
              HasSubstr("not BPE"));
  EXPECT_THAT(TokenizerError(R"({"model": {"type": "BPE", "vocab": {"a": 0}}})"),
              HasSubstr("not ByteLevel"));
  EXPECT_THAT(TokenizerError(Tokenizer("{}")), HasSubstr("vocabulary is empty"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 0, "b": 0})")),
              HasSubstr("id 0 belongs to \"a\" and to \"b\""));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 0, "b": 2})")), HasSubstr("no token has id 1"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": -1})")), HasSubstr("at least 0"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 1e300})")), HasSubstr("above 2^53"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 4294967296})")), HasSubstr("the limit is"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 0, "a": 1})")), HasSubstr("twice"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 0})", R"([{"id": 1}])")), HasSubstr("no content"));
  EXPECT_THAT(TokenizerError(Tokenizer(R"({"a": 0})", R"({"x": 1})")), HasSubstr("not a list"));
  EXPECT_THAT(TokenizerError(Tokenizer(
                  R"({"a": 0})", R"([{"id": 1, "content": "x"}, {"id": 1, "content": "y"}])")),
              HasSubstr("id 1 is listed twice"));
}

TEST(ReadTokenizerTest, MissingFileIsNotFound) {
  EXPECT_EQ(ReadTokenizer("/nonexistent/tokenizer.json").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace engram
