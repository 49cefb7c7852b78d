// Each rule of the lease protocol (ARCHITECTURE section 4) taken away: the simulation must find
// what goes wrong without it, or it could not be trusted with the rule in force. docs/safety.md
// names these tests rule by rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/simulation/scenario.h"
#include "tests/simulation/seeds.h"

namespace engram::simulation {
namespace {

// A small pool is busiest.
ScenarioOptions Small(std::uint64_t seed, TroubleSet drawn) {
  ScenarioOptions options;
  options.seed = seed;
  options.drawn = drawn;
  options.nodes = 3;
  options.clients = options.tables = 2;
  return options;
}

struct Broken {
  const char* rule;
  Rules rules;
  TroubleSet drawn;  // what the rule is for
  bool lost_updates = false;
};

constexpr TroubleSet kOperator =
    Only(Trouble::kDelete) | Only(Trouble::kMove) | Only(Trouble::kIntent);

Broken Without(const char* rule, TroubleSet drawn, void (*change)(Rules&)) {
  Broken broken{rule, {}, drawn | kOperator, false};
  change(broken.rules);
  return broken;
}

Broken MissingRevisionsAccepted() {
  Broken broken = Without("1", Only(Trouble::kStopClient),
                          [](Rules& rules) { rules.client.refuse_missing_revisions = false; });
  broken.lost_updates = true;
  return broken;
}
Broken LeaseCountedFromTheAnswer() {
  return Without(
      "2", Only(Trouble::kSlowAnswers) | Only(Trouble::kCutClient) | Only(Trouble::kStopClient),
      [](Rules& rules) { rules.client.count_lease_from_request = false; });
}
Broken ReuseWithoutWaiting() {
  return Without("3", Only(Trouble::kStopClient),
                 [](Rules& rules) { rules.node.wait_for_sessions = false; });
}
Broken AckBeforeRoutesChanged() {
  return Without("3a", Only(Trouble::kStopClient),
                 [](Rules& rules) { rules.client.change_routes_before_ack = false; });
}
Broken AckBeforeReadsEnded() {
  return Without("3b", kEveryTrouble,
                 [](Rules& rules) { rules.client.wait_for_started_reads = false; });
}
Broken BrokenSessionForgotten() {
  return Without("3c", Only(Trouble::kResetSessions) | Only(Trouble::kStopClient),
                 [](Rules& rules) { rules.node.keep_lease_of_broken_session = false; });
}
Broken LeaseNotChecked() {
  return Without("4", kEveryTrouble,
                 [](Rules& rules) { rules.client.check_lease_after_completion = false; });
}
Broken RestartsAreTheSame() {
  return Without("6", Only(Trouble::kCrashNode) | Only(Trouble::kIsolateClient),
                 [](Rules& rules) { rules.restarts_are_new = false; });
}

Broken RoutesFollowTheAlias() {
  return Without("7", Only(Trouble::kAlias), [](Rules& rules) { rules.versions_stay = false; });
}

// The first of some seeds that delivers a wrong row of a table without seals; 0: none does.
bool FewSeeds() { return SeedsToRun(100).last < 10; }

std::uint64_t SeedWithAWrongRow(const Broken& broken) {
  constexpr std::uint64_t kMostSeeds = 400;
  for (std::uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    ScenarioOptions options = Small(seed, broken.drawn);
    options.seals = Seals::kNever;
    options.rules = broken.rules;
    options.lost_updates = broken.lost_updates;
    const ScenarioOutcome outcome = RunScenario(options);
    if (outcome.results.rows_wrong == 0) continue;
    options.rules = {};
    const ScenarioOutcome with = RunScenario(options);
    EXPECT_EQ(with.results.rows_wrong, 0u) << "with every rule in force";
    std::printf("without rule %s seed %llu: %s\n", broken.rule,
                static_cast<unsigned long long>(seed), outcome.failures.front().c_str());
    return seed;
  }
  return 0;
}

class RuleTest : public testing::TestWithParam<Broken (*)()> {};

TEST_P(RuleTest, WithoutItAWrongRowIsFound) {
  if (FewSeeds()) GTEST_SKIP() << "searching takes many seeds";
  EXPECT_NE(SeedWithAWrongRow(GetParam()()), 0u);
}

TEST_P(RuleTest, WithoutItSealsCatchEveryWrongRow) {
  const Broken broken = GetParam()();
  const std::uint64_t seeds = FewSeeds() ? 1 : 6;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    ScenarioOptions options = Small(seed, broken.drawn);
    options.seals = Seals::kAlways;
    options.rules = broken.rules;
    options.lost_updates = broken.lost_updates;
    const ScenarioOutcome outcome = RunScenario(options);
    EXPECT_EQ(outcome.results.rows_wrong, 0u) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Simulation, RuleTest,
                         testing::Values(&MissingRevisionsAccepted, &LeaseCountedFromTheAnswer,
                                         &ReuseWithoutWaiting, &AckBeforeRoutesChanged,
                                         &AckBeforeReadsEnded, &BrokenSessionForgotten,
                                         &LeaseNotChecked, &RestartsAreTheSame,
                                         &RoutesFollowTheAlias),
                         [](const auto& one) { return "Rule" + std::string(one.param().rule); });

// Rule 3 (c), its other half: it keeps nobody from a wrong row, but retirement from never ending.
ScenarioOptions WithHungClients(std::uint64_t seed, bool rule) {
  ScenarioOptions options = Small(seed, kOperator);
  options.hung_releases = true;
  options.rules.node.hold_lease_while_unapplied = rule;
  return options;
}

TEST(SimulationRules, ARetirementEndsAlthoughAClientNeverLetsGo) {
  const Seeds seeds = SeedsToRun(5);
  for (std::uint64_t seed = seeds.first; seed <= std::min<std::uint64_t>(seeds.last, 5); ++seed) {
    const ScenarioOutcome outcome = RunScenario(WithHungClients(seed, true));
    EXPECT_TRUE(outcome.failures.empty()) << seed << ": " << outcome.failures.front();
    EXPECT_GT(outcome.results.retired, 0u);
  }
}

TEST(SimulationRules, ARetirementNeverEndsWhenTheLeaseOfSuchAClientIsExtended) {
  const ScenarioOutcome outcome = RunScenario(WithHungClients(1, false));
  ASSERT_FALSE(outcome.failures.empty());
  EXPECT_NE(outcome.failures.front().find("still retiring"), std::string::npos)
      << outcome.failures.front();
}

// Rule 8: a controller that was replaced and does not know it must not be obeyed. Without the rule
// no reader sees a wrong row, because rule 3 holds whoever asks, but replicas go that the map says
// are served.
ScenarioOptions WithTwoControllers(std::uint64_t seed, bool rule) {
  ScenarioOptions options =
      Small(seed, Only(Trouble::kTakeover) | Only(Trouble::kResetLink) | kOperator);
  options.elects = false;  // an election would let only one of them act
  options.rules.node.refuse_older_tokens = rule;
  return options;
}

// The first seed whose history, with the rule off, comes to what the rule is for.
void ExpectFound(ScenarioOptions (*history)(std::uint64_t seed, bool rule),
                 bool (*found)(const ScenarioOutcome&)) {
  if (FewSeeds()) GTEST_SKIP() << "searching takes many seeds";
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const ScenarioOutcome outcome = RunScenario(history(seed, false));
    EXPECT_EQ(outcome.results.rows_wrong, 0u);
    if (outcome.failures.empty() || !found(outcome)) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                outcome.failures.front().c_str());
    return;
  }
  ADD_FAILURE() << "no seed found what the rule is for";
}

