// The duties: what follows from the state, whatever event led to it. Each looks at the state, does
// what is missing and may be repeated at any time; a crash between any two steps is repaired by the
// next run. All run after an event that changed something, and at every Tick. Thread-confined: call
// from the owner thread only.
#pragma once

#include "placement/ops/core.h"

namespace engram::placement {

// liveness.cc: nodes that were not heard for dead_after are lost; what nodes say of themselves is
// published; inspections have a deadline.
void WatchLiveness(Core& core);
// failing.cc: a Loading table of which a replica could not be loaded becomes Failed.
void FailTables(Core& core);
// Copies of Ready tables that their nodes could not load leave the map; EvacuateNodes makes others.
void GiveUpLoads(Core& core);
// replacing.cc: replicas of Loading tables that will not come (their node is dead, without room, or
// drained) are placed again, or the table says why it waits.
void ReplaceLost(Core& core);
// evacuating.cc: moves for replicas on draining nodes and on nodes that were dead for repair_after,
// and for shards with too few copies.
void EvacuateNodes(Core& core);
// moving.cc: every move takes its next step, or is dropped when it has become impossible.
void DriveMoves(Core& core);
// rebalancing.cc: where it is wanted, plans for load, capacity and few nodes are carried out, one
// after the other.
void Rebalance(Core& core);
// loading.cc: every Loading replica on a reachable node is commanded once.
void DriveLoading(Core& core);
// readiness.cc: a Loading table with every replica Serving and compared is committed Ready.
void CommitReady(Core& core);
// retiring.cc: Draining replicas are retired, naming who serves the shard now; those of Deleting
// and Failed tables are all drained, and a Deleting table without replicas is removed.
void DriveRetiring(Core& core);

}  // namespace engram::placement
