#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"

namespace engram::placement {
namespace {

// The table's chunks without replicas on dead nodes; empty when there are none.
std::vector<MapChunk> WithoutDead(const ClusterState& state, const TableEntry& table) {
  std::vector<MapChunk> chunks;
  bool any = false;
  for (const auto& chunk : table.chunks) {
    chunks.push_back(chunk->map);
    for (auto& replicas : chunks.back().shards) {
      any |= std::erase_if(replicas, [&](const auto& one) { return !state.IsAlive(one.node); }) > 0;
    }
  }
  return any ? chunks : std::vector<MapChunk>();
}

void SetWaiting(Core& core, const TableEntry& table, const std::string& why) {
  if (table.record.error == why) return;
  StoredTable waiting = table;
  waiting.record.error = why;
  Change change;
  change.tables.push_back(std::move(waiting));
  if (core.Commit(std::move(change)).ok() && !why.empty()) {
    core.SayLine(absl::StrCat("table ", table.record.name.Full(), " ", why));
  }
}

void Replace(Core& core, const TableEntry& table) {
  std::vector<MapChunk> chunks = WithoutDead(core.state(), table);
  if (chunks.empty()) return SetWaiting(core, table, "");
  LoadProgress& progress = core.progress[table.record.uid];
  if (progress.planned_at == core.state().epoch) return;
  const absl::StatusOr<Placements> plan = core.PlanFor(table.record, *table.layout, chunks);
  if (!plan.ok()) {
    SetWaiting(
        core, table,
        absl::StrCat("waits: a node that was loading it is dead, and ", plan.status().message()));
    progress.planned_at = core.state().epoch;
    return;
  }
  AddPlacements(*plan, &chunks);
  Change change;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i] != table.chunks[i]->map) change.chunks.push_back(std::move(chunks[i]));
  }
  if (!core.Commit(std::move(change)).ok()) return;
  core.SayLine(absl::StrCat("table ", table.record.name.Full(), ": ", plan->size(),
                            " replicas of a dead node are loaded elsewhere"));
}

}  // namespace

void ReplaceLost(Core& core) {
  const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
  for (const auto& [uid, table] : before->tables) {
    if (table->record.state == TableState::kLoading) Replace(core, *table);
  }
}

}  // namespace engram::placement
