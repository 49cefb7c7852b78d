#include "placement/duties/duties.h"

#include <algorithm>
#include <tuple>

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
    for (auto& [to, shards] : wanted_) {
      Command(std::get<0>(to), std::get<1>(to), std::get<2>(to), shards);
    }
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
      wanted_[{replica.node, replica.tier, SourceOf(shard, replica.node)}].push_back(shard);
    }
  }

  // Who the replica is pulled from: the node that the shard moves away from, else any other that
  // serves it; after a failed attempt the next one, and in the end nobody: the table's source.
  NodeId SourceOf(ShardIndex shard, const NodeId& to) const {
    const ShardKey key{table_.record.uid, shard};
    if (table_.record.state != TableState::kReady || table_.shard_sums == nullptr) return {};
    std::vector<Successor> servers = core_.state().Servers(key, to);
    const auto move = core_.state().moves.find(key);
    if (move != core_.state().moves.end()) {
      std::stable_partition(servers.begin(), servers.end(),
                            [&](const Successor& one) { return one.node == move->second->from; });
    }
    const auto failed = core_.failed_loads.find({to, key});
    const std::size_t attempt = failed == core_.failed_loads.end() ? 0 : failed->second;
    const std::size_t turn = attempt % (servers.size() + 1);
    return turn < servers.size() ? servers[turn].node : NodeId{};
  }

  // REQUIRES: `source` is empty or a node of the state.
  void Command(const NodeId& node, Tier tier, const NodeId& source,
               const std::vector<ShardIndex>& shards) {
    LoadReplicas load{table_.record, {}, tier};
    if (const NodeRecord* from = core_.state().FindNode(source)) {
      load.source = Successor{from->id, from->incarnation, from->endpoint};
    }
    for (std::size_t at = 0; at < shards.size(); at += kShardsPerCommand) {
      const std::size_t end = std::min(shards.size(), at + kShardsPerCommand);
      std::vector<ShardIndex> part(shards.begin() + static_cast<std::ptrdiff_t>(at),
                                   shards.begin() + static_cast<std::ptrdiff_t>(end));
      core_.counters.loads_commanded += part.size();
      load.sums.clear();
      if (table_.record.state == TableState::kReady && table_.shard_sums != nullptr) {
        for (ShardIndex shard : part) load.sums.push_back(table_.shard_sums->at(shard.value()));
      }
      load.shards = part;
      core_.SendCommand(node, {node, table_.record.uid, part, SentCommand::Kind::kLoad}, load);
    }
  }

  Core& core_;
  const TableEntry& table_;
  // By target and source.
  std::map<std::tuple<NodeId, Tier, NodeId>, std::vector<ShardIndex>> wanted_;
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
