#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

// Everything Draining, except on dead nodes: there nothing is left to wait for. Should such a node
// come back with its memory, its replicas are unknown and it is told to retire them.
void Drain(Core& core, const TableEntry& table) {
  Change change;
  for (const auto& chunk : table.chunks) {
    MapChunk next = chunk->map;
    for (auto& replicas : next.shards) {
      std::erase_if(replicas, [&](const auto& one) { return !core.state().IsAlive(one.node); });
      for (MapReplica& replica : replicas) replica.state = ReplicaState::kDraining;
    }
    if (next != chunk->map) change.chunks.push_back(std::move(next));
  }
  (void)core.Commit(std::move(change));  // repeated at the next tick when it failed
}

void CommandRetirements(Core& core, const TableEntry& table) {
  std::map<NodeId, std::vector<ShardIndex>> wanted;
  for (const auto& chunk : table.chunks) {
    if (chunk->counts.draining == 0) continue;
    for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
      const ShardIndex shard(static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i));
      for (const MapReplica& replica : chunk->map.shards[i]) {
        if (replica.state != ReplicaState::kDraining) continue;
        NodeContact* contact = core.Reachable(replica.node);
        if (contact == nullptr) continue;
        if (contact->retires_sent[table.record.uid].insert(shard).second) {
          wanted[replica.node].push_back(shard);
        }
      }
    }
  }
  for (const auto& [node, shards] : wanted) {
    SendRetirements(core, node, table.record.uid, shards);
  }
}

// Draining replicas of a table that goes on: those on dead nodes are forgotten, as in Drain.
void ForgetDead(Core& core, const TableEntry& table) {
  Change change;
  for (const auto& chunk : table.chunks) {
    if (chunk->counts.draining == 0) continue;
    MapChunk next = chunk->map;
    for (auto& replicas : next.shards) {
      std::erase_if(replicas, [&](const MapReplica& one) {
        return one.state == ReplicaState::kDraining && !core.state().IsAlive(one.node);
      });
    }
    if (next != chunk->map) change.chunks.push_back(std::move(next));
  }
  (void)core.Commit(std::move(change));  // repeated at the next tick when it failed
}

void Remove(Core& core, const TableEntry& table) {
  const TableUid uid = table.record.uid;
  Change change;
  change.tables_removed.push_back(uid);
  if (!table.delete_request.empty()) change.deletes_remembered.push_back(table);
  if (!core.Commit(std::move(change)).ok()) return;
  core.SayLine(absl::StrCat("table ", table.record.name.Full(), " is gone"));
  for (auto& [node, contact] : core.contacts) {
    contact.loads_sent.erase(uid);
    contact.retires_sent.erase(uid);
    contact.tier_moves_sent.erase(uid);
  }
  const auto of_table = [&](const auto& entry) { return entry.first.second.table == uid; };
  std::erase_if(core.not_before, of_table);
  std::erase_if(core.failed_loads, of_table);
}

}  // namespace

void DriveRetiring(Core& core) {
  std::vector<TableUid> retiring, serving;
  for (const auto& [uid, table] : core.state().tables) {
    const TableState state = table->record.state;
    if (state == TableState::kDeleting || state == TableState::kFailed) retiring.push_back(uid);
    const bool goes_on = state == TableState::kReady || state == TableState::kLoading;
    if (goes_on && table->counts().draining > 0) serving.push_back(uid);
  }
  for (const TableUid& uid : serving) {
    const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
    ForgetDead(core, *before->FindTable(uid));
    const std::shared_ptr<const ClusterState> after = core.registry->snapshot();
    CommandRetirements(core, *after->FindTable(uid));
  }
  for (const TableUid& uid : retiring) {
    const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
    Drain(core, *before->FindTable(uid));
    const std::shared_ptr<const ClusterState> drained = core.registry->snapshot();
    const TableEntry& table = *drained->FindTable(uid);
    CommandRetirements(core, table);
    const ReplicaCounts counts = table.counts();
    if (table.record.state == TableState::kDeleting &&
        counts.loading + counts.serving + counts.draining == 0) {
      Remove(core, table);
    }
  }
}

}  // namespace engram::placement
