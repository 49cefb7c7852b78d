// The lease protocol under everything that a seed can throw at it. A failure prints the line that
// replays it.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/simulation/scenario.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/shrink.h"

namespace engram::simulation {
namespace {

std::string Replay(std::uint64_t seed) {
  return "replay: ./dev simulate --trace " + Arguments({.seed = seed});
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
  const Seeds seeds = SeedsToRun(200);
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
  if (seeds.last > seeds.first + 30) {
    EXPECT_GT(all.cached, seeds.last - seeds.first);
    EXPECT_GT(all.pulled, seeds.last - seeds.first);
    EXPECT_GT(all.moved, seeds.last - seeds.first);
    EXPECT_GT(all.joined, 0u);
    EXPECT_GT(all.repaired, 0u);
    EXPECT_GT(all.flipped, 0u);
    EXPECT_GT(all.withdrawn, 0u);
    EXPECT_GT(all.takeovers, 0u);
    EXPECT_GT(all.store_troubles, 0u);
    EXPECT_GT(all.rebalanced, 0u);
    EXPECT_GT(all.changed_tier, 0u);
    EXPECT_GT(all.hot_copies, 0u);
    EXPECT_GT(all.aliases_set, 0u);
    EXPECT_GT(all.replaced, 0u);
  }
  for (const NamedCount& one : kCounts) {
    std::printf("%s %llu\n", one.name, static_cast<unsigned long long>(all.*one.count));
  }
}

TEST(Simulation, OneSeedIsOneHistory) {
  const ScenarioOutcome one = RunScenario({.seed = 7});
  const ScenarioOutcome two = RunScenario({.seed = 7});
  EXPECT_EQ(one.results.requests, two.results.requests);
  EXPECT_EQ(one.results.rows_right, two.results.rows_right);
  EXPECT_EQ(one.results.rows_failed, two.results.rows_failed);
  EXPECT_EQ(one.results.retired, two.results.retired);
}

// The shrinker keeps what fails: here everything with a crash of a node in it.
TEST(Simulation, AFailingHistoryIsShrunkToWhatFails) {
  const auto fails = [](const ScenarioOptions& options) {
    return (options.carried_out & Only(Trouble::kCrashNode)) != 0 &&
           options.trouble >= std::chrono::seconds(5) && options.clients != 1;
  };
  const ScenarioOptions least = Shrink({.seed = 7}, fails, 200);
  EXPECT_EQ(least.carried_out, Only(Trouble::kCrashNode));
  EXPECT_GE(least.trouble, std::chrono::seconds(5));
  EXPECT_LT(least.trouble, std::chrono::seconds(7));
  EXPECT_EQ(least.tables, 1u);
  EXPECT_EQ(least.clients, 2u);
  EXPECT_EQ(least.nodes, 2u);
}

TEST(Simulation, AHistoryIsNamedByItsArguments) {
  ScenarioOptions options{.seed = 7};
  options.carried_out &= ~Only(Trouble::kMove);
  options.trouble = std::chrono::milliseconds(4'500);
  options.tables = 1;
  EXPECT_EQ(Arguments(options), "--seed 7 --without move --trouble_ms 4500 --tables 1");
  ScenarioOptions read;
  EXPECT_TRUE(TakeArgument("--without", "move", &read));
  EXPECT_TRUE(TakeArgument("--trouble_ms", "4500", &read));
  EXPECT_EQ(read.carried_out, options.carried_out);
  EXPECT_EQ(read.trouble, options.trouble);
  EXPECT_FALSE(TakeArgument("--without", "moves", &read));
  EXPECT_FALSE(TakeArgument("--nodes", "1", &read));
}

TEST(Simulation, NeedsNoSealsToBeRight) {
  EXPECT_EQ(SeedsWithAWrongRow(20, Seals::kNever, {}), 0u);
}

}  // namespace
}  // namespace engram::simulation
