#include "engram/checkpoint/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/temporary_folder.h"

namespace engram {
namespace {

using testing::HasSubstr;

std::string JsonError(std::string_view text) {
  return std::string(ParseJson(text, "some.json").status().message());
}
std::string NumberError(const char* text) {
  return std::string(ToU64(*ParseJson(text, "x"), "field").status().message());
}

TEST(JsonTest, DuplicateKeysAreRefusedAtEveryLevel) {
  EXPECT_THAT(JsonError(R"({"a": 1, "a": 2})"), HasSubstr("some.json has the key \"a\" twice"));
  EXPECT_THAT(JsonError(R"({"b": [{"a": 1, "c": {}, "a": 2}]})"), HasSubstr("\"a\" twice"));
  EXPECT_TRUE(ParseJson(R"({"a": {"a": 1}, "b": {"a": 1}})", "x").ok());
}

TEST(JsonTest, BrokenTextIsRefusedWithItsPlace) {
  EXPECT_THAT(JsonError(""), HasSubstr("some.json does not parse as JSON"));
  EXPECT_THAT(JsonError("{\"a\": 1,\n \"b\": }"), HasSubstr("line 2"));
  EXPECT_THAT(JsonError("{} {}"), HasSubstr("does not parse"));
  EXPECT_THAT(JsonError("{\"\xff\": 1}"), HasSubstr("UTF-8"));
}

TEST(JsonTest, DeepNestingIsRefusedWithoutRecursion) {
  EXPECT_THAT(JsonError(std::string(1'000'000, '[')), HasSubstr("nests deeper than 64"));
}

TEST(JsonTest, IntegersAbove2To53AreAcceptedOnlyAsStrings) {
  EXPECT_EQ(*ToU64(Json(std::uint64_t{1} << 53), "f"), std::uint64_t{1} << 53);
  EXPECT_THAT(NumberError("9007199254740993"), HasSubstr("field is 9007199254740993, above 2^53"));
  EXPECT_THAT(NumberError("1e30"), HasSubstr("above 2^53"));
  EXPECT_THAT(NumberError("99999999999999999999999"), HasSubstr("above 2^53"));
  EXPECT_EQ(*ToU64(Json("18446744073709551615"), "f"), ~std::uint64_t{0});
  EXPECT_THAT(NumberError("\"18446744073709551616\""), HasSubstr("2^64 - 1"));
}

TEST(JsonTest, EverythingThatIsNoWholeNumberIsRefused) {
  for (const char* text :
       {"-1", "1.5", "true", "null", "[]", "{}", "\"\"", "\"-1\"", "\" 1\"", "\"0x1\""}) {
    EXPECT_THAT(NumberError(text), HasSubstr("field is")) << text;
  }
}

TEST(ReadSmallFileTest, MissingAndOversizedFilesAreRefused) {
  const TemporaryFolder folder;
  folder.Write("a", "12345");
  EXPECT_EQ(*ReadSmallFile(folder.File("a"), 5), "12345");
  EXPECT_EQ(ReadSmallFile(folder.File("a"), 4).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadSmallFile(folder.File("b"), 4).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace engram
