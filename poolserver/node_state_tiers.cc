// Moves of replicas between the tiers of a node: see node_state.h.
//
// A copy is loaded into the other tier as any replica is, from the tier where it serves, and takes
// that one's place as a new registration does: sessions are told, and what they read before is
// hidden and freed when none of them reads it any more. Whatever fails before that leaves the
// replica where it was.
#include <utility>

#include "absl/strings/str_cat.h"
#include "poolserver/node_state.h"

namespace engram::poolserver {

bool NodeState::MovesTo(const Replica& replica, Tier to) {
  return replica.step() == Replica::Step::kServing && replica.tier() != to &&
         replica.moving_to() != to;
}

absl::Status NodeState::CheckMove(const Replica& replica, Tier to) const {
  if (!MovesTo(replica, to) || replica.MayCopyTo(to)) return absl::OkStatus();
  const std::string_view doing = replica.moving_to()  ? "is moving to another tier"
                                 : replica.renewing() ? "is being registered under new keys"
                                                      : "has readers of an earlier stay there";
  return absl::UnavailableError(absl::StrCat("shard ", replica.shard().shard.value(), " of table ",
                                             owners_.at(replica.shard().table).name.Full(),
                                             " on node \"", options_.node.name, "\" cannot go to ",
                                             std::string(Name(to)), " now: it ", std::string(doing),
                                             "; send the command again later"));
}

void NodeState::StartMove(const TableRecord& table, Replica& replica, Tier to, Actions& out) {
  const Tier from = replica.tier();
  replica.StartCopy(to);
  out.push_back(StartLoad{table, {replica.shard().shard}, to, std::nullopt, from});
}

void NodeState::EndCopy(Replica& replica, absl::Status status, Actions& out) {
  replica.CopyEnded();
  const Tier to = *replica.moving_to();
  if (status.ok() && replica.retirement_wanted()) status = absl::CancelledError("it is retired");
  // Both take the place of the current registration: one after the other.
  if (status.ok() && replica.renewing()) {
    status = absl::UnavailableError("it is being registered under new keys");
  }
  if (status.ok()) return Register(replica, replica.StartRenewal(to), out);
  out.push_back(ReleaseMemory{replica.shard(), to});
  MoveFailed(replica, status, out);
}

void NodeState::MoveFailed(Replica& replica, const absl::Status& why, Actions& out) {
  replica.MoveFailed();
  if (replica.step() == Replica::Step::kServing) {
    ++counters_.tier_moves_failed;
    ReplicaReport report = replica.Report();
    report.error = why;
    link_.Changed(report);
    // Bytes that cannot be copied may not be what was loaded: the scrubber looks there next.
    if (absl::IsDataLoss(why)) scrub_shard_ = replica.shard(), scrub_block_ = 0;
  }
  HideIfUnread(replica, out);
}

}  // namespace engram::poolserver
