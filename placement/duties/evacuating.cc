#include <algorithm>

#include "placement/duties/duties.h"
#include "placement/ops/ops.h"
#include "placement/ops/places.h"

namespace engram::placement {
namespace {

// How often the replicas of leaving nodes are looked through; less often while many copies have no
// place, which is as much work every time.
constexpr Duration kLookEvery = std::chrono::milliseconds(200);
constexpr std::uint64_t kManyUnplaced = 4096, kMostSkipped = 24;
// What a node pulls meanwhile at its default --move-rate, with something to spare.
constexpr std::uint64_t kQueueBytes = std::uint64_t{64} << 20;

std::set<NodeId> LeavingNodes(const Core& core) {
  std::set<NodeId> leaving;
  for (const auto& [id, node] : core.state().nodes) {
    if (IsLeaving(core, id)) leaving.insert(id);
  }
  return leaving;
}

// Moves that wait for a node or are pulled from or by it.
struct Queue {
  std::uint32_t moves = 0;
  std::uint64_t bytes = 0;
};

// Nobody waits in a queue behind more than what a node can be busy with until the next look: a few
// moves, or as many small ones as are no more bytes.
std::vector<MoveRecord> AtMostPerNode(const Core& core, std::vector<MoveRecord> moves) {
  std::map<NodeId, Queue> queues;
  const auto bytes_of = [&](const MoveRecord& move) {
    return core.state().FindTable(move.shard.table)->layout->StoredBytes(move.shard.shard);
  };
  const auto add = [&](const MoveRecord& move) {
    for (const NodeId& node : {move.from, move.to}) {
      ++queues[node].moves;
      queues[node].bytes += bytes_of(move);
    }
  };
  for (const auto& [shard, move] : core.state().moves) {
    if (StepOf(core.state(), *move) <= MoveStep::kPulling) add(*move);
  }
  const auto full = [&](const NodeId& node, std::uint64_t bytes) {
    const Queue& queue = queues[node];
    return queue.moves >= 2 * core.options.moves_per_node && queue.bytes + bytes > kQueueBytes;
  };
  std::erase_if(moves, [&](const MoveRecord& move) {
    const std::uint64_t bytes = bytes_of(move);
    if ((core.state().IsAlive(move.from) && full(move.from, bytes)) ||
        (!move.to.name.empty() && full(move.to, bytes))) {
      return true;
    }
    add(move);
    return false;
  });
  return moves;
}

}  // namespace

void EvacuateNodes(Core& core) {
  if (core.now < core.next_evacuation) return;
  core.next_evacuation = core.now + kLookEvery;
  const std::set<NodeId> leaving = LeavingNodes(core);
  const auto under_way = static_cast<std::size_t>(
      std::count_if(core.state().moves.begin(), core.state().moves.end(), [&](const auto& entry) {
        return StepOf(core.state(), *entry.second) <= MoveStep::kPulling;
      }));
  const std::size_t slots =
      core.options.moves_per_pool - std::min<std::size_t>(under_way, core.options.moves_per_pool);
  // More than the slots, so that a busy node does not hold up the others.
  Evacuation out = PlanEvacuation(core.state(), leaving, 8 * slots);
  core.next_evacuation += kLookEvery * std::min(kMostSkipped, out.unplaced / kManyUnplaced);
  core.table_notes = std::move(out.unmet);
  for (const auto& [id, node] : core.state().nodes) {
    const auto waits = out.waiting.find(id);
    core.contacts[id].live.note =
        node->draining && waits != out.waiting.end() ? waits->second : std::string();
  }
  if (slots == 0 || out.moves.empty()) return;
  std::vector<MoveRecord> moves = AtMostPerNode(core, std::move(out.moves));
  if (moves.size() > slots) moves.resize(slots);
  TakeMoves(core, std::move(moves));
}

}  // namespace engram::placement
