// What the simulated processes of one run share: the world, the machines' memory, how to reach each
// other, the truth about every table, and the counts that a run reports. A plain struct.
// Thread-confined: call from the owner thread only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/protocol_switches.h"
#include "engram/shard_layout.h"
#include "engram/synthetic.h"
#include "engram/table_spec.h"
#include "placement/ops/protocol_switches.h"
#include "placement/store/memory_store.h"
#include "poolserver/protocol_switches.h"
#include "tests/simulation/results.h"
#include "tests/simulation/sim_fabric.h"
#include "tests/simulation/world.h"

namespace engram::simulation {

class SimController;
class SimNode;

// Which rules are in force: all of them, except where a test wants to see what comes of it.
struct Rules {
  client::ProtocolSwitches client;
  poolserver::ProtocolSwitches node;
  placement::ProtocolSwitches controller;
  // Rule 6: a node that starts again listens on fresh addresses and makes new keys, and a queue
  // never reads another incarnation than the one that it was opened for.
  bool restarts_are_new = true;
  // Rule 7: a table that is open goes on reading the version that it was opened at, whatever its
  // alias names by now.
  bool versions_stay = true;
};

// NAME@live is what operators let name one version after the other.
inline constexpr char kAlias[] = "live";

struct Cluster {
  World* world = nullptr;
  Rules rules;
  // Adapters of clients that hang: they never say that they have let go of a region.
  bool hung_releases = false;
  // Streams of read sessions lose updates of grants, which those of gRPC never do.
  Instant updates_lost_until{};
  bool calm = false;  // nothing moves for load any more
  // The controllers elect one of them; else the scenario says who takes the store.
  bool elects = false;
  std::uint32_t most_copies = 1;  // of a shard that is hot
  Instant late_commands_until{};  // those to a node come again, to whoever it is by then
  SimController* led_last = nullptr;
  Machines machines;
  placement::MemoryStore store;  // survives the controllers
  std::vector<SimController*> controllers;
  std::map<std::string, SimNode*> by_endpoint;
  // Every table that was ever created, as its creator knows it.
  std::map<TableUid, TableRecord> tables;
  std::map<TableUid, TableRecord> ready;  // those that a client has used
  Results results;

  // The controller that took the store last, if it is alive: it alone may change anything.
  SimController* Leader();
  // One that somebody who does not know who leads gets hold of: alive, and stopped only when all
  // are. Null when nobody is alive.
  SimController* AnyController() const;
};

// Every row as it should be: a function of the table's seed and the row's number.
inline void GoldenRow(const TableRecord& table, RowId row, std::span<std::byte> out) {
  FillSyntheticRow(table.source.seed, row, out);
}

}  // namespace engram::simulation
