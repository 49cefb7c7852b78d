#include <algorithm>

#include "placement/duties/duties.h"
#include "placement/ops/ops.h"
#include "placement/ops/places.h"

namespace engram::placement {
namespace {

// How often the replicas of leaving nodes are looked through.
constexpr Duration kLookEvery = std::chrono::milliseconds(200);

std::set<NodeId> LeavingNodes(const Core& core) {
  std::set<NodeId> leaving;
  for (const auto& [id, node] : core.state().nodes) {
    if (IsLeaving(core, id)) leaving.insert(id);
  }
  return leaving;
}

// Nobody waits in a queue behind more than what a node can be busy with next.
std::vector<MoveRecord> AtMostPerNode(const Core& core, std::vector<MoveRecord> moves) {
  std::map<NodeId, std::uint32_t> under_way;
  for (const auto& [shard, move] : core.state().moves) {
    if (StepOf(core.state(), *move) > MoveStep::kPulling) continue;
    ++under_way[move->from];
    ++under_way[move->to];
  }
  const std::uint32_t most = 2 * core.options.moves_per_node;
  std::erase_if(moves, [&](const MoveRecord& move) {
    if ((core.state().IsAlive(move.from) && under_way[move.from] >= most) ||
        (!move.to.name.empty() && under_way[move.to] >= most)) {
      return true;
    }
    ++under_way[move.from];
    ++under_way[move.to];
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
