#include "client/cache/hot_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace engram::client {
namespace {

HotFileLimits Limits() {
  HotFileLimits limits;
  limits.spec_digest = "abc";
  limits.rows = 1000;
  limits.unit_rows = 4;
  return limits;
}

std::vector<HotNgram> Some() {
  return {{7, {RowId(1), RowId(2), RowId(3), RowId(999)}}, {0, {RowId(5)}}};
}

std::string Message(const std::string& text, const HotFileLimits& limits = Limits()) {
  const auto parsed = ParseHotText(text, limits);
  return parsed.ok() ? "ok" : std::string(parsed.status().message());
}

TEST(HotFile, ComesBackAsItWasWritten) {
  const auto parsed = ParseHotText(HotText("abc", Some()), Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 2u);
  EXPECT_EQ((*parsed)[0].hits, 7u);
  EXPECT_EQ((*parsed)[0].ids, Some()[0].ids);
  EXPECT_EQ((*parsed)[1].ids, Some()[1].ids);
}

TEST(HotFile, SaysWhichLineIsWrong) {
  EXPECT_EQ(Message(""), "the file is empty");
  EXPECT_EQ(Message("hello\n"), "line 1 is not \"engram-hot 1 SPEC_DIGEST\"");
  EXPECT_EQ(Message("engram-hot 1 abc\n1 2"), "line 2 has no end: the file was cut short");
  EXPECT_EQ(Message("engram-hot 1 abc\n1 2\n-1 2\n"), "line 3: it does not start with a number");
  EXPECT_EQ(Message("engram-hot 1 abc\n1\n"), "line 2: it names no row");
  EXPECT_EQ(Message("engram-hot 1 abc\n1 2  3\n"), "line 2: a row is not a number after one space");
  EXPECT_EQ(Message("engram-hot 1 abc\n1 2 3 4 5 6\n"), "line 2: it has more than 4 rows");
  EXPECT_EQ(Message("engram-hot 1 abc\n1 1000\n"),
            "line 2: row 1000 does not exist: the table has 1000");
  EXPECT_EQ(Message("engram-hot 1 abc\n99999999999999999999999 1\n"),
            "line 2: it does not start with a number");
}

TEST(HotFile, OfAnotherSpecIsRefused) {
  const auto parsed = ParseHotText(HotText("abd", Some()), Limits());
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(parsed.status().message().find("abd"), absl::string_view::npos);
}

TEST(HotFile, NoMoreThanTheLimitIsRead) {
  HotFileLimits limits = Limits();
  limits.ngrams = 1;
  EXPECT_EQ(ParseHotText(HotText("abc", Some()), limits)->size(), 1u);
}

TEST(HotFile, IsWrittenWholeOrNotAtAll) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("hot_file_test." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/hot";
  ASSERT_TRUE(WriteHotFile(path, "abc", Some()).ok());
  EXPECT_EQ(ReadHotFile(path, Limits())->size(), 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  const absl::Status missing = WriteHotFile(folder + "/no/hot", "abc", Some());
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/hot"), absl::string_view::npos);
  EXPECT_EQ(ReadHotFile(folder + "/none", Limits()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadHotFile(folder, Limits()).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace engram::client
