// A whole pool node as one state machine: replicas, read sessions, leases and the conversation with
// the controller (ARCHITECTURE section 4, rules 1 to 3, 6 and 8). No thread, socket, gRPC or byte
// of a row in it: the program feeds events and carries out the actions that come back, in order.
//
//   std::vector<Action> OnEvent(Instant now, Event event);
//   std::optional<Instant> NextTimer() const;   // feed Timer{} no later than this
//
// Rules for the adapter:
// - `now` is read from the clock after the event has happened (after the message was received).
// - Actions are carried out in the order given. An action that takes long (load, expose, hide,
//   inspect) may run elsewhere; its answer comes back as the event named beside it.
// - After ReleaseMemory the node keeps nothing of that replica in that tier: the memory may be
//   reused at once.
// - Reads of a replica's memory by the node itself are counted: those of the scrubber from
//   ScrubSlice to SliceScrubbed, those of a move to another tier from StartLoad to its answer, any
//   others from StartOwnRead to the event OwnReadFinished. The gather of `stream` needs no bracket:
//   Target::Hide returns only when no thread of it reads the memory any more, and the sessions that
//   ask for it, other nodes' pulls included, are counted.
//
// CommandDone of LoadReplicas and RetireReplicas means "accepted"; how far they are is in the
// replica reports of the heartbeats. LoadReplicas that names another tier than a replica serves
// from moves it there: it is reported once it serves from there, or, still Serving, with an error.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "engram/random.h"
#include "engram/session.h"
#include "engram/shard_layout.h"
#include "poolserver/controller_link.h"
#include "poolserver/lease_table.h"
#include "poolserver/protocol_switches.h"
#include "poolserver/registration.h"
#include "poolserver/replica.h"
#include "poolserver/session.h"

