#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "placement/duties/duties.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

// A tier that says that it has room and had none takes nothing for a while.
void MarkFull(Instant now, NodeContact* contact, NodeLive* live) {
  std::erase_if(contact->full, [&](const auto& entry) { return now >= entry.second.first; });
  for (TierCapacity& tier : live->tiers) {
    const auto full = contact->full.find(tier.tier);
    if (full != contact->full.end() && tier.trouble.empty()) tier.trouble = full->second.second;
  }
}

void PublishLive(Core& core) {
  std::map<NodeId, std::shared_ptr<const NodeLive>> live;
  for (auto& [id, contact] : core.contacts) {
    NodeLive shown = contact.live;
    MarkFull(core.now, &contact, &shown);
    live[id] = std::make_shared<const NodeLive>(std::move(shown));
  }
  core.registry->SetLive(std::move(live), core.move_notes, core.table_notes);
}

void CloseSilent(Core& core) {
  std::erase_if(core.silent, [&](const auto& entry) {
    if (core.now - entry.second < core.options.hello_within) return false;
    core.actions.push_back(
        CloseLink{entry.first, absl::DeadlineExceededError(absl::StrCat(
                                   "the stream did not say hello within ",
                                   FormatDuration(core.options.hello_within), "; say it first"))});
    return true;
  });
}

}  // namespace

void WatchLiveness(Core& core) {
  CloseSilent(core);
  std::vector<NodeId> silent;
  for (const auto& [id, node] : core.state().nodes) {
    if (node->alive && core.now - core.contacts[id].heard >= core.options.dead_after) {
      silent.push_back(id);
    }
  }
  for (const NodeId& id : silent) NodeLost(core, id);
  for (const auto& [id, node] : core.state().nodes) {
    if (node->alive) {
      core.dead_since.erase(id);
    } else {
      core.dead_since.try_emplace(id, core.now);
    }
  }
  std::set<NodeId> waited_for;
  for (const auto& [link, newcomer] : core.newcomers) waited_for.insert(newcomer.hello.node);
  for (const NodeId& id : waited_for) ReconsiderNewcomers(core, id);
  for (std::size_t i = core.inspections.size(); i-- > 0;) {
    if (core.now < core.inspections[i].deadline) continue;
    InspectionEnded(core, i,
                    absl::DeadlineExceededError(absl::StrCat(
                        "node ", core.inspections[i].node.name, " did not finish looking at ",
                        core.inspections[i].request.source.checkpoint_dir, " within ",
                        FormatDuration(core.options.inspection_timeout), "; try again")));
  }
  PublishLive(core);
}

}  // namespace engram::placement
