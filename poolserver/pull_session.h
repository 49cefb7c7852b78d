// The reader's side of the read session that a node opens to pull replicas of one table from
// another node (ARCHITECTURE sections 3 and 4): it counts the lease from when each request was
// sent, renews every T/3, and acknowledges a withdrawal only when no read of that replica is under
// way. What it pulled is compared with checksums afterwards, so it delivers nothing by lease alone.
//
//   Send what TakeMessages() holds after every call, in order.
//
// No thread, socket or gRPC in it. A session that ended stays ended: make another one.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/session.h"

namespace engram::poolserver {

class PullSession {
 public:
  struct Options {
    std::string client;      // who pulls, for people
    std::string request_id;  // random
    NodeId node;             // who has the replicas
    Incarnation incarnation;
    TableUid table;
    Duration open_timeout = std::chrono::seconds(5);
  };

  // Asks for the session at once.
  PullSession(Options options, Instant now);

  std::vector<ClientMessage> TakeMessages();
  void Hear(Instant now, const NodeMessage& message);
  void Lost(absl::Status why);
  // Renews, and ends a session whose lease ran out. Call when NextTimer has come.
  void Timer(Instant now);
  Instant NextTimer() const;

  // OK while opening and open; else why it ended.
  const absl::Status& status() const { return status_; }
  // Nothing before the node has answered.
  const std::optional<SessionOpened>& opened() const { return opened_; }
  // True once the node has said which replicas it serves.
  bool granted() const { return received_ != GrantRevision(); }

  // The grant, with one more read of it under way; nothing when the replica is not granted (any
  // more), or the session is not open.
  std::optional<Grant> StartRead(Instant now, const ShardKey& shard);
  // Every byte of the read has landed or was flushed.
  void FinishRead(Instant now, const ShardKey& shard);
  // Says goodbye. REQUIRES: no read is under way.
  void Close();

 private:
  struct Replica {
    Grant grant;
    std::uint32_t reads = 0;
    GrantRevision withdrawn;  // 0: it is granted
    GrantRevision replaced;   // by a newer grant, while older reads are under way; 0: no
  };

  void End(const absl::Status& why);
  void Take(const GrantUpdate& update);
  void Apply(Instant now);
  void Renew(Instant now);

  const Options options_;
  absl::Status status_;
  std::optional<SessionOpened> opened_;
  Instant asked_{};
  Instant lease_until_{};
  Instant next_renewal_{};
  std::map<std::uint64_t, Instant> sent_;  // renewals without an answer
  std::uint64_t sequence_ = 0;
  GrantRevision received_;
  GrantRevision applied_;
  std::map<ShardKey, Replica> replicas_;
  std::vector<ClientMessage> out_;
};

}  // namespace engram::poolserver
