// What the command line reads: nouns, names, number lists, ages.
#include <gtest/gtest.h>

#include "client/ctl/known_table.h"
#include "client/ctl/nouns.h"
#include "client/ctl/number_list.h"
#include "client/ctl/outcome.h"
#include "client/ctl/units.h"

namespace engram::ctl {
namespace {

TEST(Nouns, TakeSingularAndPluralAndSuggest) {
  const std::vector<Noun> all{Noun::kTable, Noun::kNode};
  EXPECT_EQ(*ParseNoun("table", all), Noun::kTable);
  EXPECT_EQ(*ParseNoun("nodes", all), Noun::kNode);
  const auto wrong = ParseNoun("tabel", all);
  EXPECT_EQ(ExitCodeOf(wrong.status()), kExitUsage);
  EXPECT_NE(wrong.status().message().find("did you mean \"table\""), absl::string_view::npos);
  EXPECT_FALSE(ParseNoun("shards", all).ok());
}

TEST(Nouns, NamesOfTablesAndShards) {
  EXPECT_EQ(ParseTable("small@1")->Full(), "small@1");
  EXPECT_EQ(ExitCodeOf(ParseTable("small").status()), kExitUsage);
  const auto shard = ParseShard("deepseek-v4.1@2/17");
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->table.Full(), "deepseek-v4.1@2");
  EXPECT_EQ(shard->shard.value(), 17u);
  EXPECT_FALSE(ParseShard("small@1").ok());
  EXPECT_FALSE(ParseShard("small@1/x").ok());
}

TEST(NumberList, TakesTheWholeRangeAndNamesTheBadEntry) {
  EXPECT_EQ(*ParseTokens("--tokens", "1,-5,9223372036854775807"),
            (std::vector<std::int64_t>{1, -5, 9223372036854775807}));
  EXPECT_EQ(ParseRows("--rows", "18446744073709551615")->front(), 18446744073709551615u);
  for (const char* bad : {"1,,2", "", "9223372036854775808", "1,x"}) {
    const auto tokens = ParseTokens("--tokens", bad);
    EXPECT_EQ(ExitCodeOf(tokens.status()), kExitUsage) << bad;
  }
  EXPECT_NE(ParseRows("--rows", "0,-1").status().message().find("entry 1 is \"-1\""),
            absl::string_view::npos);
}

TEST(Position, CountsFromBothEnds) {
  const std::vector<std::int64_t> tokens{10, 20, 30};
  EXPECT_EQ(*UpTo(tokens, -1), tokens);
  EXPECT_EQ(*UpTo(tokens, 0), (std::vector<std::int64_t>{10}));
  EXPECT_EQ(*UpTo(tokens, -2), (std::vector<std::int64_t>{10, 20}));
  EXPECT_EQ(ExitCodeOf(UpTo(tokens, 3).status()), kExitUsage);
  EXPECT_EQ(ExitCodeOf(UpTo(tokens, -4).status()), kExitUsage);
}

TEST(Units, ForPeople) {
  EXPECT_EQ(HumanAge(0, 5), "-");
  EXPECT_EQ(HumanAge(1'000, 9'000), "8s");
  EXPECT_EQ(HumanAge(1, 300'001), "5m");
  EXPECT_EQ(HumanAge(1, 3 * 3'600'000 + 1), "3h");
  EXPECT_EQ(HumanAge(1, std::int64_t{12} * 86'400'000 + 1), "12d");
  EXPECT_EQ(HumanCount(384'006'168), "384,006,168");
  EXPECT_EQ(HumanCount(7), "7");
  EXPECT_EQ(HumanTime(1'764'432'312'000), "2025-11-29 16:05:12 UTC");
}

}  // namespace
}  // namespace engram::ctl
