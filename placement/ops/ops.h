// The operations: what one event does. Each stands in the file of its name; all take the Core and
// add their actions to it. None waits. Thread-confined: call from the owner thread only.
#pragma once

#include "placement/ops/core.h"
#include "placement/plan/planner.h"

namespace engram::placement {

// register_node.cc: welcome a process, make it wait, or refuse it.
void RegisterNode(Core& core, LinkId link, const NodeHello& hello);
// Newcomers of `node` are welcomed if no other process of it has a stream or is heard any more.
void ReconsiderNewcomers(Core& core, const NodeId& node);
// heartbeat.cc: liveness, capacity and changed replicas; refuses processes that were replaced.
void Heartbeat(Core& core, LinkId link, const NodeHeartbeat& heartbeat);
// command_done.cc: what a node made of a command.
void CommandAnswered(Core& core, LinkId link, const CommandDone& done);
// link_broke.cc: a stream ended; the node is not dead for that.
void LinkEnded(Core& core, LinkId link);
// node_lost.cc: a node is dead to us until it says hello again.
void NodeLost(Core& core, const NodeId& node);
// load_table.cc
void LoadTable(Core& core, CallId call, const LoadRequest& request);
// A node has looked at the source, or cannot (any more).
void InspectionEnded(Core& core, std::size_t index, absl::StatusOr<Inspection> found);
// Asks another node, or gives the inspection up with `why`.
void InspectElsewhere(Core& core, std::size_t index, const absl::Status& why);
// delete_table.cc
void DeleteTable(Core& core, CallId call, const DeleteRequest& request);
// node_intent.cc: cordon, uncordon, drain, delete.
void SetNodeIntent(Core& core, CallId call, const IntentRequest& request);
// move_shard.cc
void MoveShard(Core& core, CallId call, const MoveRequest& request);
// Drained, or dead for repair_after: its replicas are made elsewhere.
bool IsLeaving(const Core& core, const NodeId& node);
// The node could not load the shard, so that it goes elsewhere.
bool HasFailed(const Core& core, const NodeId& node, const ShardKey& shard);
// Why the move may not be stored; OK when it may.
absl::Status CheckMove(const Core& core, const MoveRecord& move);
// The one way for plans to be carried out: stores those moves that are possible now; duties do the
// rest. The others are left out without a word: the next plan sees why. Returns how many were
// stored.
std::size_t TakeMoves(Core& core, std::vector<MoveRecord> moves);
// The same for the steps of a plan. Of several steps of one shard the first is taken.
std::size_t CarryOut(Core& core, const Plan& plan);
// set_tenant.cc: budgets, grants of tables, revoked clients.
void SetTenant(Core& core, CallId call, const TenantRequest& request);
// Tells the nodes what they do not know yet of tenants.
void TellPolicies(Core& core);
// The same for a node that is about to be welcomed: it serves nobody before it knows.
void TellPoliciesFirst(Core& core, LinkId link, const NodeId& node, bool known_before);
// set_alias.cc
void SetAlias(Core& core, CallId call, const AliasRequest& request);

// replica_report.cc: takes what a node says of one replica into `edits`. Replicas that nobody
// knows are added to `unknown`.
void TakeReport(Core& core, const NodeId& node, const ReplicaReport& report, ChunkEdits& edits,
                std::map<TableUid, std::vector<ShardIndex>>& unknown);
// Tells a node to retire replicas, naming who serves each of them. REQUIRES: Reachable(node).
void SendRetirements(Core& core, const NodeId& node, const TableUid& table,
                     const std::vector<ShardIndex>& shards);
// Tells a node to drop replicas that the state does not have.
void RetireUnknown(Core& core, const NodeId& node,
                   const std::map<TableUid, std::vector<ShardIndex>>& unknown);

}  // namespace engram::placement
