// The lease protocol under everything that a seed can throw at it. A failure prints the line that
// replays it: ENGRAM_SIM_SEED=N runs that seed alone, ENGRAM_SIM_TRACE=1 prints its history.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/simulation/scenario.h"

namespace engram::simulation {
namespace {

// ENGRAM_SIM_SEED: only this seed. ENGRAM_SIM_SEEDS: so many instead of the default.
struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t last = 0;
};
Seeds SeedsToRun(std::uint64_t count) {
  if (const char* one = std::getenv("ENGRAM_SIM_SEED")) {
    const std::uint64_t seed = std::strtoull(one, nullptr, 10);
    return {seed, seed};
  }
  if (const char* many = std::getenv("ENGRAM_SIM_SEEDS")) {
    count = std::strtoull(many, nullptr, 10);
  }
  return {1, count};
}

std::string Replay(std::uint64_t seed) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return "replay: ENGRAM_SIM_SEED=" + std::to_string(seed) +
         " ENGRAM_SIM_TRACE=1 build/bin/engram_simulation_test --gtest_filter=" +
         test->test_suite_name() + "." + test->name();
}

// How many of the seeds deliver a wrong row.
std::uint64_t SeedsWithAWrongRow(std::uint64_t count, Seals seals,
                                 const client::ProtocolSwitches& switches) {
  const Seeds seeds = SeedsToRun(count);
  std::uint64_t found = 0;
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const ScenarioOutcome outcome = RunScenario({seed, seals, switches});
    if (outcome.results.rows_wrong == 0) continue;
    ++found;
  }
  return found;
}

// Whether one of the seeds does; the search ends with the first, however few seeds are asked for.
bool AnySeedDeliversAWrongRow(const client::ProtocolSwitches& switches) {
  constexpr std::uint64_t kMostSeeds = 60;
  const char* one = std::getenv("ENGRAM_SIM_SEED");
  const Seeds seeds = one != nullptr ? SeedsToRun(1) : Seeds{1, kMostSeeds};
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const ScenarioOutcome outcome = RunScenario({seed, Seals::kNever, switches});
    if (outcome.results.rows_wrong == 0) continue;
    if (one != nullptr) std::printf("%s\n", outcome.failures.front().c_str());
    return true;
  }
  return false;
}

TEST(Simulation, DeliversNoWrongRowAndServesAgainAfterEveryTrouble) {
  const Seeds seeds = SeedsToRun(200);
  Results all;
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const ScenarioOutcome outcome = RunScenario({seed, Seals::kAsTheSeedSays, {}});
    all += outcome.results;
    for (const std::string& failure : outcome.failures) {
      ADD_FAILURE() << failure << "\n" << Replay(seed);
    }
  }
  // A history in which nothing was read or retired proves nothing.
  EXPECT_GT(all.rows_right, 1'000 * (seeds.last - seeds.first + 1));
  EXPECT_GT(all.retired, seeds.last - seeds.first);
  EXPECT_GT(all.hedges, seeds.last - seeds.first);
  EXPECT_GT(all.joined, 0u);
  EXPECT_GT(all.cached, seeds.last - seeds.first);
  EXPECT_GT(all.pulled, 2 * (seeds.last - seeds.first));
  EXPECT_GT(all.moved, 2 * (seeds.last - seeds.first));
  if (seeds.last > seeds.first + 10) {
    EXPECT_GT(all.repaired, 0u);
    EXPECT_GT(all.flipped, 0u);
    EXPECT_GT(all.withdrawn, 0u);
  }
  std::printf(
      "%llu seeds: %llu steps, %llu rows right, %llu failed, %llu hedged, %llu joined, %llu "
      "cached, "
      "%llu replicas retired, %llu pulled, %llu moved, %llu repaired; %llu drains, %llu bits "
      "flipped, %llu withdrawn\n",
      static_cast<unsigned long long>(seeds.last - seeds.first + 1),
      static_cast<unsigned long long>(all.requests),
      static_cast<unsigned long long>(all.rows_right),
      static_cast<unsigned long long>(all.rows_failed), static_cast<unsigned long long>(all.hedges),
      static_cast<unsigned long long>(all.joined), static_cast<unsigned long long>(all.cached),
      static_cast<unsigned long long>(all.retired), static_cast<unsigned long long>(all.pulled),
      static_cast<unsigned long long>(all.moved), static_cast<unsigned long long>(all.repaired),
      static_cast<unsigned long long>(all.drained), static_cast<unsigned long long>(all.flipped),
      static_cast<unsigned long long>(all.withdrawn));
}

TEST(Simulation, OneSeedIsOneHistory) {
  const ScenarioOutcome one = RunScenario({7, Seals::kAsTheSeedSays, {}});
  const ScenarioOutcome two = RunScenario({7, Seals::kAsTheSeedSays, {}});
  EXPECT_EQ(one.results.requests, two.results.requests);
  EXPECT_EQ(one.results.rows_right, two.results.rows_right);
  EXPECT_EQ(one.results.rows_failed, two.results.rows_failed);
  EXPECT_EQ(one.results.retired, two.results.retired);
}

TEST(Simulation, NeedsNoSealsToBeRight) {
  EXPECT_EQ(SeedsWithAWrongRow(30, Seals::kNever, {}), 0u);
}

TEST(Simulation, FindsTheWrongRowWhenAClientAcksBeforeItsReadsEnded) {
  client::ProtocolSwitches switches;
  switches.wait_for_started_reads = false;
  EXPECT_TRUE(AnySeedDeliversAWrongRow(switches));
}

TEST(Simulation, FindsTheWrongRowWhenTheLeaseIsNotCheckedAfterTheLastCompletion) {
  client::ProtocolSwitches switches;
  switches.check_lease_after_completion = false;
  EXPECT_TRUE(AnySeedDeliversAWrongRow(switches));
}

TEST(Simulation, SealsCatchWhatTheProtocolLetsThrough) {
  client::ProtocolSwitches early_ack;
  early_ack.wait_for_started_reads = false;
  EXPECT_EQ(SeedsWithAWrongRow(20, Seals::kAlways, early_ack), 0u);
  client::ProtocolSwitches no_lease_check;
  no_lease_check.check_lease_after_completion = false;
  EXPECT_EQ(SeedsWithAWrongRow(20, Seals::kAlways, no_lease_check), 0u);
}

}  // namespace
}  // namespace engram::simulation
