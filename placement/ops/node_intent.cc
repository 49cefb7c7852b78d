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
  }
  return "";
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
  if (request.intent == NodeIntent::kDrain) {
    Evacuation evacuation = PlanEvacuation(core.state(), {request.node}, kMovesShown);
    reply.moves = std::move(evacuation.moves);
    reply.moves_more = evacuation.more;
  }
  if (request.dry_run || reply.node == *known) return answer(std::move(reply));
  Change change;
  change.nodes.push_back(reply.node);
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) return answer(stored);
  core.SayLine(absl::StrCat("node ", request.node.name, " ", Done(request.intent)));
  answer(std::move(reply));
}

}  // namespace engram::placement
