// The words that a client and a pool node exchange on a read session (ARCHITECTURE section 4), as
// plain values. The wire form is proto/engram/v1/pool_node.proto; proto/convert.h is the one place
// that converts. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/identity.h"
#include "engram/ids.h"
#include "engram/shard_map.h"

namespace engram {

enum class FabricKind : std::uint8_t {
  kLoopback = 1,
  kMapped = 2,
  kStream = 3,
  kOfi = 4,
  kUcx = 5
};
std::string_view Name(FabricKind kind);
absl::StatusOr<FabricKind> ParseFabricKind(std::string_view name);

// How one fabric of a node is reached. Its index in SessionOpened::paths is the `path` of a
// GrantPath; fabrics whose keys are bearer tokens have one path a tenant more, which sessions are
// told of when they are granted something there.
struct PathAddress {
  FabricKind fabric = FabricKind::kStream;
  std::string
      address;  // mapped: socket path; stream: host:port or unix:PATH; ofi: provider!hex address
  bool one_sided = false;   // the node's program does not see the read
  bool offloaded = false;   // the node's CPU does not see the read
  std::uint64_t nonce = 0;  // mapped: proves that both ends see the same host
  friend bool operator==(const PathAddress&, const PathAddress&) = default;
};

// One replica, by one path. What the numbers mean is the fabric's business (fabric::RemoteRegion).
struct GrantPath {
  std::uint32_t path = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t key = 0;
  friend bool operator==(const GrantPath&, const GrantPath&) = default;
};

// A path that a node opened after it had listed its paths, or that this session did not need so
// far: as if SessionOpened::paths had it at that index.
struct NumberedPath {
  std::uint32_t path = 0;
  PathAddress address;
  friend bool operator==(const NumberedPath&, const NumberedPath&) = default;
};

struct Grant {
  ShardKey shard;
  Tier tier = Tier::kDram;
  std::vector<GrantPath> paths;
  friend bool operator==(const Grant&, const Grant&) = default;
};

struct Successor {
  NodeId node;
  Incarnation incarnation;
  std::string endpoint;
  friend bool operator==(const Successor&, const Successor&) = default;
};

struct Withdrawal {
  ShardKey shard;
  std::vector<Successor> successors;  // who serves it now; may be empty
  friend bool operator==(const Withdrawal&, const Withdrawal&) = default;
};

// ---- client -> node ----
struct OpenSession {
  std::string client;  // name, for people
  std::string tenant;
  std::string request_id;   // the same id again opens the same session, not a second one
  NodeId node;              // whom the client believes it talks to
  Incarnation incarnation;  // and which start of it
  std::vector<TableUid> tables;
  // Who the peer proved to be; not on the wire: the node's own word.
  std::optional<Identity> proven = std::nullopt;
};
struct AddTable {
  TableUid table;
};
struct RenewLease {
  std::uint64_t sequence =
      0;                  // grows by one each time; echoed, so the client knows when it was sent
  GrantRevision applied;  // every revision up to this one is in force and quiescent at the client
};
// Sent only when no read can start and none is outstanding (rule 3). Ends the lease at once.
struct Goodbye {};
using ClientMessage = std::variant<OpenSession, AddTable, RenewLease, Goodbye>;

// ---- node -> client ----
struct SessionOpened {
  SessionId session;
  SessionToken token;
  NodeId node;
  Incarnation incarnation;
  Duration lease{};  // T; counted by the client from when it sent OpenSession
  Duration margin{};
  std::vector<PathAddress> paths;
};
// A shard that is in both lists is replaced: what was granted of it before is withdrawn (keys
// change when a client is revoked), and the new grant stands.
struct GrantUpdate {
  GrantRevision revision;
  std::vector<Grant> granted;
  std::vector<Withdrawal> withdrawn;
  std::vector<NumberedPath> paths = {};  // that `granted` names for the first time
};
struct LeaseRenewed {
  std::uint64_t sequence = 0;
  Duration lease{};  // 0: not extended (a retirement waits for this client to apply it)
};
struct SessionRefused {
  absl::Status status;
};
using NodeMessage = std::variant<SessionOpened, GrantUpdate, LeaseRenewed, SessionRefused>;

inline constexpr Duration kDefaultLease = std::chrono::seconds(10);
// 1 s + 1 % of T.
constexpr Duration LeaseMargin(Duration lease) { return std::chrono::seconds(1) + lease / 100; }

}  // namespace engram