namespace engram::poolserver {

// ---- events ----
struct Timer {};
// The stream to the controller is up (answer: NodeHello) / is gone.
struct ControllerConnected {};
struct ControllerLost {};
struct ControllerSaid {
  ControllerToNode message;
};
// A message of a read session, or the end of its stream for whatever reason.
struct ClientSaid {
  StreamId stream;
  ClientMessage message;
};
struct StreamBroken {
  StreamId stream;
};
// Answers to StartLoad, one per shard. A load that was stopped or failed ends with LoadEnded, sent
// after the last byte was written; its memory is given back by the ReleaseMemory that follows.
struct ReplicaLoaded {
  ShardKey shard;
  std::vector<std::uint32_t> block_crcs;
};
struct LoadEnded {
  ShardKey shard;
  absl::Status why;
};
// Answers to ExposeReplica. ExposeFailed: some fabric does not reach the memory; nothing is
// registered.
struct ReplicaExposed {
  RegistrationKey registration;
  std::vector<GrantPath> paths;
  bool bearer_keys = false;               // some of its keys are bearer tokens
  std::vector<NumberedPath> opened = {};  // that `paths` name beyond NodeOptions::paths
};
struct ExposeFailed {
  RegistrationKey registration;
  absl::Status why;
};
// Answer to HideReplica: its keys reach nothing any more, and no thread of ours reads by them.
struct ReplicaHidden {
  RegistrationKey registration;
};
struct OwnReadFinished {
  ShardKey shard;
  Tier tier;  // where it was when the read began
};
// Answer to ScrubSlice. DataLoss: the bytes are not what was loaded.
struct SliceScrubbed {
  ShardKey shard;
  Tier tier;  // the slice's
  absl::Status status;
};
// Answer to StartInspection.
struct InspectionEnded {
  std::uint64_t command = 0;
  absl::Status status;
  std::vector<Inspection> inspection;
};
// What the tiers hold now; reported with the next hello or heartbeat.
struct CapacityChanged {
  std::vector<TierCapacity> tiers;
};
// What each tenant gathered so far; reported with the next heartbeat.
struct TenantsUsed {
  std::vector<TenantUse> tenants;
};
// Nobody can connect to `left` any more: grants of these paths are to be replaced. `paths` as in
// NodeOptions, as they can be reached now.
struct PathsMoved {
  std::vector<PathAddress> paths;
  std::set<std::uint32_t> left;
};
using Event = std::variant<Timer, ControllerConnected, ControllerLost, ControllerSaid, ClientSaid,
                           StreamBroken, ReplicaLoaded, LoadEnded, ReplicaExposed, ExposeFailed,
                           ReplicaHidden, OwnReadFinished, SliceScrubbed, InspectionEnded,
                           CapacityChanged, TenantsUsed, PathsMoved>;

// ---- actions ----
struct SendToController {
  NodeToController message;
};
struct SendToClient {
  StreamId stream;
  NodeMessage message;
};
// After everything sent before it. No StreamBroken is needed in answer; one does no harm.
struct CloseStream {
  StreamId stream;
};
// Every fabric: Target::Admit / Dismiss.
struct AdmitSession {
  SessionToken token;
  std::string tenant;  // whose budget it reads on; empty: nobody's
};
// What sessions, calls and gathers are judged by from now on.
struct UsePolicies {
  std::vector<TenantPolicy> tenants;
};
struct DismissSession {
  SessionToken token;
};
// Every fabric: Target::Allow / Disallow with the keys of these registrations.
struct AllowReplicas {
  SessionToken token;
  std::vector<RegistrationKey> registrations;
};
struct DisallowReplicas {
  struct Ended {
    RegistrationKey registration;
    // Of the same replica: the session goes on with its keys, some of which may be the same.
    std::optional<RegistrationId> kept;
  };
  SessionToken token;
  std::vector<Ended> ended;
};
// Allocate memory for these shards and fill it. Answer per shard: ReplicaLoaded or LoadEnded.
struct StartLoad {
  TableRecord table;
  std::vector<ShardIndex> shards;
  Tier tier = Tier::kDram;
  std::optional<Successor> source;  // pull them from there; else from the table's source
  // Copy them from that tier of this node, where they serve; before the other sources.
  std::optional<Tier> from = std::nullopt;
};
// Give up loading. Answer: LoadEnded, or ReplicaLoaded when it was done already.
struct StopLoad {
  ShardKey shard;
};
// Register with every fabric that reaches it, in the domain of the tenant where a fabric has
// domains; under new keys where they are bearer tokens. Answer: ReplicaExposed or ExposeFailed.
struct ExposeReplica {
  RegistrationKey registration;
  Tier tier = Tier::kDram;
  std::string tenant;  // whose table it is
};
// Deregister from every fabric what no other registration of the replica is in need of
// (Target::Hide). Answer: ReplicaHidden.
struct HideReplica {
  RegistrationKey registration;
};
// The memory of the replica in that tier may be reused from now on.
struct ReleaseMemory {
  ShardKey shard;
  Tier tier = Tier::kDram;
};
// Compare the blocks [first_block, first_block + block_crcs.size()) with their checksums (and
// seals). Answer: SliceScrubbed. One at a time.
struct ScrubSlice {
  ShardKey shard;
  std::uint64_t first_block = 0;
  std::vector<std::uint32_t> block_crcs;
  Tier tier = Tier::kDram;
};
// Look at a table's source. Answer: InspectionEnded.
struct StartInspection {
  std::uint64_t command = 0;
  TableName table;
  TableSource source;
};
// Stop at once; another process owns this NodeId, or the id was refused.
struct Exit {
  absl::Status why;
};
using Action =
    std::variant<SendToController, SendToClient, CloseStream, AdmitSession, DismissSession,
                 UsePolicies, AllowReplicas, DisallowReplicas, StartLoad, StopLoad, ExposeReplica,
                 HideReplica, ReleaseMemory, ScrubSlice, StartInspection, Exit>;

struct NodeOptions {
  NodeId node;
  std::string process_nonce;  // random per process
  std::string endpoint;       // advertised host:port of read sessions
  std::string failure_domain;
  std::string version;
  std::vector<PathAddress> paths;  // of the open targets, in the order of GrantPath::path
  std::vector<TierCapacity> tiers;
  Duration lease = kDefaultLease;
  std::size_t max_sessions = 4096;
  std::uint64_t scrub_bytes_per_second = 0;  // 0: what is served is not looked at again
};

class NodeState {
 public:
  // `random` makes session ids and tokens and must outlive the object.
  NodeState(NodeOptions options, Random* random, ProtocolSwitches switches = {});

