#include "absl/strings/str_cat.h"
#include "placement/ops/ops.h"

namespace engram::placement {

void Heartbeat(Core& core, LinkId link, const NodeHeartbeat& heartbeat) {
  if (core.newcomers.contains(link)) return;
  const auto it = core.links.find(link);
  if (it == core.links.end() || it->second.incarnation != heartbeat.incarnation) {
    absl::Status why = absl::AbortedError(
        absl::StrCat("a process with incarnation ", heartbeat.incarnation.value(),
                     " was replaced or never registered; it must exit"));
    core.Send(link, NodeRefused{why});
    core.actions.push_back(CloseLink{link, why});
    return;
  }
  const NodeId node = it->second.node;
  NodeContact& contact = core.contacts[node];
  contact.heard = core.now;
  contact.live.tiers = heartbeat.tiers;
  contact.live.sessions = heartbeat.sessions;
  contact.live.retirements_pending = heartbeat.retirements_pending;
  contact.live.tenants = heartbeat.tenants;
  contact.live.last_seen_unix_ms = core.options.unix_ms();
  ReconsiderNewcomers(core, node);

  ChunkEdits edits(core.state());
  std::map<TableUid, std::vector<ShardIndex>> unknown;
  for (const ReplicaReport& report : heartbeat.changed) {
    TakeReport(core, node, report, edits, unknown);
  }
  Change change;
  change.chunks = edits.Take();
  const NodeRecord* record = core.state().FindNode(node);
  if (!record->alive) {
    NodeRecord alive = *record;
    alive.alive = true;
    change.nodes.push_back(std::move(alive));
  }
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) {
    // The node tells its news again on its next stream.
    core.actions.push_back(CloseLink{link, absl::UnavailableError(stored.message())});
    LinkEnded(core, link);
    return;
  }
  if (!heartbeat.changed.empty()) core.changed = true;
  RetireUnknown(core, node, unknown);
  core.Send(link, HeartbeatSeen{heartbeat.sequence, core.state().epoch});
}

}  // namespace engram::placement
