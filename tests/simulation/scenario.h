// One simulated history: two nodes, two clients and a controller live through what a seed holds for
// them (loads and deletes; crashes, stops, cuts, resets), then heal and must serve again. The same
// options give the same history.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/protocol_switches.h"
#include "tests/simulation/cluster.h"

namespace engram::simulation {

enum class Seals : std::uint8_t { kAsTheSeedSays, kAlways, kNever };

struct ScenarioOptions {
  std::uint64_t seed = 1;
  Seals seals = Seals::kAsTheSeedSays;
  client::ProtocolSwitches switches;
};

struct ScenarioOutcome {
  std::vector<std::string> failures;
  Results results;
};

ScenarioOutcome RunScenario(const ScenarioOptions& options);

}  // namespace engram::simulation
