#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engram/shard_sum.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

std::string Where(const TableEntry& table, const NodeId& node, ShardIndex shard) {
  return absl::StrCat("node ", node.name, ", shard ", shard.value(), " of table ",
                      table.record.name.Full());
}

// Checksums of a shard against its other replicas (Loading) or what was committed (Ready).
absl::Status CompareSums(Core& core, const NodeId& node, const TableEntry& table,
                         const ReplicaReport& report) {
  const ShardIndex shard = report.shard.shard;
  const std::uint64_t rows = table.layout->Range(shard).rows;
  const std::uint64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  if (report.block_crcs.size() != blocks) {
    return absl::InternalError(absl::StrCat("it reports ", report.block_crcs.size(),
                                            " block checksums; the shard has ", blocks, " blocks"));
  }
  if (table.record.state == TableState::kReady) {
    if (table.shard_sums == nullptr || shard.value() >= table.shard_sums->size() ||
        (*table.shard_sums)[shard.value()] == SumOf(report.block_crcs)) {
      return absl::OkStatus();
    }
    return absl::DataLossError(
        "its bytes differ from those the table was committed with; the source has changed: restore "
        "it, or load it as a new version");
  }
  LoadProgress& progress = core.progress[table.record.uid];
  const auto [it, first] = progress.crcs.try_emplace(shard, report.block_crcs);
  if (!first && it->second != report.block_crcs) {
    return absl::DataLossError(
        "its bytes differ from those of the shard's other replica; check that every node sees the "
        "same source");
  }
  progress.compared[shard].insert(node);
  return absl::OkStatus();
}

// The command is sent again in a while.
void TryAgainLater(Core& core, const NodeId& node, const ShardKey& key, const std::string& text) {
  ++core.failed_loads[{node, key}];
  if (core.state().moves.contains(key)) core.move_notes[key] = text;
  core.not_before[{node, key}] = core.now + core.options.retry_after;
}

// It serves from the tier where it was.
void TierMoveFailed(Core& core, const NodeId& node, const TableEntry& table, const ShardKey& key,
                    const absl::Status& why) {
  const std::string text = absl::StrCat(Where(table, node, key.shard), ": ", why.message());
  core.SayLine(absl::StrCat("a move to another tier failed: ", text));
  TryAgainLater(core, node, key, text);
  core.contacts[node].tier_moves_sent[key.table].erase(key.shard);
}

// How long a tier that had no room takes nothing.
constexpr Duration kFullFor = std::chrono::seconds(30);

// A replica that cannot be loaded: the end of a Loading table, a wait for a Ready one. Without room
// for it the node is not asked again: the copy goes elsewhere.
void LoadFailed(Core& core, const NodeId& node, const TableEntry& table, const ShardKey& key,
                Tier tier, const absl::Status& why) {
  ++core.counters.loads_failed;
  const std::string text = absl::StrCat(Where(table, node, key.shard), ": ", why.message());
  core.SayLine(absl::StrCat("load failed: ", text));
  const bool full = absl::IsResourceExhausted(why);
  if (table.record.state == TableState::kLoading) {
    if (full) {
      core.progress[table.record.uid].no_room = text;
    } else {
      core.failures.try_emplace(table.record.uid, text);
    }
    core.changed = true;
  }
  TryAgainLater(core, node, key, text);
  if (full) {
    core.failed_loads[{node, key}] = kMostAttempts;
    core.contacts[node].full[tier] = {core.now + kFullFor, std::string(why.message())};
  }
  core.contacts[node].loads_sent[key.table].erase(key.shard);
}

// The node's scrubber found bytes that are not what was loaded: it is retiring the replica, and
// makes it anew when it is told so after that.
void Suspect(Core& core, const NodeId& node, const TableEntry& table, const ReplicaReport& report,
             MapReplica& replica) {
  if (replica.state != ReplicaState::kServing) return;
  ++core.counters.replicas_suspect;
  core.SayLine(absl::StrCat("withdrawn: ", Where(table, node, report.shard.shard), ": ",
                            report.error.message(), "; it will be made anew"));
  replica.state = ReplicaState::kLoading;
}

