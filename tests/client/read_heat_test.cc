#include "client/read_heat.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engram/random.h"

namespace engram::client {
namespace {

void CountNgram(ReadHeat& heat, std::uint64_t first) {
  ASSERT_TRUE(heat.BeginNgrams());
  const RowId rows[] = {RowId(first), RowId(first + 1), RowId(first + 2)};
  heat.CountNgram(rows);
  heat.EndNgrams();
}

TEST(ReadHeatTest, OneRequestInEightIsCountedEightfold) {
  ReadHeat heat(4);
  heat.CountRow(ShardIndex(2));
  std::vector<std::uint64_t> shards;
  std::vector<ReadHeat::Ngram> ngrams;
  heat.Take(&shards, &ngrams);
  EXPECT_EQ(shards, (std::vector<std::uint64_t>{0, 0, 8, 0}));
}

TEST(ReadHeatTest, RequestsThatTakeTurnsAreCountedAlike) {
  ReadHeat heat(1);
  int sampled[2] = {0, 0};
  for (int i = 0; i < 160'000; ++i) sampled[i % 2] += heat.Sampled();
  EXPECT_NEAR(sampled[0], 10'000, 500);
  EXPECT_NEAR(sampled[1], 10'000, 500);
}

TEST(ReadHeatTest, TakeGivesWhatCameSinceTheLastAndAddsUp) {
  ReadHeat heat(2), other(2);
  std::vector<std::uint64_t> shards;
  std::vector<ReadHeat::Ngram> ngrams;
  heat.CountRow(ShardIndex(0));
  CountNgram(heat, 5);
  heat.Take(&shards, &ngrams);
  other.CountRow(ShardIndex(0));
  other.Take(&shards, &ngrams);
  EXPECT_EQ(shards[0], 16u);
  ASSERT_EQ(ngrams.size(), 1u);
  EXPECT_EQ(ngrams[0].rows.size(), 3u);
  shards.clear();
  ngrams.clear();
  heat.Take(&shards, &ngrams);
  EXPECT_EQ(shards[0], 0u);
  EXPECT_TRUE(ngrams.empty());
}

TEST(ReadHeatTest, AHotNgramIsFoundAmongManyColdOnesAndItsCountIsNotTooLow) {
  ReadHeat heat(1);
  SeededRandom random(1);
  for (int i = 0; i < 20'000; ++i) {
    CountNgram(heat, 1'000 + random.Next() % 1'000'000);
    if (i % 50 == 0) CountNgram(heat, 7);
  }
  std::vector<std::uint64_t> shards;
  std::vector<ReadHeat::Ngram> ngrams;
  heat.Take(&shards, &ngrams);
  EXPECT_LE(ngrams.size(), ReadHeat::kSets * ReadHeat::kWays);
  const auto hot = std::find_if(ngrams.begin(), ngrams.end(),
                                [](const auto& one) { return one.rows[0] == RowId(7); });
  ASSERT_NE(hot, ngrams.end());
  EXPECT_GE(hot->reads, 400u * ReadHeat::kSampleEvery);
  EXPECT_LE(hot->reads - hot->error, 400u * ReadHeat::kSampleEvery);
}

TEST(ReadHeatTest, NgramsOfTooManyRowsAreLeftOut) {
  ReadHeat heat(1);
  const std::vector<RowId> rows(ReadHeat::kMostRows + 1, RowId(3));
  ASSERT_TRUE(heat.BeginNgrams());
  heat.CountNgram(rows);
  heat.EndNgrams();
  std::vector<std::uint64_t> shards;
  std::vector<ReadHeat::Ngram> ngrams;
  heat.Take(&shards, &ngrams);
  EXPECT_TRUE(ngrams.empty());
}

}  // namespace
}  // namespace engram::client
