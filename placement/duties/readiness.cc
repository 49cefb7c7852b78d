#include "absl/strings/str_cat.h"
#include "engram/shard_sum.h"
#include "placement/duties/duties.h"

namespace engram::placement {
namespace {

// Of every shard at least one does, and nothing is under way: copies that have no place are made
// when there is one.
bool EveryReplicaServes(const TableEntry& table, const LoadProgress& progress) {
  if (progress.crcs.size() != table.layout->shards()) return false;
  for (const auto& chunk : table.chunks) {
    for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
      const auto& replicas = chunk->map.shards[i];
      bool served = false;
      const ShardIndex shard(static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i));
      const auto compared = progress.compared.find(shard);
      if (compared == progress.compared.end()) return false;
      for (const MapReplica& replica : replicas) {
        if (replica.state == ReplicaState::kDraining) continue;
        if (replica.state != ReplicaState::kServing) return false;
        if (!compared->second.contains(replica.node)) return false;
        served = true;
      }
      if (!served) return false;
    }
  }
  return true;
}

void MakeReady(Core& core, const TableEntry& table, const LoadProgress& progress) {
  StoredTable ready = table;
  Change change;
  change.sums.push_back({table.record.uid, {}});
  std::string all;
  for (const auto& [shard, crcs] : progress.crcs) {
    change.sums[0].sums.push_back(SumOf(crcs));
    all += LittleEndian(crcs);
  }
  ready.record.state = TableState::kReady;
  ready.record.content_digest = Sha256Hex(all);
  ready.record.error.clear();
  change.tables.push_back(ready);
  if (!core.Commit(std::move(change)).ok()) return;
  core.SayLine(absl::StrCat("table ", ready.record.name.Full(), " is Ready, content digest ",
                            ready.record.content_digest));
  core.progress.erase(ready.record.uid);
}

}  // namespace

void CommitReady(Core& core) {
  const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
  for (const auto& [uid, table] : before->tables) {
    if (table->record.state != TableState::kLoading || core.failures.contains(uid)) continue;
    const auto progress = core.progress.find(uid);
    if (progress != core.progress.end() && EveryReplicaServes(*table, progress->second)) {
      MakeReady(core, *table, progress->second);
    }
  }
}

}  // namespace engram::placement