  std::vector<Action> OnEvent(Instant now, Event event);
  // The addresses of the open targets, once they carry the incarnation (Target::SetIncarnation).
  // REQUIRES: the same fabrics in the same order; called before the first session opens.
  void SetPaths(std::vector<PathAddress> paths) { options_.paths = std::move(paths); }
  // When Timer{} must be fed at the latest; nothing = never.
  std::optional<Instant> NextTimer() const;

  // One more reader of our own (see above). False unless the replica serves.
  bool StartOwnRead(const ShardKey& shard);

  Incarnation incarnation() const { return link_.incarnation(); }
  // The controller has welcomed this process: sessions are accepted and commands obeyed.
  bool registered() const { return link_.incarnation() != Incarnation(0); }
  bool controller_reachable() const { return link_.welcomed(); }
  Epoch map_epoch() const { return link_.map_epoch(); }
  // Null when this node does not hold the shard.
  const Replica* FindReplica(const ShardKey& shard) const;
  const std::map<ShardKey, Replica>& replicas() const { return replicas_; }
  // Sessions with a stream, and those whose lease goes on without one.
  std::size_t open_sessions() const { return by_stream_.size(); }
  std::size_t sessions() const { return sessions_.size(); }
  std::size_t retirements_pending() const;
  struct Counters {
    std::uint64_t renewals_extended = 0;
    std::uint64_t renewals_not_extended = 0;
    std::uint64_t sessions_run_out = 0;
    std::uint64_t sessions_refused = 0;
    std::uint64_t commands_refused = 0;
    std::uint64_t loads_unsound = 0;  // replicas that did not have the table's checksums
    std::uint64_t scrubs_unsound = 0;
    std::uint64_t scrubbed_bytes = 0;
    std::uint64_t registrations_renewed = 0;  // under new keys: a revocation, a new address
    std::uint64_t renewals_failed = 0;        // they were retired instead
    std::uint64_t tier_moves = 0;             // replicas that serve from another tier since
    std::uint64_t tier_moves_failed = 0;      // they serve from where they were
  };
  const Counters& counters() const { return counters_; }

 private:
  using Actions = std::vector<Action>;

  void On(Instant now, const Timer&, Actions& out);
  void On(Instant now, const ControllerConnected&, Actions& out);
  void On(Instant now, const ControllerLost&, Actions& out);
  void On(Instant now, const ControllerSaid& event, Actions& out);
  void On(Instant now, const ClientSaid& event, Actions& out);
  void On(Instant now, const StreamBroken& event, Actions& out);
  void On(Instant now, const ReplicaLoaded& event, Actions& out);
  void On(Instant now, const LoadEnded& event, Actions& out);
  void On(Instant now, const ReplicaExposed& event, Actions& out);
  void On(Instant now, const ExposeFailed& event, Actions& out);
  void On(Instant now, const ReplicaHidden& event, Actions& out);
  void On(Instant now, const OwnReadFinished& event, Actions& out);
  void On(Instant now, const SliceScrubbed& event, Actions& out);
  void On(Instant now, const InspectionEnded& event, Actions& out);
  void On(Instant now, const CapacityChanged& event, Actions& out);
  void On(Instant now, const TenantsUsed& event, Actions& out);
  void On(Instant now, const PathsMoved& event, Actions& out);

