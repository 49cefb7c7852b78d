#include "client/ctl/printer.h"

#include <gtest/gtest.h>

#include <sstream>

#include "client/ctl/outcome.h"

namespace engram::ctl {
namespace {

TextTable Sample() {
  TextTable table({{"NAME"}, {"SHARDS", false, true}, {"UID", true}, {"AGE", false, true}});
  table.Add({"small@1", "12/12", "ab", "5s"});
  table.Add({"deepseek-v4.1@1", "3/3072", "", "12d"});
  return table;
}

TEST(TextTable, LinesUpCellsAndHidesWideColumns) {
  std::ostringstream out;
  Sample().Print(out, false);
  EXPECT_EQ(out.str(),
            "NAME             SHARDS  AGE\n"
            "small@1           12/12   5s\n"
            "deepseek-v4.1@1  3/3072  12d\n");
}

TEST(TextTable, ShowsWideColumnsAndADashForNothing) {
  std::ostringstream out;
  Sample().Print(out, true);
  EXPECT_NE(out.str().find("UID"), std::string::npos);
  EXPECT_NE(out.str().find("3/3072  -    12d"), std::string::npos);
}

TEST(TextTable, PrintNewSkipsRowsWhoseAgeAloneChanged) {
  std::set<std::string> seen;
  std::ostringstream first;
  Sample().PrintNew(first, false, &seen);
  TextTable later({{"NAME"}, {"SHARDS", false, true}, {"UID", true}, {"AGE", false, true}});
  later.Add({"small@1", "12/12", "ab", "9s"});
  later.Add({"deepseek-v4.1@1", "4/3072", "", "12d"});
  std::ostringstream second;
  later.PrintNew(second, false, &seen);
  EXPECT_EQ(second.str(), "deepseek-v4.1@1  4/3072  12d\n");
}

TEST(FieldList, LinesUpValues) {
  FieldList fields;
  fields.Add("Name", "small@1");
  fields.Add("Content digest", "");
  std::ostringstream out;
  fields.Print(out);
  EXPECT_EQ(out.str(),
            "Name:            small@1\n"
            "Content digest:  -\n");
}

TEST(ParseFormat, SuggestsTheNearestAllowedFormat) {
  const std::vector<Format> allowed{Format::kTable, Format::kJson};
  EXPECT_EQ(*ParseFormat("", allowed), Format::kTable);
  EXPECT_EQ(*ParseFormat("json", allowed), Format::kJson);
  const auto wrong = ParseFormat("jsno", allowed);
  EXPECT_EQ(ExitCodeOf(wrong.status()), kExitUsage);
  EXPECT_NE(wrong.status().message().find("did you mean \"json\""), absl::string_view::npos);
  EXPECT_FALSE(ParseFormat("wide", allowed).ok());
}

TEST(JsonToYaml, KeepsKeyOrderAndQuotesWhatYamlWouldReadAsSomethingElse) {
  const std::string yaml = JsonToYaml(
      R"({"b": "17", "a": [1, true, null], "empty": [], "text": "plain words", "odd": "no"})");
  EXPECT_EQ(yaml,
            "b: \"17\"\n"
            "a:\n"
            "  - 1\n"
            "  - true\n"
            "  - ~\n"
            "empty: []\n"
            "text: plain words\n"
            "odd: \"no\"\n");
}

}  // namespace
}  // namespace engram::ctl
