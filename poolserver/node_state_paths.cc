// What a node does when an address that its readers were told is not its own any more: see
// node_state.h. Replicas are registered anew on the path that followed, as they are under new keys
// (node_state_tenants.cc), and readers that can still read by the old one do so until they have
// applied the change.
#include <algorithm>

#include "poolserver/node_state.h"

namespace engram::poolserver {

void NodeState::On(Instant, const PathsMoved& event, Actions& out) {
  options_.paths = event.paths;
  left_paths_.insert(event.left.begin(), event.left.end());
  for (auto& [shard, replica] : replicas_) LeaveMovedPaths(replica, out);
}

void NodeState::LeaveMovedPaths(Replica& replica, Actions& out) {
  // What is being registered is looked at when it is.
  if (replica.step() != Replica::Step::kServing || replica.renewing()) return;
  const Registration& current = replica.current();
  const bool left =
      std::any_of(current.paths.begin(), current.paths.end(),
                  [this](const GrantPath& path) { return left_paths_.contains(path.path); });
  if (!left) return;
  ++counters_.registrations_renewed;
  Register(replica, replica.StartRenewal(current.tier), out);
}

}  // namespace engram::poolserver
