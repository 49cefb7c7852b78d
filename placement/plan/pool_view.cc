#include "placement/plan/pool_view.h"

#include <algorithm>
#include <map>

namespace engram::placement {
namespace {

// A tier of a node -> its number in NodesOf.
using Numbers = std::map<std::pair<NodeId, Tier>, std::uint32_t>;

Numbers NumbersOf(const std::vector<PlanNode>& nodes) {
  Numbers numbers;
  for (const PlanNode& node : nodes) {
    numbers.emplace(std::pair(node.id, node.tier), static_cast<std::uint32_t>(numbers.size()));
  }
  return numbers;
}

PlanTable Described(const TableRecord& table, const ShardLayout& layout) {
  return {table.uid,       table.name, table.options.replicas, table.options.max_nodes,
          layout.stride(), {},         table.options.tiers};
}

void AddShards(const ClusterState& pool, const MapChunk& chunk, const ShardLayout& layout,
               TableState state, const Numbers& numbers, PlanTable* table) {
  for (const std::vector<MapReplica>& replicas : chunk.shards) {
    PlanShard shard;
    const ShardIndex index(static_cast<std::uint32_t>(table->shards.size()));
    shard.bytes = layout.StoredBytes(index);
    const auto found = pool.moves.find({chunk.table, index});
    const MoveRecord* const move = found == pool.moves.end() ? nullptr : found->second.get();
    shard.moving = move != nullptr;
    for (const MapReplica& replica : replicas) {
      auto node = numbers.find({replica.node, replica.tier});
      if (node == numbers.end()) continue;
      if (move != nullptr && move->within_node() && move->to == replica.node) {
        const auto to = numbers.find({move->to, move->to_tier});
        if (to != numbers.end() && to != node) {
          shard.leaving.push_back(node->second);
          node = to;
        }
      }
      const bool leaves = replica.state == ReplicaState::kDraining;
      (leaves ? shard.leaving : shard.nodes).push_back(node->second);
      shard.moving |= state == TableState::kReady && replica.state != ReplicaState::kServing;
    }
    table->shards.push_back(std::move(shard));
  }
}

}  // namespace

std::vector<PlanNode> NodesOf(const ClusterState& state) {
  std::vector<PlanNode> nodes;
  for (const auto& [place, room] : state.Rooms()) {
    const NodeRecord& record = *state.FindNode(place.first);
    PlanNode& node = nodes.emplace_back();
    node.id = place.first;
    node.tier = place.second;
    node.failure_domain = record.failure_domain;
    node.free_bytes = room.free_bytes;
    node.read_bytes_per_second = room.read_bytes_per_second;
    if (!record.alive) {
      node.mode = NodeMode::kDead;
    } else if (record.draining) {
      node.mode = NodeMode::kDraining;
    } else if (record.cordoned || !room.well) {
      node.mode = NodeMode::kCordoned;
    }
  }
  return nodes;
}

PlanTable TableOf(const ClusterState& state, const TableRecord& table, const ShardLayout& layout,
                  const std::vector<MapChunk>& chunks) {
  PlanTable out = Described(table, layout);
  const Numbers numbers = NumbersOf(NodesOf(state));
  for (const MapChunk& chunk : chunks) AddShards(state, chunk, layout, table.state, numbers, &out);
  return out;
}

PoolView ViewOf(const ClusterState& state, const ShardReads& reads) {
  PoolView view;
  view.nodes = NodesOf(state);
  const Numbers numbers = NumbersOf(view.nodes);
  for (const auto& [uid, table] : state.tables) {
    if (table->record.state != TableState::kReady) continue;
    PlanTable& out = view.tables.emplace_back(Described(table->record, *table->layout));
    for (const auto& chunk : table->chunks) {
      AddShards(state, chunk->map, *table->layout, table->record.state, numbers, &out);
    }
    const std::vector<double> heat = reads ? reads(uid) : std::vector<double>();
    for (std::size_t i = 0; i < std::min(heat.size(), out.shards.size()); ++i) {
      out.shards[i].reads_per_second = heat[i];
    }
  }
  return view;
}

}  // namespace engram::placement
