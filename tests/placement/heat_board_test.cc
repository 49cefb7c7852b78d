#include "placement/heat/heat_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace engram::placement {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;

TableUid Uid(std::uint8_t n) {
  TableUid uid;
  uid.bytes[0] = n;
  return uid;
}

HeatReport Report(std::uint64_t sequence, std::uint64_t rows, const std::string& client = "c") {
  return {client, "default", 7, sequence, {{Uid(1), 4, {{2, rows}}, {{{10, 11}, 5.0}}}}};
}

class HeatBoardTest : public ::testing::Test {
 protected:
  // `rows` every second for so long.
  void Read(Duration time, std::uint64_t rows) {
    for (Duration t{}; t < time; t += seconds(1)) {
      now_ += seconds(1);
      ASSERT_TRUE(board_.Take(now_, Report(++sequence_, rows)).ok());
    }
  }

  HeatBoard board_{minutes(1)};
  Instant now_{seconds(1'000)};
  std::uint64_t sequence_ = 0;
};

TEST_F(HeatBoardTest, NothingIsKnownOfWhatNobodyReported) {
  EXPECT_TRUE(board_.Shards(now_, Uid(1)).empty());
  EXPECT_TRUE(board_.Ngrams(now_, Uid(1), 10).empty());
  EXPECT_EQ(board_.ReadsPerSecond(now_), 0);
}

TEST_F(HeatBoardTest, AConstantRateIsSeenFromTheStart) {
  Read(seconds(5), 300);
  EXPECT_NEAR(board_.Shards(now_, Uid(1))[2], 300, 60);
  Read(minutes(5), 300);
  EXPECT_NEAR(board_.Shards(now_, Uid(1))[2], 300, 10);
  EXPECT_EQ(board_.Shards(now_, Uid(1))[0], 0);
  EXPECT_NEAR(board_.ReadsPerSecond(now_), 300, 10);
}

TEST_F(HeatBoardTest, WhatIsNoLongerReadCountsHalfAfterAHalfLife) {
  Read(minutes(5), 300);
  const double before = board_.Shards(now_, Uid(1))[2];
  EXPECT_NEAR(board_.Shards(now_ + minutes(1), Uid(1))[2], before / 2, before / 20);
}

TEST_F(HeatBoardTest, ClientsAreSummed) {
  for (int i = 1; i <= 300; ++i) {
    now_ += seconds(1);
    ASSERT_TRUE(board_.Take(now_, Report(static_cast<std::uint64_t>(i), 100, "a")).ok());
    ASSERT_TRUE(board_.Take(now_, Report(static_cast<std::uint64_t>(i), 200, "b")).ok());
  }
  EXPECT_NEAR(board_.Shards(now_, Uid(1))[2], 300, 10);
  const std::vector<ClientReads> clients = board_.Clients(now_);
  ASSERT_EQ(clients.size(), 2u);
  EXPECT_EQ(clients[0].client, "b");
  EXPECT_NEAR(clients[0].reads_per_second, 200, 10);
  EXPECT_EQ(clients[0].processes, 1u);
}

TEST_F(HeatBoardTest, AReportThatComesAgainCountsOnce) {
  Read(minutes(3), 300);
  const double before = board_.Shards(now_, Uid(1))[2];
  ASSERT_TRUE(board_.Take(now_, Report(sequence_, 1'000'000)).ok());
  EXPECT_EQ(board_.Shards(now_, Uid(1))[2], before);
}

TEST_F(HeatBoardTest, AShardThatTheTableDoesNotHaveIsLeftOut) {
  HeatReport report = Report(1, 300);
  report.tables[0].reads.push_back({99, 5});
  ASSERT_TRUE(board_.Take(now_, report).ok());
  EXPECT_EQ(board_.Shards(now_, Uid(1)).size(), 4u);
}

TEST_F(HeatBoardTest, TheHottestNgramsComeFirstAndTheOthersMakeRoom) {
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    now_ += std::chrono::milliseconds(1);
    HeatReport report = Report(i + 1, 1);
    report.tables[0].ngrams = {{{i, i + 1}, 1.0}, {{5, 6, 7}, 3.0}};
    ASSERT_TRUE(board_.Take(now_, report).ok());
  }
  const std::vector<NgramReads> ngrams = board_.Ngrams(now_, Uid(1), 100'000);
  EXPECT_LE(ngrams.size(), 2 * HeatBoard::kMostNgrams);
  EXPECT_THAT(ngrams[0].rows, ElementsAre(5, 6, 7));
  EXPECT_EQ(board_.Ngrams(now_, Uid(1), 3).size(), 3u);
}

TEST_F(HeatBoardTest, RatesSurviveManyHalfLives) {
  for (int i = 1; i <= 2'000; ++i) {
    now_ += minutes(1);
    ASSERT_TRUE(board_.Take(now_, Report(static_cast<std::uint64_t>(i), 6'000)).ok());
  }
  EXPECT_NEAR(board_.Shards(now_ + seconds(30), Uid(1))[2], 100, 20);
}

TEST_F(HeatBoardTest, TooManyClientsAreRefusedAndSilentOnesForgotten) {
  for (std::size_t i = 0; i < HeatBoard::kMostClients; ++i) {
    ASSERT_TRUE(board_.Take(now_, Report(1, 1, "c" + std::to_string(i))).ok());
  }
  EXPECT_EQ(board_.Take(now_, Report(1, 1, "x")).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(board_.Take(now_ + minutes(11), Report(1, 1, "x")).ok());
  EXPECT_EQ(board_.Clients(now_ + minutes(11)).size(), 1u);
}

TEST_F(HeatBoardTest, DeletedTablesAreForgotten) {
  Read(seconds(3), 10);
  board_.Prune([](const TableUid& uid) { return uid != Uid(1); });
  EXPECT_TRUE(board_.Shards(now_, Uid(1)).empty());
}

}  // namespace
}  // namespace engram::placement