  void Obey(const Command& command, Actions& out);
  // Ends the sessions of revoked clients, withdraws what a tenant may not read any more.
  void Take(const TenantPolicies& policies, Actions& out);
  const TenantPolicy* PolicyOf(const std::string& tenant) const;
  bool IsRevoked(const std::optional<Identity>& proven) const;
  bool MayRead(const NodeSession& session, const TableUid& table) const;
  bool TenantReads(const std::string& tenant, const TableUid& table) const;
  // Registers anew what tenants know by bearer keys that may not read it any more, or of which a
  // client was revoked.
  void RenewKeys(const std::set<std::string>& revoked, Actions& out);
  // Registers it anew, where readers are told a path of it that nobody can connect to.
  void LeaveMovedPaths(Replica& replica, Actions& out);
  absl::Status Load(const LoadReplicas& load, Actions& out);
  void Retire(const RetireReplicas& retire, Actions& out);
  void Register(const Replica& replica, RegistrationId registration, Actions& out);
  void Drain(Replica& replica, Actions& out);
  void HideIfUnread(Replica& replica, Actions& out);
  // REQUIRES: kFreed. `replica` is gone afterwards. Release: with the memory that it was loaded to.
  void Forget(Replica& replica);
  void Release(Replica& replica, Actions& out);

  // Moves between tiers. Unavailable: not now.
  static bool MovesTo(const Replica& replica, Tier to);
  absl::Status CheckMove(const Replica& replica, Tier to) const;
  void StartMove(const TableRecord& table, Replica& replica, Tier to, Actions& out);
  void EndCopy(Replica& replica, absl::Status status, Actions& out);
  void MoveFailed(Replica& replica, const absl::Status& why, Actions& out);

  // The next slice of what is served, when its time has come.
  void Scrub(Instant now, Actions& out);
  std::map<ShardKey, Replica>::iterator NextToScrub();

  void Open(Instant now, StreamId stream, const OpenSession& open, Actions& out);
  bool Reattach(Instant now, StreamId stream, const OpenSession& open, absl::Status* why,
                Actions& out);
  void Welcome(Instant now, NodeSession& session, Actions& out);
  void GrantTables(NodeSession& session);
  // Grants it; in place of what the session holds of it, if anything.
  void Give(NodeSession& session, Replica& replica);
  void Renew(Instant now, NodeSession& session, const RenewLease& renew, Actions& out);
  // The session cannot read any more: forget it and go on with the retirements that waited for it.
  void EndSession(SessionId id, Actions& out);
  void RefuseStream(StreamId stream, absl::Status why, Actions& out);
  NodeSession* SessionOf(StreamId stream);
  void FlushUpdates(Actions& out);
  void StopReading(NodeSession& session, const std::vector<RegistrationKey>& ended, Actions& out);

  NodeOptions options_;  // only the paths change
  Random* const random_;
  const ProtocolSwitches switches_;
  ControllerLink link_;
  LeaseTable leases_;
  std::map<ShardKey, Replica> replicas_;
  std::map<TableUid, ShardLayout> layouts_;  // of tables with replicas here
  struct Owned {
    TableName name;
    std::string tenant;
  };
  std::map<TableUid, Owned> owners_;  // of the same tables
  std::map<std::string, TenantPolicy> policies_;
  FencingToken policies_from_;
  std::vector<TenantUse> tenants_used_;
  std::map<SessionId, NodeSession> sessions_;
  std::map<StreamId, SessionId> by_stream_;
  std::map<std::string, SessionId> by_request_;
  std::map<std::uint32_t, PathAddress> more_paths_;  // beyond options_.paths
  std::set<std::uint32_t> left_paths_;               // that nobody can connect to any more
  Counters counters_;
  ShardKey scrub_shard_;  // where the scrubber goes on
  std::uint64_t scrub_block_ = 0;
  bool scrubbing_ = false;
  Instant next_scrub_{};
  bool exiting_ = false;
};

}  // namespace engram::poolserver
