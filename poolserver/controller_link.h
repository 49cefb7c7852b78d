// The node's side of the conversation with the controller (ARCHITECTURE section 4, rules 6 and 8):
// registration, heartbeats with what changed, fencing. It decides which commands may be obeyed; it
// does not obey them. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "poolserver/protocol_switches.h"

namespace engram::poolserver {

class ControllerLink {
 public:
  // `identity` holds the fields of every NodeHello that never change.
  explicit ControllerLink(NodeHello identity, ProtocolSwitches switches = {});

  // The hello to send on a new stream, with the state of every replica.
  NodeHello Connected(std::vector<ReplicaReport> replicas);
  void Lost();

  // Aborted: this process must exit (another incarnation was issued for it).
  absl::Status Welcomed(Instant now, const NodeWelcome& welcome);
  void Seen(const HeartbeatSeen& seen);
  // FailedPrecondition: not welcomed on this stream yet, or meant for another incarnation; Aborted:
  // the fencing token is older than one seen before.
  absl::Status Check(const Command& command);

  void Changed(const ReplicaReport& report);
  void SetTiers(std::vector<TierCapacity> tiers) { identity_.tiers = std::move(tiers); }

  // The heartbeat to send now, if one is due: by the clock, or because something changed and no
  // heartbeat waits for its answer.
  std::optional<NodeHeartbeat> Beat(Instant now);
  std::optional<Instant> NextBeat() const;

  Incarnation incarnation() const { return identity_.incarnation; }
  bool welcomed() const { return welcomed_; }
  FencingToken token() const { return token_; }
  // The shard map's, by the controller's last answer.
  Epoch map_epoch() const { return map_epoch_; }

 private:
  struct Unseen {
    ReplicaReport report;
    std::uint64_t sent_in = 0;  // sequence of the heartbeat that carried it; 0 = none yet
  };

  NodeHello identity_;
  const ProtocolSwitches switches_;
  FencingToken token_;
  Epoch map_epoch_;
  bool connected_ = false;
  bool welcomed_ = false;
  Duration heartbeat_every_{};
  Instant next_beat_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t hellos_ = 0;
  std::map<ShardKey, Unseen> unseen_;
  std::size_t unsent_ = 0;  // entries of unseen_ with sent_in == 0
};

}  // namespace engram::poolserver
