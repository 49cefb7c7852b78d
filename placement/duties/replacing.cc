#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

constexpr char kWaits[] = "waits: ";

// The copies of one Loading table that will not come where they were placed: their node is dead,
// has no room for them after all, or is drained and has not loaded them yet.
class Replacer {
 public:
  Replacer(Core& core, const TableEntry& table) : core_(core), table_(table) {}

  void Run() {
    Collect();
    if (lost_.empty()) {
      if (absl::StartsWith(table_.record.error, kWaits)) SetError("");
      return;
    }
    LoadProgress& progress = core_.progress[table_.record.uid];
    if (progress.planned_at == core_.state().epoch) return;
    const absl::StatusOr<TablePlaces> places =
        core_.PlanFor(table_.record, *table_.layout, chunks_);
    // A drain costs no copies: what finds no place stays, and leaves once the table is Ready.
    const bool possible = places.ok() && (places->unmet.empty() || !only_drained_);
    if (!possible) {
      if (!only_drained_) NoPlace(places.status(), progress);
      progress.planned_at = core_.state().epoch;
      return;
    }
    Place(*places);
  }

 private:
  void Collect() {
    for (const auto& chunk : table_.chunks) {
      chunks_.push_back(chunk->map);
      for (std::size_t i = 0; i < chunks_.back().shards.size(); ++i) {
        const ShardIndex shard(static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i));
        Look(shard, chunks_.back().shards[i]);
      }
    }
  }

  void Look(ShardIndex shard, std::vector<MapReplica>& replicas) {
    const std::size_t before = replicas.size();
    std::erase_if(replicas, [&](const MapReplica& one) {
      return !core_.state().IsAlive(one.node) || FoundNoRoom(shard, one);
    });
    bool lost = replicas.size() < before;
    only_drained_ &= !lost;
    for (MapReplica& one : replicas) {
      if (one.state != ReplicaState::kLoading || !core_.state().FindNode(one.node)->draining) {
        continue;
      }
      one.state = ReplicaState::kDraining;
      lost = true;
    }
    if (lost) lost_.insert(shard);
  }

  bool FoundNoRoom(ShardIndex shard, const MapReplica& replica) const {
    if (replica.state != ReplicaState::kLoading) return false;
    return HasFailed(core_, replica.node, {table_.record.uid, shard});
  }

  void Place(const TablePlaces& places) {
    Placements wanted;
    for (const Placement& one : places.placements) {
      if (lost_.contains(one.shard)) wanted.push_back(one);
    }
    AddPlacements(wanted, &chunks_);
    Change change;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      if (chunks_[i] != table_.chunks[i]->map) change.chunks.push_back(std::move(chunks_[i]));
    }
    if (places.unmet != table_.record.error) {
      change.tables.push_back(table_);
      change.tables.back().record.error = places.unmet;
    }
    if (!core_.Commit(std::move(change)).ok()) return;
    std::erase_if(core_.failed_loads, [&](const auto& entry) {
      const ShardKey& key = entry.first.second;
      return key.table == table_.record.uid && lost_.contains(key.shard);
    });
    core_.SayLine(absl::StrCat("table ", table_.record.name.Full(), ": ", lost_.size(),
                               " shards lost a copy while it loads; ", wanted.size(),
                               " copies are loaded elsewhere", places.unmet.empty() ? "" : "; ",
                               places.unmet));
  }

  // Not even one copy of every shard has a place: a node without room will not find any, one that
  // is dead may come back.
  void NoPlace(const absl::Status& why, const LoadProgress& progress) {
    if (!progress.no_room.empty()) {
      core_.failures.try_emplace(table_.record.uid, progress.no_room);
      core_.changed = true;
      return;
    }
    SetError(absl::StrCat(kWaits, "a node that was loading it is dead, and ", why.message()));
  }

  void SetError(const std::string& why) {
    if (table_.record.error == why) return;
    StoredTable waiting = table_;
    waiting.record.error = why;
    Change change;
    change.tables.push_back(std::move(waiting));
    if (core_.Commit(std::move(change)).ok() && !why.empty()) {
      core_.SayLine(absl::StrCat("table ", table_.record.name.Full(), " ", why));
    }
  }

  Core& core_;
  const TableEntry& table_;
  std::vector<MapChunk> chunks_;  // without what is lost
  std::set<ShardIndex> lost_;
  bool only_drained_ = true;
};

}  // namespace

void ReplaceLost(Core& core) {
  const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
  for (const auto& [uid, table] : before->tables) {
    if (table->record.state == TableState::kLoading && !core.failures.contains(uid)) {
      Replacer(core, *table).Run();
    }
  }
}

}  // namespace engram::placement
