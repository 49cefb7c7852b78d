// The lease protocol under everything that a seed can throw at it. A failure prints the line that
// replays it: ENGRAM_SIM_SEED=N runs that seed alone, ENGRAM_SIM_TRACE=1 prints its history.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/simulation/scenario.h"
#include "tests/simulation/seeds.h"

namespace engram::simulation {
namespace {

std::string Replay(std::uint64_t seed) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return "replay: ENGRAM_SIM_SEED=" + std::to_string(seed) +
         " ENGRAM_SIM_TRACE=1 build/bin/engram_simulation_test --gtest_filter=" +
         test->test_suite_name() + "." + test->name();
}

// How many of the seeds deliver a wrong row.
std::uint64_t SeedsWithAWrongRow(std::uint64_t count, Seals seals, const Rules& rules) {
  const Seeds seeds = SeedsToRun(count);
  std::uint64_t found = 0;
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const ScenarioOutcome outcome = RunScenario({.seed = seed, .seals = seals, .rules = rules});
    if (outcome.results.rows_wrong == 0) continue;
    ++found;
  }
  return found;
}

TEST(Simulation, DeliversNoWrongRowAndServesAgainAfterEveryTrouble) {
  const Seeds seeds = SeedsToRun(150);
  Results all;
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const ScenarioOutcome outcome = RunScenario({.seed = seed});
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
    EXPECT_GT(all.takeovers, 0u);
  }
  std::printf(
      "%llu seeds: %llu steps, %llu rows right, %llu failed, %llu hedged, %llu joined, %llu "
      "cached, "
      "%llu replicas retired, %llu pulled, %llu moved, %llu repaired; %llu drains, %llu bits "
      "flipped, %llu withdrawn, %llu takeovers\n",
      static_cast<unsigned long long>(seeds.last - seeds.first + 1),
      static_cast<unsigned long long>(all.requests),
      static_cast<unsigned long long>(all.rows_right),
      static_cast<unsigned long long>(all.rows_failed), static_cast<unsigned long long>(all.hedges),
      static_cast<unsigned long long>(all.joined), static_cast<unsigned long long>(all.cached),
      static_cast<unsigned long long>(all.retired), static_cast<unsigned long long>(all.pulled),
      static_cast<unsigned long long>(all.moved), static_cast<unsigned long long>(all.repaired),
      static_cast<unsigned long long>(all.drained), static_cast<unsigned long long>(all.flipped),
      static_cast<unsigned long long>(all.withdrawn),
      static_cast<unsigned long long>(all.takeovers));
}

TEST(Simulation, OneSeedIsOneHistory) {
  const ScenarioOutcome one = RunScenario({.seed = 7});
  const ScenarioOutcome two = RunScenario({.seed = 7});
  EXPECT_EQ(one.results.requests, two.results.requests);
  EXPECT_EQ(one.results.rows_right, two.results.rows_right);
  EXPECT_EQ(one.results.rows_failed, two.results.rows_failed);
  EXPECT_EQ(one.results.retired, two.results.retired);
}

TEST(Simulation, NeedsNoSealsToBeRight) {
  EXPECT_EQ(SeedsWithAWrongRow(20, Seals::kNever, {}), 0u);
}

}  // namespace
}  // namespace engram::simulation