// With the rule in force nothing fails; what the histories had in them.
Results ExpectSound(ScenarioOptions (*history)(std::uint64_t seed, bool rule)) {
  Results all;
  const Seeds seeds = SeedsToRun(10);
  for (std::uint64_t seed = seeds.first; seed <= std::min<std::uint64_t>(seeds.last, 10); ++seed) {
    const ScenarioOutcome outcome = RunScenario(history(seed, true));
    EXPECT_TRUE(outcome.failures.empty()) << seed << ": " << outcome.failures.front();
    all += outcome.results;
  }
  return all;
}

// Rule 1: an update of grants that is lost ends the session, and everything else goes on.
ScenarioOptions WithLostUpdates(std::uint64_t seed, bool) {
  ScenarioOptions options = Small(seed, kOperator);
  options.lost_updates = true;
  return options;
}

TEST(SimulationRules, AnUpdateThatIsLostEndsItsSessionAndNothingElse) {
  EXPECT_GT(ExpectSound(&WithLostUpdates).updates_lost, 0u);
}

// Rule 3 (d): what the node reads itself.
ScenarioOptions WithOwnReads(std::uint64_t seed, bool rule) {
  ScenarioOptions options = Small(seed, kOperator);
  options.rules.node.count_own_reads = rule;
  return options;
}

