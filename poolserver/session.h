// One read session, seen from the node (ARCHITECTURE section 4, rules 1 to 3): grants in numbered
// revisions, renewals that carry the revision applied, goodbye, a broken stream.
//
// It keeps what this session was told and what it acknowledged; leases are LeaseTable's, replicas
// are Replica's, and NodeState connects the three. A session whose stream broke keeps everything it
// was granted until its lease has run out. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/session.h"
#include "poolserver/registration.h"

namespace engram::poolserver {

// One gRPC stream of a read session, numbered by the adapter; never reused.
using StreamId = StrongId<struct StreamIdTag>;

class NodeSession {
 public:
  NodeSession(SessionId id, const SessionToken& token, const OpenSession& open, StreamId stream);

  SessionId id() const { return id_; }
  const SessionToken& token() const { return token_; }
  const std::string& client() const { return client_; }
  // What its certificate says, else what it says itself.
  const std::string& tenant() const { return tenant_; }
  const std::optional<Identity>& proven() const { return proven_; }
  const std::string& request_id() const { return request_id_; }
  const std::set<TableUid>& tables() const { return tables_; }
  // Nothing when the stream broke.
  std::optional<StreamId> stream() const { return stream_; }

  void AddTable(const TableUid& table) { tables_.insert(table); }
  bool Wants(const TableUid& table) const { return tables_.count(table) != 0; }
  bool Holds(const ShardKey& shard) const { return granted_.count(shard) != 0; }

  // Changes collected since the last TakeUpdate. REQUIRES for AddWithdrawal and Replace:
  // Holds(shard).
  void AddGrant(const Grant& grant, RegistrationId registration);
  void AddWithdrawal(const Withdrawal& withdrawal);
  // Withdraws what was granted of the shard, and grants this, in one update.
  void Replace(const Grant& grant, RegistrationId registration);
  // A path that a grant names; told once.
  void AddPath(std::uint32_t path, const PathAddress& address);
  // The next revision, or nothing when nothing changed or the stream is broken.
  std::optional<GrantUpdate> TakeUpdate();

  const std::map<ShardKey, RegistrationId>& granted() const { return granted_; }

  // The client says that every revision up to `applied` is in force and quiescent. Returns the
  // registrations under which it cannot read any more. InvalidArgument: a revision that was never
  // sent, or one smaller than before.
  absl::StatusOr<std::vector<RegistrationKey>> Apply(GrantRevision applied);
  // True while a withdrawal waits for this client: its lease is not extended.
  bool HasUnapplied() const { return !unapplied_.empty() || !pending_ends_.empty(); }
  // A withdrawal of this shard waits for this client: it must not be granted again before (but it
  // may be replaced).
  bool IsWithdrawing(const ShardKey& shard) const { return NewestEnding(shard).has_value(); }
  // The newest registration under which it may still read the shard; nothing when it cannot.
  std::optional<RegistrationId> MayRead(const ShardKey& shard) const;
  GrantRevision applied() const { return applied_; }
  GrantRevision sent() const { return sent_; }

  void StreamBroken() { stream_.reset(); }
  // The same request again on a new stream, whose client never renewed: it holds nothing. The
  // session starts over; revision numbers go on. REQUIRES: MayReattach().
  void Reattach(StreamId stream);
  bool renewed() const { return renewed_; }
  bool MayReattach() const { return !renewed_ && !HasUnapplied(); }

 private:
  std::optional<RegistrationId> NewestEnding(const ShardKey& shard) const;

  const SessionId id_;
  const SessionToken token_;
  const std::string client_;
  const std::optional<Identity> proven_;
  const std::string tenant_;
  const std::string request_id_;
  std::set<TableUid> tables_;
  std::optional<StreamId> stream_;
  bool renewed_ = false;
  GrantRevision sent_;
  GrantRevision applied_;
  std::map<ShardKey, RegistrationId> granted_;
  std::set<std::uint32_t> told_paths_;
  GrantUpdate pending_;
  std::vector<RegistrationKey> pending_ends_;                        // what it withdraws
  std::map<GrantRevision, std::vector<RegistrationKey>> unapplied_;  // withdrawn at that revision
};

}  // namespace engram::poolserver