void Serves(Core& core, const NodeId& node, const TableEntry& table, const ReplicaReport& report,
            MapReplica& replica, std::map<TableUid, std::vector<ShardIndex>>& unwanted) {
  if (replica.state == ReplicaState::kDraining) return;
  if (core.contacts[node].unwanted.contains(report.shard)) return;
  const bool known = replica.state == ReplicaState::kServing;
  if (report.block_crcs.empty()) {
    // Without checksums only what was compared before is believed; DriveLoading asks for them.
    return;
  }
  if (absl::Status same = CompareSums(core, node, table, report); !same.ok()) {
    replica.state = ReplicaState::kLoading;
    LoadFailed(core, node, table, report.shard, replica.tier, same);
    if (table.record.state == TableState::kReady) {
      unwanted[report.shard.table].push_back(report.shard.shard);
    }
    return;
  }
  replica.state = ReplicaState::kServing;
  replica.tier = report.tier;
  core.failed_loads.erase({node, report.shard});
  if (known) return;
  ++core.counters.loads_done;
  core.counters.loaded_bytes += table.layout->StoredBytes(report.shard.shard);
}

}  // namespace

void TakeReport(Core& core, const NodeId& node, const ReplicaReport& report, ChunkEdits& edits,
                std::map<TableUid, std::vector<ShardIndex>>& unknown) {
  const ShardKey key = report.shard;
  const TableEntry* table = core.state().FindTable(key.table);
  const bool exists = table != nullptr && key.shard.value() < table->layout->shards();
  MapReplica* replica = nullptr;
  if (exists) {
    for (MapReplica& one : edits.Replicas(key)) {
      if (one.node == node) replica = &one;
    }
  }
  if (replica == nullptr) {
    const bool holds =
        report.state == ReplicaState::kLoading || report.state == ReplicaState::kServing;
    if (holds && report.error.ok()) unknown[key.table].push_back(key.shard);
    if (report.state == ReplicaState::kRetired) core.contacts[node].unwanted.erase(key);
    return;
  }
  if (report.state == ReplicaState::kDraining && replica->state != ReplicaState::kDraining) {
    // The node withdraws it by itself, or was told to by an earlier state: it does not serve.
    if (!report.error.ok()) return Suspect(core, node, *table, report, *replica);
    replica->state = ReplicaState::kLoading;
    return;
  }
  if (!report.error.ok() && report.state == ReplicaState::kServing) {
    return TierMoveFailed(core, node, *table, key, report.error);
  }
  if (!report.error.ok() && replica->state != ReplicaState::kDraining) {
    LoadFailed(core, node, *table, key, replica->tier, report.error);
    replica->state = ReplicaState::kLoading;
    return;
  }
  switch (report.state) {
    case ReplicaState::kLoading: return;
    case ReplicaState::kServing: return Serves(core, node, *table, report, *replica, unknown);
    case ReplicaState::kDraining: return;
    case ReplicaState::kRetired: break;
  }
  core.contacts[node].unwanted.erase(key);
  core.contacts[node].loads_sent[key.table].erase(key.shard);
  core.contacts[node].retires_sent[key.table].erase(key.shard);
  if (replica->state == ReplicaState::kDraining) {
    ++core.counters.retires_done;
    std::erase_if(edits.Replicas(key), [&](const auto& one) { return one.node == node; });
    return;
  }
  // Gone though it is wanted: it is loaded again.
  replica->state = ReplicaState::kLoading;
}

void SendRetirements(Core& core, const NodeId& node, const TableUid& table,
                     const std::vector<ShardIndex>& shards) {
  // One command names one list of successors.
  const auto order = [](const std::vector<Successor>& a, const std::vector<Successor>& b) {
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const Successor& x, const Successor& y) { return x.node < y.node; });
  };
  std::map<std::vector<Successor>, std::vector<ShardIndex>, decltype(order)> groups(order);
  for (ShardIndex shard : shards) {
    groups[core.state().Servers({table, shard}, node)].push_back(shard);
  }
  for (const auto& [successors, part] : groups) {
    core.counters.retires_commanded += part.size();
    core.SendCommand(node, {node, table, part, SentCommand::Kind::kRetire},
                     RetireReplicas{table, part, successors});
  }
}

void RetireUnknown(Core& core, const NodeId& node,
                   const std::map<TableUid, std::vector<ShardIndex>>& unknown) {
  if (core.Reachable(node) == nullptr) return;
  for (const auto& [table, shards] : unknown) {
    core.SayLine(absl::StrCat("node ", node.name, " holds ", shards.size(),
                              " replicas that it should not; retiring them"));
    SendRetirements(core, node, table, shards);
    for (ShardIndex shard : shards) {
      core.contacts[node].unwanted[{table, shard}] = core.last_command;
    }
  }
}

}  // namespace engram::placement
