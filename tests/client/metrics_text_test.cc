#include "client/metrics_text.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace engram::client {
namespace {

constexpr auto kStream = static_cast<std::size_t>(FabricKind::kStream);
constexpr auto kOk = static_cast<std::size_t>(ReadStatus::kOk);

TableNumbers Numbers(const std::string& table) {
  TableNumbers numbers;
  numbers.pool = "127.0.0.1:7700";
  numbers.table = table;
  numbers.map_epoch = Epoch(7);
  return numbers;
}

// Series -> value; a series that stands twice fails.
std::map<std::string, double> Read(const std::string& text) {
  std::map<std::string, double> series;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.rfind(' ');
    EXPECT_TRUE(series.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << line;
  }
  return series;
}

TEST(MetricsTextTest, CountsStandUnderTheirNamesAndLabels) {
  TableNumbers numbers = Numbers("a@1");
  numbers.totals.rows[kStream][kOk] = 12'345'678'901;
  numbers.totals.layers_late = 2;
  numbers.totals.rows_late = 48;
  numbers.totals.cache_hits = 5;
  const auto series = Read(MetricsText({&numbers, 1}));
  const std::string of = "pool=\"127.0.0.1:7700\",table=\"a@1\"";
  EXPECT_EQ(series.at("engram_client_rows_total{" + of + ",fabric=\"stream\",outcome=\"ok\"}"),
            12'345'678'901.0);
  EXPECT_EQ(series.at("engram_client_rows_total{" + of + ",fabric=\"mapped\",outcome=\"ok\"}"), 0);
  EXPECT_EQ(series.at("engram_prefetch_layers_total{" + of + ",outcome=\"late\"}"), 2);
  EXPECT_EQ(series.at("engram_rows_late_total{" + of + "}"), 48);
  EXPECT_EQ(series.at("engram_client_cache_rows_total{" + of + ",result=\"hit\"}"), 5);
  EXPECT_EQ(series.at("engram_map_epoch{" + of + "}"), 7);
}

TEST(MetricsTextTest, AHistogramIsCumulativeAndEndsAtInfinity) {
  TableNumbers numbers = Numbers("a@1");
  numbers.totals.read_seconds[kStream][0] = 3;
  numbers.totals.read_seconds[kStream][kReadSecondsBuckets - 1] = 4;
  numbers.totals.read_ns_sum[kStream] = 1'500'000'000;
  const auto series = Read(MetricsText({&numbers, 1}));
  const std::string of = "{pool=\"127.0.0.1:7700\",table=\"a@1\",fabric=\"stream\"";
  EXPECT_EQ(series.at("engram_client_read_seconds_bucket" + of + ",le=\"2.56e-07\"}"), 3);
  EXPECT_EQ(series.at("engram_client_read_seconds_bucket" + of + ",le=\"+Inf\"}"), 7);
  EXPECT_EQ(series.at("engram_client_read_seconds_count" + of + "}"), 7);
  EXPECT_EQ(series.at("engram_client_read_seconds_sum" + of + "}"), 1.5);
}

TEST(MetricsTextTest, AFamilyIsDeclaredOnceAndTablesOfOneNameAreOneSeries) {
  std::vector<TableNumbers> tables = {Numbers("a@1"), Numbers("b@1"), Numbers("a@1")};
  tables[0].totals.duplicates = 1;
  tables[1].totals.duplicates = 10;
  tables[2].totals.duplicates = 100;
  const std::string text = MetricsText(tables);
  const auto series = Read(text);
  EXPECT_EQ(series.at("engram_client_duplicates_total{pool=\"127.0.0.1:7700\",table=\"a@1\"}"),
            101);
  EXPECT_EQ(series.at("engram_client_duplicates_total{pool=\"127.0.0.1:7700\",table=\"b@1\"}"), 10);
  std::set<std::string> declared;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE", 0) != 0) continue;
    EXPECT_TRUE(declared.insert(line).second) << line;
  }
  EXPECT_GT(declared.size(), 10u);
}

TEST(MetricsTextTest, LabelsAreEscaped) {
  TableNumbers numbers = Numbers("a@1");
  numbers.pool = "odd\"\\\n";
  const std::string text = MetricsText({&numbers, 1});
  EXPECT_NE(text.find("pool=\"odd\\\"\\\\\\n\""), std::string::npos) << text.substr(0, 300);
}

TEST(MetricsTextTest, WithoutTablesFamiliesAreDeclaredAllTheSame) {
  EXPECT_TRUE(Read(MetricsText({})).empty());
  EXPECT_NE(MetricsText({}).find("# TYPE engram_client_rows_total counter"), std::string::npos);
}

}  // namespace
}  // namespace engram::client
