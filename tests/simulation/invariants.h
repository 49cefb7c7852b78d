// What must be so of the controllers and of the map that the leader has, at any time or in the end.
// What is not so fails the world. Thread-confined: call from the owner thread only.
#pragma once

#include <set>

#include "engram/table_spec.h"
#include "tests/simulation/cluster.h"

namespace engram::simulation {

// At any time: at most one controller holds the lease of a leader, and what the leader believes is
// what is stored, whatever became of its transactions. Counts copies of hot shards.
void CheckLeader(Cluster& cluster);

// In the end, when somebody leads. What was Ready and is not one of `deleted` is served, every
// shard of it.
void CheckServed(Cluster& cluster, const std::set<TableName>& deleted);
// Every move, load, retirement and deletion is over, and every shard has its copies.
void CheckArranged(Cluster& cluster);

}  // namespace engram::simulation
