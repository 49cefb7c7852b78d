#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "placement/ops/ops.h"

namespace engram::placement {

void NodeLost(Core& core, const NodeId& node) {
  const NodeRecord* record = core.state().FindNode(node);
  if (record == nullptr || !record->alive) return;
  NodeRecord dead = *record;
  dead.alive = false;
  Change change;
  change.nodes.push_back(std::move(dead));
  if (!core.Commit(std::move(change)).ok()) return;
  ++core.counters.nodes_lost;
  core.SayLine(absl::StrCat("node ", node.name, " is dead: nothing heard for ",
                            FormatDuration(core.options.dead_after)));
  NodeContact& contact = core.contacts[node];
  if (contact.link) {
    core.actions.push_back(CloseLink{
        *contact.link,
        absl::DeadlineExceededError(absl::StrCat("node ", node.name, " was not heard in time"))});
    LinkEnded(core, *contact.link);
  }
}

}  // namespace engram::placement
