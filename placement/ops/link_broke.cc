#include "absl/strings/str_cat.h"
#include "placement/ops/ops.h"

namespace engram::placement {

void LinkEnded(Core& core, LinkId link) {
  core.silent.erase(link);
  core.newcomers.erase(link);
  const auto it = core.links.find(link);
  if (it == core.links.end()) return;
  const NodeId node = it->second.node;
  core.links.erase(it);
  NodeContact& contact = core.contacts[node];
  if (contact.link != link) return;
  contact.link.reset();
  std::erase_if(core.commands, [&](const auto& sent) { return sent.second.node == node; });
  for (std::size_t i = core.inspections.size(); i-- > 0;) {
    if (core.inspections[i].node != node) continue;
    InspectElsewhere(core, i,
                     absl::UnavailableError(absl::StrCat(
                         "node ", node.name, " went away while it looked at the source")));
  }
  ReconsiderNewcomers(core, node);
}

}  // namespace engram::placement
