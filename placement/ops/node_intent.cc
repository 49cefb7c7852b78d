#include "absl/strings/str_cat.h"
#include "placement/ops/ops.h"
#include "placement/ops/places.h"

namespace engram::placement {
namespace {

constexpr std::size_t kMovesShown = 1024;

const char* Done(NodeIntent intent) {
  switch (intent) {
    case NodeIntent::kCordon: return "is cordoned: nothing new goes there";
    case NodeIntent::kUncordon: return "is uncordoned";
    case NodeIntent::kDrain: return "is draining: its replicas move away";
    case NodeIntent::kDelete: return "is deleted";
  }
  return "";
}

// Replicas that the map gives to the node, and moves that begin or end there.
std::uint64_t HeldBy(const ClusterState& state, const NodeId& node) {
  std::uint64_t held = 0;
  for (const auto& [uid, table] : state.tables) {
    for (const auto& chunk : table->chunks) {
      for (const auto& replicas : chunk->map.shards) {
        for (const MapReplica& replica : replicas) held += replica.node == node;
      }
    }
  }
  for (const auto& [shard, move] : state.moves) held += move->from == node || move->to == node;
  return held;
}

absl::Status MayDelete(const Core& core, const NodeRecord& node) {
  if (node.alive) {
    return absl::FailedPreconditionError(absl::StrCat("node ", node.id.name,
                                                      " is alive; drain it (`engramctl drain node ",
                                                      node.id.name, " --wait`) and stop it first"));
  }
  const std::uint64_t held = HeldBy(core.state(), node.id);
  if (held == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node.id.name, " still has ", held,
                   " replicas and moves in the map; `engramctl drain ", "node ", node.id.name,
                   " --wait` lets others take them over, or start the node again"));
}

}  // namespace

void SetNodeIntent(Core& core, CallId call, const IntentRequest& request) {
  const auto answer = [&](absl::StatusOr<IntentReply> reply) {
    core.actions.push_back(IntentAnswer{call, std::move(reply)});
  };
  const NodeRecord* known = core.state().FindNode(request.node);
  if (known == nullptr) {
    return answer(absl::NotFoundError(absl::StrCat(
        "node ", request.node.name, " is unknown; `engramctl get nodes` lists those there are")));
  }
  IntentReply reply{*known, {}, 0};
  reply.node.cordoned = request.intent != NodeIntent::kUncordon;
  reply.node.draining = request.intent == NodeIntent::kDrain ||
                        (request.intent == NodeIntent::kCordon && known->draining);
  if (request.intent == NodeIntent::kDelete) {
    if (absl::Status may = MayDelete(core, *known); !may.ok()) return answer(may);
    reply.node = *known;
  }
  if (request.intent == NodeIntent::kDrain) {
    Evacuation evacuation = PlanEvacuation(core.state(), {request.node}, kMovesShown);
    reply.moves = std::move(evacuation.moves);
    reply.moves_more = evacuation.more;
  }
  const bool gone = request.intent == NodeIntent::kDelete;
  if (request.dry_run || (!gone && reply.node == *known)) return answer(std::move(reply));
  Change change;
  if (gone) {
    change.nodes_removed.push_back(request.node);
  } else {
    change.nodes.push_back(reply.node);
  }
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) return answer(stored);
  if (gone) {
    core.contacts.erase(request.node);
    core.dead_since.erase(request.node);
  }
  core.SayLine(absl::StrCat("node ", request.node.name, " ", Done(request.intent)));
  answer(std::move(reply));
}

}  // namespace engram::placement
