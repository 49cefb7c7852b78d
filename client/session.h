// The client's side of a read session with one node (ARCHITECTURE section 4, rules 1 to 6), as a
// state machine without threads, sockets or gRPC:
//
//   std::vector<session::Action> OnEvent(Instant now, session::Event event);
//   std::optional<Instant> NextTimer() const;   // feed Timer{} no later than this
//
// It opens the session, counts the lease from the moment each request was *sent*, renews every T/3,
// turns grant revisions into route changes and acknowledges a revision only when it is quiescent.
// When the lease is lost it voids every grant, waits for the readers, releases (unmaps) everything,
// and opens a new session after a back-off. A stream that breaks is no reason to stop reading: the
// node keeps the lease of a broken session to its end (rule 3c), so the grants stay in force that
// long, behind all other routes, while the session is opened anew beside them; what they grant is
// voided when the node answers, has said no, or runs as another incarnation.
//
// Rules for the adapter:
// - `now` is read from the clock after the event happened and before the actions are carried out:
//   a lease counts from it.
// - Actions are carried out in order; each that names an answer is answered exactly once, with the
//   same `session` number.
// - ChangeRoutes / VoidRoutes: import the granted regions and route reads to them, take the
// withdrawn
//   ones (VoidRoutes: all of the node) out of the routes, publish, and answer with the version that
//   Quiescence::Publish() returned. Imports of withdrawn regions stay until ReleaseRegions /
//   ReleaseAll. One revision may come as two ChangeRoutes, each answered: grants first.
// - A shard that is granted while it is routed is replaced: the older import leaves the routes with
//   that ChangeRoutes and is given back by the ReleaseRegions of the same revision.
// - ReleaseRegions / ReleaseAll come only after quiescence: release the imports (unmap), forget the
//   peer (ReleaseAll), then answer.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client/lease.h"
#include "client/protocol_switches.h"
#include "client/quiescence.h"
#include "client/shard_set.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/random.h"
#include "engram/session.h"

namespace engram::client {

namespace session {

// Numbers the openings of one ClientSession from 1: events of an earlier stream are ignored.
using Opening = StrongId<struct OpeningTag>;

// ---- events ----
struct Start {};
struct Timer {};
struct NodeSaid {
  Opening session;
  NodeMessage message;
};
// The stream broke, could not be made, or was closed by the node.
struct StreamLost {
  Opening session;
  absl::Status why;
};
struct SuccessorsReached {
  Opening session;
  GrantRevision revision;
};
struct RoutesChanged {
  Opening session;
  GrantRevision revision;
  RouteVersion version;
};
struct RegionsReleased {
  Opening session;
  GrantRevision revision;
};
struct RoutesVoided {
  Opening session;
  RouteVersion version;
};
struct AllReleased {
  Opening session;
};
struct WantTable {
  TableUid table;
};
// The map says that the node is somewhere else or was started anew.
struct NodeMoved {
  Incarnation incarnation;
  std::string endpoint;
};
// Leave: void, wait for the readers, release, goodbye.
struct Stop {};
using Event = std::variant<Start, Timer, NodeSaid, StreamLost, SuccessorsReached, RoutesChanged,
                           RegionsReleased, RoutesVoided, AllReleased, WantTable, NodeMoved, Stop>;

// ---- actions ----
struct OpenStream {
  Opening session;
  std::string endpoint;
};
struct SendToNode {
  Opening session;
  ClientMessage message;
};
// After everything sent before it. Needs no StreamLost in answer.
struct CloseStream {
  Opening session;
};
// The session is open: connect the fabrics (Fabric::AddPeer with the token). `lease` goes into
// every route of this session.
struct SessionStarted {
  Opening session;
  SessionOpened opened;
  std::shared_ptr<const ReadLease> lease;
};
// Open sessions with these nodes before reads are turned away. Answer: SuccessorsReached, when they
// are open or cannot be; the session goes on without it after T/3.
struct ReachSuccessors {
  Opening session;
  GrantRevision revision;
  std::vector<Successor> successors;
};
// The stream broke, the lease runs on: routes of the session are the last choice from now on.
struct StreamCut {
  Opening session;
  absl::Status why;
};
// Answer: RoutesChanged.
struct ChangeRoutes {
  Opening session;
  GrantRevision revision;
  std::vector<Grant> granted;
  std::vector<ShardKey> withdrawn;
  std::vector<NumberedPath> paths = {};  // to be connected first: `granted` names them
};
// Answer: RegionsReleased.
struct ReleaseRegions {
  Opening session;
  GrantRevision revision;
  std::vector<ShardKey> withdrawn;
};
// No read of this node may start any more. Answer: RoutesVoided.
struct VoidRoutes {
  Opening session;
  absl::Status why;
};
// Answer: AllReleased.
struct ReleaseAll {
  Opening session;
};
// After goodbye; nothing follows.
struct Stopped {};
using Action =
    std::variant<OpenStream, SendToNode, CloseStream, SessionStarted, ReachSuccessors, StreamCut,
                 ChangeRoutes, ReleaseRegions, VoidRoutes, ReleaseAll, Stopped>;

// The next session, while grants of the one that broke are in force or being released.
struct Reopening {
  Opening opening;
  bool up = false;                // asked for; else it will be
  std::vector<NodeMessage> said;  // heard, for when the older session is over
};

}  // namespace session

struct ClientSessionOptions {
  std::string client;
  std::string tenant;
  NodeId node;
  Incarnation incarnation;
  std::string endpoint;
  std::vector<TableUid> tables;
  Duration open_timeout = std::chrono::seconds(2);
  Duration backoff_min = std::chrono::milliseconds(50);
  Duration backoff_max = std::chrono::seconds(5);
  // How often readers are looked at while a revision waits for them.
  Duration quiescence_poll = std::chrono::milliseconds(1);
};

class ClientSession {
 public:
  enum class State : std::uint8_t {
    kIdle,     // before Start
    kOpening,  // OpenSession sent
    kOpen,     // grants in force
    kVoiding,  // grants void; waiting for readers and for the release
    kBackoff,  // nothing held; opens again later
    kStopped,  // after goodbye
  };

