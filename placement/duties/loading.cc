#include "placement/duties/duties.h"

namespace engram::placement {
namespace {

constexpr std::size_t kShardsPerCommand = 1024;

class LoadDriver {
 public:
  LoadDriver(Core& core, const TableEntry& table) : core_(core), table_(table) {}

  void Run() {
    for (const auto& chunk : table_.chunks) {
      const bool settled = chunk->counts.loading == 0 && table_.record.state == TableState::kReady;
      if (settled) continue;
      for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
        const ShardIndex shard(static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i));
        for (const MapReplica& replica : chunk->map.shards[i]) Consider(shard, replica);
      }
    }
    for (auto& [node, shards] : wanted_) Command(node, shards);
  }

 private:
  bool Wanted(ShardIndex shard, const MapReplica& replica) const {
    if (replica.state == ReplicaState::kLoading) return true;
    if (replica.state != ReplicaState::kServing) return false;
    // It serves, but what it loaded is not known (any more): a node that is told again to load what
    // it has answers with the checksums.
    if (table_.record.state != TableState::kLoading) return false;
    const auto progress = core_.progress.find(table_.record.uid);
    if (progress == core_.progress.end()) return true;
    const auto compared = progress->second.compared.find(shard);
    return compared == progress->second.compared.end() || !compared->second.contains(replica.node);
  }

  void Consider(ShardIndex shard, const MapReplica& replica) {
    if (!Wanted(shard, replica)) return;
    NodeContact* contact = core_.Reachable(replica.node);
    if (contact == nullptr) return;
    const auto wait = core_.not_before.find({replica.node, {table_.record.uid, shard}});
    if (wait != core_.not_before.end()) {
      if (core_.now < wait->second) return;
      core_.not_before.erase(wait);
    }
    if (contact->loads_sent[table_.record.uid].insert(shard).second) {
      wanted_[replica.node].push_back(shard);
    }
  }

  void Command(const NodeId& node, const std::vector<ShardIndex>& shards) {
    for (std::size_t at = 0; at < shards.size(); at += kShardsPerCommand) {
      const std::size_t end = std::min(shards.size(), at + kShardsPerCommand);
      std::vector<ShardIndex> part(shards.begin() + static_cast<std::ptrdiff_t>(at),
                                   shards.begin() + static_cast<std::ptrdiff_t>(end));
      core_.counters.loads_commanded += part.size();
      core_.SendCommand(node, {node, table_.record.uid, part, SentCommand::Kind::kLoad},
                        LoadReplicas{table_.record, part, Tier::kDram});
    }
  }

  Core& core_;
  const TableEntry& table_;
  std::map<NodeId, std::vector<ShardIndex>> wanted_;
};

}  // namespace

void DriveLoading(Core& core) {
  const std::shared_ptr<const ClusterState> before = core.registry->snapshot();
  for (const auto& [uid, table] : before->tables) {
    const TableState state = table->record.state;
    if (core.failures.contains(uid)) continue;
    if (state == TableState::kLoading || state == TableState::kReady) {
      LoadDriver(core, *table).Run();
    }
  }
}

}  // namespace engram::placement
