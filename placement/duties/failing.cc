#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"

namespace engram::placement {

void FailTables(Core& core) {
  for (auto it = core.failures.begin(); it != core.failures.end();) {
    const TableEntry* table = core.state().FindTable(it->first);
    if (table != nullptr && table->record.state == TableState::kLoading) {
      StoredTable failed = *table;
      failed.record.state = TableState::kFailed;
      failed.record.error = it->second;
      Change change;
      change.tables.push_back(failed);
      // Kept for the next tick: a table whose load failed must never serve.
      if (!core.Commit(std::move(change)).ok()) return;
      core.SayLine(absl::StrCat("table ", failed.record.name.Full(), " is Failed: ", it->second));
      core.progress.erase(it->first);
    }
    it = core.failures.erase(it);
  }
}

void GiveUpLoads(Core& core) {
  const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
  ChunkEdits edits(*before);
  std::vector<std::pair<NodeId, ShardKey>> given_up;
  for (const auto& entry : core.failed_loads) {
    const NodeId& node = entry.first.first;
    const ShardKey& shard = entry.first.second;
    if (entry.second < kMostAttempts || before->moves.contains(shard)) continue;
    const TableEntry* table = before->FindTable(shard.table);
    const MapReplica* replica = before->FindReplica(shard, node);
    const bool loading = replica != nullptr && replica->state == ReplicaState::kLoading;
    if (!loading || table->record.state != TableState::kReady) continue;
    std::erase_if(edits.Replicas(shard), [&](const MapReplica& one) { return one.node == node; });
    given_up.push_back(entry.first);
  }
  if (given_up.empty()) return;
  Change change;
  change.chunks = edits.Take();
  if (!core.Commit(std::move(change)).ok()) return;
  for (const auto& [node, shard] : given_up) {
    core.failed_loads.erase({node, shard});
    core.SayLine(absl::StrCat("node ", node.name, " cannot load shard ", shard.shard.value(),
                              " of table ", before->FindTable(shard.table)->record.name.Full(),
                              "; it goes elsewhere"));
  }
}

}  // namespace engram::placement