  // `quiescence` and `random` must outlive the object.
  ClientSession(ClientSessionOptions options, const Quiescence* quiescence, Random* random,
                ProtocolSwitches switches = {});

  std::vector<session::Action> OnEvent(Instant now, session::Event event);
  std::optional<Instant> NextTimer() const;

  State state() const { return state_; }
  const NodeId& node() const { return options_.node; }
  Incarnation incarnation() const { return options_.incarnation; }
  session::Opening opening() const { return opening_; }
  // Open, but the stream broke: no renewal and no withdrawal can come any more.
  bool cut() const { return state_ == State::kOpen && reopening_.has_value(); }
  GrantRevision received() const { return received_; }
  // Every revision up to this one is in force and quiescent.
  GrantRevision applied() const { return applied_; }
  // Null unless open or voiding.
  std::shared_ptr<const ReadLease> lease() const { return lease_; }
  // Why the last session ended or could not be opened; for people.
  const absl::Status& last_error() const { return last_error_; }

 private:
  using Actions = std::vector<session::Action>;
  // One revision on its way to being applied. Revisions move on independently; `applied` is the
  // longest run of done ones. Grants are routed at once, so that a later withdrawal of the same
  // replica always follows them.
  struct Revision {
    enum class Step : std::uint8_t { kReaching, kRouting, kDraining, kReleasing, kDone };
    GrantRevision number;
    Step step = Step::kReaching;
    std::vector<ShardKey> withdrawn;
    std::vector<ShardKey> replaced;       // by what the same revision grants
    Instant reach_until{};                // turn reads away at the latest
    std::uint32_t routes_unanswered = 0;  // ChangeRoutes without RoutesChanged
    RouteVersion version;
  };

  void On(Instant now, const session::Start&, Actions& out);
  void On(Instant now, const session::Timer&, Actions& out);
  void On(Instant now, const session::NodeSaid& event, Actions& out);
  void On(Instant now, const session::StreamLost& event, Actions& out);
  void On(Instant now, const session::SuccessorsReached& event, Actions& out);
  void On(Instant now, const session::RoutesChanged& event, Actions& out);
  void On(Instant now, const session::RegionsReleased& event, Actions& out);
  void On(Instant now, const session::RoutesVoided& event, Actions& out);
  void On(Instant now, const session::AllReleased& event, Actions& out);
  void On(Instant now, const session::WantTable& event, Actions& out);
  void On(Instant now, const session::NodeMoved& event, Actions& out);
  void On(Instant now, const session::Stop&, Actions& out);

  void Hear(Instant now, const SessionOpened& opened, Actions& out);
  void Hear(Instant now, const GrantUpdate& update, Actions& out);
  void Hear(Instant now, const LeaseRenewed& renewed, Actions& out);
  void Hear(Instant now, const SessionRefused& refused, Actions& out);

  void Open(Instant now, Actions& out);
  void Ask(Instant now, session::Opening opening, Actions& out);
  void Renew(Instant now, Actions& out);
  // Ends the session: void the grants if there are any, else back off at once.
  void Lose(Instant now, absl::Status why, Actions& out);
  void BackOff(Instant now);
  void Delay(Instant now);

  // A session whose stream broke (session_reopen.cc).
  void Cut(Instant now, absl::Status why, Actions& out);
  void Reopen(Instant now, Actions& out);
  void HearReopened(Instant now, const NodeMessage& message, Actions& out);
  void LoseReopened(Instant now, const absl::Status& why, Actions& out);
  void TakeReopened(Instant now, Actions& out);
  void DropReopened(Actions& out);

  // Moves revisions on as far as they go; renews at once when one became applied.
  void Advance(Instant now, Actions& out);
  // True when the revision took a step.
  bool Step(Instant now, Revision& revision, Actions& out);
  void StepVoiding(Actions& out);
  Revision* Find(GrantRevision number);

  ClientSessionOptions options_;
  const Quiescence* const quiescence_;
  Random* const random_;
  const ProtocolSwitches switches_;

  State state_ = State::kIdle;
  session::Opening opening_;
  session::Opening last_opening_;
  bool stream_up_ = false;
  std::optional<session::Reopening> reopening_;
  bool stopping_ = false;
  std::string request_id_;
  Instant opened_at_{};  // when the last OpenSession was sent
  Instant deadline_{};   // of opening, or of the back-off
  Duration backoff_{};
  absl::Status last_error_;

  Duration lease_length_{};
  std::shared_ptr<ReadLease> lease_;
  Instant next_renewal_{};
  std::uint64_t sequence_ = 0;
  std::deque<std::pair<std::uint64_t, Instant>> sent_;  // renewals without an answer

  GrantRevision received_;
  GrantRevision applied_;
  std::deque<Revision> revisions_;
  ShardSet held_;
  std::vector<TableUid> late_tables_;  // wanted after OpenSession was sent
  Instant last_event_{};
  std::optional<RouteVersion> voided_;
  bool releasing_all_ = false;
};

}  // namespace engram::client
