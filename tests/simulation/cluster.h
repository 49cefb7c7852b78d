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
#include "placement/store/memory_store.h"
#include "poolserver/protocol_switches.h"
#include "tests/simulation/sim_fabric.h"
#include "tests/simulation/world.h"

namespace engram::simulation {

class SimController;
class SimNode;

struct Results {
  std::uint64_t requests = 0;
  std::uint64_t rows_right = 0;
  std::uint64_t rows_wrong = 0;
  std::uint64_t rows_failed = 0;
  std::uint64_t retired = 0;  // replicas whose memory was reused
  std::uint64_t refused = 0;  // reads whose key or range was not granted
  std::uint64_t hedges = 0;   // rows delivered from a second read
  std::uint64_t joined = 0;   // rows delivered from another request's read
  std::uint64_t cached = 0;   // rows delivered from a client's cache
  std::uint64_t pulled = 0;   // replicas that came from another node
  std::uint64_t moved = 0;    // moves that were finished, repairs included
  std::uint64_t repaired = 0;
  std::uint64_t drained = 0;    // nodes that were empty after a drain
  std::uint64_t flipped = 0;    // bits
  std::uint64_t withdrawn = 0;  // replicas that a scrubber found to be wrong
  std::uint64_t takeovers = 0;  // of the store, by another controller
  // Replicas that a node was made to retire although the leader's map says that they serve.
  std::uint64_t retired_while_mapped = 0;
  Results& operator+=(const Results& other) {
    requests += other.requests;
    rows_right += other.rows_right;
    rows_wrong += other.rows_wrong;
    rows_failed += other.rows_failed;
    retired += other.retired;
    refused += other.refused;
    hedges += other.hedges;
    joined += other.joined;
    cached += other.cached;
    pulled += other.pulled;
    moved += other.moved;
    repaired += other.repaired;
    drained += other.drained;
    flipped += other.flipped;
    withdrawn += other.withdrawn;
    takeovers += other.takeovers;
    retired_while_mapped += other.retired_while_mapped;
    return *this;
  }
};

// Which rules are in force: all of them, except where a test wants to see what comes of it.
struct Rules {
  client::ProtocolSwitches client;
  poolserver::ProtocolSwitches node;
  // Rule 6: a node that starts again listens on fresh addresses and makes new keys, and a queue
  // never reads another incarnation than the one that it was opened for.
  bool restarts_are_new = true;
};

struct Cluster {
  World* world = nullptr;
  Rules rules;
  // Adapters of clients that hang: they never say that they have let go of a region.
  bool hung_releases = false;
  Machines machines;
  placement::MemoryStore store;  // survives the controllers
  std::vector<SimController*> controllers;
  FencingToken last_token;  // that a controller took
  std::map<std::string, SimNode*> by_endpoint;
  // Every table that was ever created, as its creator knows it.
  std::map<TableUid, TableRecord> tables;
  Results results;

  // The controller that took the store last, if it is alive: it alone may change anything.
  SimController* Leader() const;
  // One that somebody who does not know who leads gets hold of: alive, and stopped only when all
  // are. Null when nobody is alive.
  SimController* AnyController() const;
};

// Every row as it should be: a function of the table's seed and the row's number.
inline void GoldenRow(const TableRecord& table, RowId row, std::span<std::byte> out) {
  FillSyntheticRow(table.source.seed, row, out);
}

}  // namespace engram::simulation