TEST(SimulationRules, ANodeReusesWhatItReadsItselfWhenItsOwnReadsDoNotCount) {
  ExpectFound(&WithOwnReads, [](const ScenarioOutcome& outcome) {
    return outcome.failures.front().find("reading itself") != std::string::npos;
  });
}

bool RetiredWhileMapped(const ScenarioOutcome& outcome) {
  return outcome.results.retired_while_mapped > 0;
}

TEST(SimulationRules, AReplicaThatTheMapServesIsRetiredWhenOlderTokensAreObeyed) {
  ExpectFound(&WithTwoControllers, &RetiredWhileMapped);
}

TEST(SimulationRules, AControllerThatWasReplacedIsNotObeyed) {
  const auto seen = ExpectSound(&WithTwoControllers).takeovers;
  EXPECT_TRUE(seen > 0 || FewSeeds()) << "it never came to that";
}

// Rule 8: a command for another incarnation. Streams end with the process that it was sent to, so
// the world has to carry it to the next one.
ScenarioOptions WithLateCommands(std::uint64_t seed, bool rule) {
  ScenarioOptions options =
      Small(seed, Only(Trouble::kLateCommands) | Only(Trouble::kCrashNode) | kOperator);
  options.rules.node.refuse_other_incarnations = rule;
  return options;
}

TEST(SimulationRules, AReplicaThatTheMapServesIsRetiredWhenCommandsForAnotherProcessAreObeyed) {
  ExpectFound(&WithLateCommands, &RetiredWhileMapped);
}

TEST(SimulationRules, ACommandForAnotherProcessIsNotObeyed) {
  const auto seen = ExpectSound(&WithLateCommands).late_commands;
  EXPECT_TRUE(seen > 0 || FewSeeds()) << "it never came to that";
}

// Rule 8: an older process of a node that was stopped, replaced and woken.
ScenarioOptions WithSecondProcesses(std::uint64_t seed, bool rule) {
  ScenarioOptions options = Small(seed, Only(Trouble::kSecondProcess) | kOperator);
  options.rules.node.exit_when_replaced = rule;
  return options;
}

TEST(SimulationRules, TwoProcessesOfANodeLiveOnWhenNoneNeedExit) {
  ExpectFound(&WithSecondProcesses, [](const ScenarioOutcome& outcome) {
    return outcome.failures.front().find("two processes") != std::string::npos;
  });
}

TEST(SimulationRules, AProcessThatWasReplacedExits) {
  const auto seen = ExpectSound(&WithSecondProcesses).replaced;
  EXPECT_TRUE(seen > 0 || FewSeeds()) << "it never came to that";
}

// The election, whose lease is counted as those of readers are (rule 2).
ScenarioOptions WithElections(std::uint64_t seed, bool rule) {
  ScenarioOptions options =
      Small(seed, Only(Trouble::kTakeover) | Only(Trouble::kStopController) |
                      Only(Trouble::kCrashController) | Only(Trouble::kStore) | kOperator);
  options.elects = true;
  options.rules.controller.count_lease_from_request = rule;
  return options;
}

TEST(SimulationRules, TwoControllersHoldTheLeaseWhenItIsCountedFromTheAnswer) {
  ExpectFound(&WithElections, [](const ScenarioOutcome& outcome) {
    return outcome.failures.front().find("hold the lease") != std::string::npos;
  });
}

TEST(SimulationRules, OneControllerHoldsTheLease) {
  const auto seen = ExpectSound(&WithElections).takeovers;
  EXPECT_TRUE(seen > 0 || FewSeeds()) << "it never came to that";
}

// A client that is revoked keeps the keys that it was told: they must be worth nothing after its
// lease and margin.
ScenarioOptions WithRevocations(std::uint64_t seed, bool rule) {
  ScenarioOptions options = Small(seed, Only(Trouble::kRevoke));
  options.rules.node.renew_keys_of_revoked = rule;
  return options;
}

TEST(SimulationRules, ARevokedClientKeepsItsKeysWhenNothingIsRegisteredAnew) {
  std::uint64_t left = 0;
  for (std::uint64_t seed = 1; seed <= 5 && left == 0; ++seed) {
    left += RunScenario(WithRevocations(seed, false)).results.keys_left;
  }
  EXPECT_GT(left, 0u);
}

TEST(SimulationRules, NoKeyOfARevokedClientIsLeftAfterItsLease) {
  const Results all = ExpectSound(&WithRevocations);
  EXPECT_GT(all.revoked, 0u);
  EXPECT_GT(all.keys_taken, 0u);
  EXPECT_EQ(all.keys_left, 0u);
}

}  // namespace
}  // namespace engram::simulation
