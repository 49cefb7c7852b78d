// One simulated history: nodes, clients and controllers live through what a seed holds for them
// (loads, deletes, moves and drains; crashes, stops, cuts, resets), then heal and must serve again.
// The same options give the same history.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engram/clock.h"
#include "tests/simulation/cluster.h"

namespace engram::simulation {

enum class Seals : std::uint8_t { kAsTheSeedSays, kAlways, kNever };

// What may go wrong, and what operators do.
enum class Trouble : std::uint8_t {
  kFlipBit,
  kCrashNode,
  kCrashClient,
  kCrashController,
  kStopClient,
  kStopNode,
  kStopController,
  kCutClient,      // from a node
  kCutNode,        // from a controller
  kIsolateClient,  // from every node and controller; its reads go on
  kResetSessions,  // every stream of read sessions of a node
  kResetLink,      // of a node to its controller
  kSlowAnswers,    // what a node says to a client comes late
  // Another controller takes the store; the first one sleeps, or goes on. Where they elect one, the
  // leader is stopped in the middle of something, cut off from the store, or hears from it late.
  kTakeover,
  kStore,          // it fails, and loses answers of what it stored
  kRevoke,         // a client's certificate, for some time; it keeps the keys that it was told
  kOtherCapacity,  // a node that starts again has more or less memory
  kSecondProcess,  // a node is stopped, another process of it starts, the first one wakes
  kLateCommands,   // to nodes come again, to whatever process of the node there is by then
  kIntent,         // a node is drained or cordoned, or that ends
  kMove,
  kDelete,  // of tables; often just before a client stops
  kAlias,   // names another version
};
inline constexpr std::size_t kTroubles = 23;
// For people and command lines, in the order of Trouble.
extern const char* const kTroubleNames[kTroubles];
using TroubleSet = std::uint32_t;  // a bit each
inline constexpr TroubleSet kEveryTrouble = (TroubleSet{1} << kTroubles) - 1;
constexpr TroubleSet Only(Trouble trouble) { return TroubleSet{1} << static_cast<int>(trouble); }

struct ScenarioOptions {
  std::uint64_t seed = 1;
  Seals seals = Seals::kAsTheSeedSays;
  Rules rules = {};
  bool hung_releases = false;
  bool lost_updates = false;  // see Cluster
  // What is drawn from, so that a test can look for something in particular ...
  TroubleSet drawn = kEveryTrouble;
  // ... and what is carried out of what was drawn: leaving one out leaves the others as they are.
  TroubleSet carried_out = kEveryTrouble;
  Duration trouble = std::chrono::seconds(18);  // then it heals
  // 0: as the seed says. Tables: at one time.
  std::size_t nodes = 0, clients = 0, tables = 0;
  std::optional<bool> elects = {};  // whether the controllers elect one; else as the seed says
};

struct ScenarioOutcome {
  std::vector<std::string> failures;
  Results results;
};

ScenarioOutcome RunScenario(const ScenarioOptions& options);

}  // namespace engram::simulation
